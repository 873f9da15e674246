//! The particulars of a signing decision, as the log keeps them: JSON text, written by hand where the canonical request is
//! already JSON. Owns what a decision must tell besides the request's bytes: who asked for the payment, and on whose word an
//! earlier transaction counted as void. Never holds a key or a phrase.

use serde::Serialize;
use types::{JobId, TxHash};

use super::request::{Purpose, SigningRequest};
use crate::guard::VoidAttestation;

/// The detail of an entry. `particulars` continues the object: empty, or beginning with a comma.
pub(super) fn of(request: &SigningRequest, canonical: &str, particulars: &str) -> String {
    let askers = match &request.purpose {
        Purpose::Withdrawal { requested_by, on_behalf_of, .. } => {
            format!(",\"requested_by\":{},\"on_behalf_of\":{}", quoted(requested_by), quoted(on_behalf_of))
        }
        Purpose::Sweep { .. } | Purpose::TopUp { .. } | Purpose::Duty { .. } => String::new(),
    };
    format!(
        "{{\"idempotency_key\":{},\"lease_epoch\":{},\"purpose\":\"{}\"{askers},\"request\":{canonical}{particulars}}}",
        quoted(&request.idempotency_key),
        request.lease_epoch,
        request.purpose.name(),
    )
}

/// Everything that is needed to check confirmation's signature again.
pub(super) fn attestation(void: &VoidAttestation) -> String {
    let told = Attestation {
        job_id: void.job,
        tx_hashes: void.tx_hashes.iter().map(TxHash::to_string).collect(),
        attested_at_s: void.attested_at.timestamp(),
        signature: hex::encode(&void.signature),
    };
    let told = serde_json::to_string(&told).expect("impossible: texts and numbers only");
    format!(",\"void_attestation\":{told}")
}

#[derive(Serialize)]
struct Attestation {
    job_id: JobId,
    tx_hashes: Vec<String>,
    attested_at_s: i64,
    signature: String,
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
