//! The details of a signing decision in the audit log: JSON text, put together by hand because the canonical request is already
//! JSON. Owns what the log must say besides the request's bytes: who requested the payment, and by which attestation an
//! earlier transaction counted as void. Never holds a key or a phrase.

use serde::Serialize;
use types::{JobId, TxHash};

use super::request::{Purpose, SigningRequest};
use crate::guard::VoidAttestation;

/// The detail of an audit entry. `more` continues the object: empty, or beginning with a comma.
pub(super) fn of(request: &SigningRequest, canonical: &str, more: &str) -> String {
    let requesters = match &request.purpose {
        Purpose::Withdrawal { requested_by, on_behalf_of, .. } => {
            format!(",\"requested_by\":{},\"on_behalf_of\":{}", quoted(requested_by), quoted(on_behalf_of))
        }
        Purpose::Sweep { .. } | Purpose::TopUp { .. } | Purpose::Duty { .. } => String::new(),
    };
    format!(
        "{{\"idempotency_key\":{},\"lease_epoch\":{},\"purpose\":\"{}\"{requesters},\"request\":{canonical}{more}}}",
        quoted(&request.idempotency_key),
        request.lease_epoch,
        request.purpose.into_str(),
    )
}

/// Everything that is needed to check confirmation's signature again.
pub(super) fn attestation(void: &VoidAttestation) -> String {
    let detail = AttestationDetail {
        job_id: void.job,
        tx_hashes: void.tx_hashes().iter().map(TxHash::to_string).collect(),
        attested_at_s: void.proof.attested_at.timestamp(),
        signature: hex::encode(&void.proof.signature),
    };
    let detail = serde_json::to_string(&detail).expect("impossible: texts and numbers only");
    format!(",\"void_attestation\":{detail}")
}

#[derive(Serialize)]
struct AttestationDetail {
    job_id: JobId,
    tx_hashes: Vec<String>,
    attested_at_s: i64,
    signature: String,
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
