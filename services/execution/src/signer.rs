//! The client of the signer: requests signatures and classifies its replies.
//!
//! Owns the request's exact shape and the one classification of the signer's refusals. It never keeps bytes, never changes
//! a request that was made before (the attempt's row is the request), and never takes silence for a refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use payment::BindingKind;
use proto::payment::{TransactionRequest, write_transaction, write_void_attestation};
use proto::signer::v1 as signer_pb;
use proto::signer::v1::authorization;
use proto::signer::v1::sign_transactions_outcome::Outcome;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use tonic::{Code, Request, Status};
use tracing::Span;
use types::TxHash;

use crate::job::{Attempt, Job};

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Stable reasons of the signer that mean something else than their code.
const FENCE_STALE: &str = "FENCE_STALE";
const LIMIT_WINDOW: &str = "LIMIT_WINDOW";
/// The window of an attempt was taken long ago, or is far ahead; another one will do.
const WINDOW_PASSED: &str = "TRON_EXPIRATION";
const FREEZE_FROZEN: &str = "FREEZE_FROZEN";
const NONCE_SPENT: &str = "PAYMENT_GUARD_NONCE_SPENT";
const PAYMENT_GUARD: &str = "PAYMENT_GUARD_";
const APPROVALS_EXPIRED: &str = "APPROVALS_EXPIRED";

/// What a request for a signature led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignOutcome {
    Bytes {
        raw: Vec<u8>,
        claimed_hash: Option<TxHash>,
    },
    /// It has not signed and will later: a limit over time is reached. The nonce must not wait for it.
    NotNow {
        reason: String,
    },
    /// It has not signed: the approvals have expired, and approvers must sign again.
    ApprovalsExpired {
        reason: String,
    },
    /// It has not signed: it has used this nonce for another payment.
    NonceSpent {
        reason: String,
    },
    /// It has not signed: something else that it signed for this payment may still land.
    Guarded {
        reason: String,
    },
    /// It has not signed and never will. `reason` is its stable word.
    Refused {
        reason: String,
    },
    /// Nobody knows whether it signed: the same request again.
    Unknown {
        error: String,
    },
    /// It has seen a newer lease for this job: we are no longer its worker.
    Fenced,
}

/// Clones share what is known about the signer's health.
#[derive(Debug, Clone)]
pub struct Signer {
    client: SignerServiceClient<rpc::Client>,
    timeout: Duration,
    doubtful: Arc<AtomicBool>,
}

/// A request that cannot be made from what is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the attempt lacks {0}")]
pub struct Incomplete(pub &'static str);

impl Signer {
    pub fn new(client: rpc::Client, timeout: Duration) -> Self {
        Self { client: SignerServiceClient::new(client), timeout, doubtful: Arc::default() }
    }

    /// Whether it can be expected to sign. Checked before nonces are taken: after a failure it must first answer again, so
    /// that an outage binds no more nonces than those of the batch it hit.
    pub async fn ready(&self) -> Result<(), String> {
        if !self.doubtful.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.probe().await?;
        self.doubtful.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it answers and is unsealed: for health, and after a failure.
    pub async fn probe(&self) -> Result<(), String> {
        let mut request = Request::new(signer_pb::GetStatusRequest {});
        request.set_timeout(PROBE_TIMEOUT);
        let status = self.client.clone().get_status(request).await;
        let status = status.map_err(|status| format!("signer: {}", describe(&status)))?.into_inner();
        if status.sealed {
            return Err("signer: sealed".to_owned());
        }
        Ok(())
    }

    /// Requests the signatures of attempts, in one call; one outcome for each, in their order. The same attempt is the same
    /// request, but for the lease. Each is part of the trace of its span.
    pub async fn sign(&self, requests: Vec<(signer_pb::SignTransactionRequest, Span)>) -> Vec<SignOutcome> {
        let count = requests.len();
        let items = requests.into_iter().map(|(request, span)| signer_pb::SignTransactionsItem {
            request: Some(request),
            traceparent: traceparent(&span),
        });
        let mut request = Request::new(signer_pb::SignTransactionsRequest { items: items.collect() });
        request.set_timeout(self.timeout);
        let mut signed: Vec<SignOutcome> = match self.client.clone().sign_transactions(request).await {
            Ok(answer) => answer.into_inner().outcomes.into_iter().map(read).collect(),
            Err(status) => (0..count).map(|_| classify(&status)).collect(),
        };
        // A missing outcome is no refusal.
        signed.resize_with(count, || SignOutcome::Unknown { error: "signer: no answer".to_owned() });
        if signed.iter().any(|signed| matches!(signed, SignOutcome::Unknown { .. })) {
            self.doubtful.store(true, Ordering::Relaxed);
        }
        signed
    }
}

fn traceparent(span: &Span) -> String {
    let mut headers = http::HeaderMap::new();
    telemetry::propagation::inject_span(span, &mut headers);
    let value = headers.get("traceparent").and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn read(outcome: signer_pb::SignTransactionsOutcome) -> SignOutcome {
    match outcome.outcome {
        Some(Outcome::Signed(answer)) => {
            SignOutcome::Bytes { raw: answer.raw_transaction, claimed_hash: answer.tx_hash.parse().ok() }
        }
        Some(Outcome::Refused(refused)) => classify(&Status::with_details(
            Code::from_i32(refused.code),
            refused.message,
            refused.details.into(),
        )),
        None => SignOutcome::Unknown { error: "signer: no answer".to_owned() },
    }
}

/// What a refusal means. Every code is named, so that a new one has to be placed.
fn classify(status: &Status) -> SignOutcome {
    let reason = rpc::error::reason_of(status).unwrap_or_default();
    if reason == FENCE_STALE {
        return SignOutcome::Fenced;
    }
    if reason == LIMIT_WINDOW || reason == WINDOW_PASSED {
        return SignOutcome::NotNow { reason: describe(status) };
    }
    if reason == APPROVALS_EXPIRED {
        return SignOutcome::ApprovalsExpired { reason: describe(status) };
    }
    if reason == NONCE_SPENT {
        return SignOutcome::NonceSpent { reason: describe(status) };
    }
    if reason.starts_with(PAYMENT_GUARD) {
        return SignOutcome::Guarded { reason: describe(status) };
    }
    let unknown = || SignOutcome::Unknown { error: describe(status) };
    let refused = || SignOutcome::Refused { reason: describe(status) };
    match status.code() {
        // Unreachable, slow, overloaded, sealed or faulty: it may have signed, or will later.
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::DataLoss
        | Code::Ok => unknown(),
        // Our own key or role is wrong: an operator corrects it, and nothing is wrong with the payment.
        Code::Unauthenticated | Code::Unimplemented => unknown(),
        Code::PermissionDenied if reason == rpc::error::reason::ROLE_REQUIRED => unknown(),
        // The kill switch: an operator lifts it, and no other payment gets past this nonce meanwhile.
        Code::FailedPrecondition if reason == FREEZE_FROZEN => unknown(),
        Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::OutOfRange => refused(),
    }
}

fn describe(status: &Status) -> String {
    match rpc::error::reason_of(status) {
        Some(reason) => format!("{} ({reason})", status.message()),
        None => format!("{} ({:?})", status.message(), status.code()),
    }
}

/// Why no request can be made.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    #[error("the attempt cannot be written as a request: {0}")]
    Field(#[from] proto::payment::FieldError),
}

/// The request for an attempt of a job, made from what is stored and nothing else.
pub fn request(
    job: &Job,
    attempt: &Attempt,
    network_id: u64,
    lease_epoch: u64,
) -> Result<signer_pb::SignTransactionRequest, RequestError> {
    let payer = job.payer.as_ref().ok_or(Incomplete("a wallet"))?;
    let binding = attempt.binding.ok_or(Incomplete("a binding"))?;
    let (tx_intent, parameters) = write_transaction(&TransactionRequest {
        action: attempt.action.clone(),
        binding,
        price: attempt.price.ok_or(Incomplete("a price"))?,
        network_id: (binding.kind() == BindingKind::Nonce).then_some(network_id),
    })?;
    Ok(signer_pb::SignTransactionRequest {
        idempotency_key: attempt.key(),
        chain: job.chain.to_string(),
        wallet_group_id: payer.group.to_string(),
        derivation_index: payer.index,
        tx_intent: Some(tx_intent),
        parameters: Some(parameters),
        authorization: Some(signer_pb::Authorization {
            kind: Some(authorization_of(job)?),
            void_attestation: attempt.void_proof.as_ref().map(|proof| write_void_attestation(job.id, proof)),
        }),
        job_id: job.id.to_string(),
        lease_epoch,
    })
}

fn authorization_of(job: &Job) -> Result<authorization::Kind, Incomplete> {
    if job.filler {
        // It moves nothing, which the signer allows as it allows a sweep.
        let (job_id, asset) = (job.id.to_string(), job.symbol.to_string());
        return Ok(authorization::Kind::Sweep(signer_pb::SweepAuthorization { job_id, asset }));
    }
    job.queue.kind().ok_or(Incomplete("a queue that signs"))?.authorization(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_faults_are_never_a_no() {
        for code in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Cancelled,
            Code::Unknown,
            Code::Internal,
            Code::Aborted,
            Code::ResourceExhausted,
            Code::Unauthenticated,
        ] {
            assert!(matches!(classify(&Status::new(code, "x")), SignOutcome::Unknown { .. }), "{code:?}");
        }
    }

    #[test]
    fn rules_refuse_and_a_seal_only_delays() {
        let refused = rpc::error::failed_precondition("DESTINATION_ZERO", "no");
        assert!(matches!(classify(&refused), SignOutcome::Refused { .. }));
        let guarded = rpc::error::failed_precondition("PAYMENT_GUARD_SECOND_NONCE", "no");
        assert!(matches!(classify(&guarded), SignOutcome::Guarded { .. }));
        let frozen = rpc::error::failed_precondition(FREEZE_FROZEN, "not now");
        assert!(matches!(classify(&frozen), SignOutcome::Unknown { .. }));
        let limited = rpc::error::resource_exhausted(LIMIT_WINDOW, "not now", Duration::from_secs(60));
        assert!(matches!(classify(&limited), SignOutcome::NotNow { .. }));
        let expired = rpc::error::permission_denied(APPROVALS_EXPIRED, "0 of 1 approvals hold");
        assert!(matches!(classify(&expired), SignOutcome::ApprovalsExpired { .. }));
        let spent = rpc::error::failed_precondition(NONCE_SPENT, "nonce 7 was used before");
        assert!(matches!(classify(&spent), SignOutcome::NonceSpent { .. }));
        let fenced = rpc::error::aborted(FENCE_STALE, "older lease");
        assert_eq!(classify(&fenced), SignOutcome::Fenced);
    }
}
