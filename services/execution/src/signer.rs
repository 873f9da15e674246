//! The edge to the signer: asks for signatures and says what the answer means.
//!
//! Owns the request's exact shape and the one classification of the signer's refusals. It never keeps bytes, never changes
//! a request that was made before (the attempt's row is the request), and never takes silence for a "no".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::signer::v1::sign_transactions_outcome::Outcome;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use proto::signer::v1::{self as signer, authorization, sign_transaction_request, tx_intent};
use tonic::{Code, Request, Status};
use tracing::Span;
use types::TxHash;

use crate::job::{Attempt, AttemptKind, Job, JobQueue, VoidProof, Window};

/// How long a signer that failed is given to say that it is well again.
const PROBE: Duration = Duration::from_secs(2);

/// Stable reasons of the signer that mean something else than their code.
const FENCE_STALE: &str = "FENCE_STALE";
const LIMIT_WINDOW: &str = "LIMIT_WINDOW";
/// The window of an attempt was taken long ago, or is far ahead; another one will do.
const WINDOW_PASSED: &str = "TRON_EXPIRATION";
const FREEZE_FROZEN: &str = "FREEZE_FROZEN";
const NONCE_SPENT: &str = "PAYMENT_GUARD_NONCE_SPENT";
const PAYMENT_GUARD: &str = "PAYMENT_GUARD_";
const APPROVALS_EXPIRED: &str = "APPROVALS_EXPIRED";

/// What came of asking for a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signed {
    Bytes {
        raw: Vec<u8>,
        claimed_hash: Option<TxHash>,
    },
    /// Not now, and it has not: a limit over time is reached. The nonce must not wait for it.
    NotNow {
        reason: String,
    },
    /// Not with these approvals, which have expired, and it has not: approvers must sign again.
    ApprovalsExpired {
        reason: String,
    },
    /// Not at this nonce, which it has given to another payment, and it has not.
    NonceSpent {
        reason: String,
    },
    /// Not as long as something else that it signed for this payment may land. For this request it has signed nothing.
    Guarded {
        reason: String,
    },
    /// The signer will not sign this, and has not. `reason` is its stable word.
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

/// The signer, as execution sees it. Clones share what is known about its health.
#[derive(Debug, Clone)]
pub struct Signer {
    client: SignerServiceClient<rpc::Client>,
    timeout: Duration,
    doubtful: Arc<AtomicBool>,
}

/// A request that cannot be made from what is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the attempt lacks {0}")]
pub struct Incomplete(&'static str);

impl Signer {
    pub fn new(client: rpc::Client, timeout: Duration) -> Self {
        Self { client: SignerServiceClient::new(client), timeout, doubtful: Arc::default() }
    }

    /// Whether it can be expected to sign. Asked before nonces are taken: after a failure it must first answer again, so
    /// that an outage binds no more nonces than the batch it hit.
    pub async fn ready(&self) -> Result<(), String> {
        if !self.doubtful.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.probe().await?;
        self.doubtful.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Asks how it is: for health, and after a failure.
    pub async fn probe(&self) -> Result<(), String> {
        let mut request = Request::new(signer::GetStatusRequest {});
        request.set_timeout(PROBE);
        let status = self.client.clone().get_status(request).await;
        let status = status.map_err(|status| format!("signer: {}", words(&status)))?.into_inner();
        if status.sealed {
            return Err("signer: sealed".to_owned());
        }
        Ok(())
    }

    /// Asks for the signatures of attempts, in one call; one answer for each, in their order. The same attempt is the same
    /// request, but for the lease. Each is part of the trace of its span.
    pub async fn sign(&self, requests: Vec<(signer::SignTransactionRequest, Span)>) -> Vec<Signed> {
        let count = requests.len();
        let items = requests.into_iter().map(|(request, span)| signer::SignTransactionsItem {
            request: Some(request),
            traceparent: traceparent(&span),
        });
        let mut request = Request::new(signer::SignTransactionsRequest { items: items.collect() });
        request.set_timeout(self.timeout);
        let mut signed: Vec<Signed> = match self.client.clone().sign_transactions(request).await {
            Ok(answer) => answer.into_inner().outcomes.into_iter().map(read).collect(),
            Err(status) => (0..count).map(|_| classify(&status)).collect(),
        };
        // An answer that is missing is no "no".
        signed.resize_with(count, || Signed::Unknown { error: "signer: no answer".to_owned() });
        if signed.iter().any(|signed| matches!(signed, Signed::Unknown { .. })) {
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

fn read(outcome: signer::SignTransactionsOutcome) -> Signed {
    match outcome.outcome {
        Some(Outcome::Signed(answer)) => {
            Signed::Bytes { raw: answer.raw_transaction, claimed_hash: answer.tx_hash.parse().ok() }
        }
        Some(Outcome::Refused(refused)) => classify(&Status::with_details(
            Code::from_i32(refused.code),
            refused.message,
            refused.details.into(),
        )),
        None => Signed::Unknown { error: "signer: no answer".to_owned() },
    }
}

/// What a refusal means. Every code is named, so that a new one has to be placed.
fn classify(status: &Status) -> Signed {
    let reason = rpc::error::reason_of(status).unwrap_or_default();
    if reason == FENCE_STALE {
        return Signed::Fenced;
    }
    if reason == LIMIT_WINDOW || reason == WINDOW_PASSED {
        return Signed::NotNow { reason: words(status) };
    }
    if reason == APPROVALS_EXPIRED {
        return Signed::ApprovalsExpired { reason: words(status) };
    }
    if reason == NONCE_SPENT {
        return Signed::NonceSpent { reason: words(status) };
    }
    if reason.starts_with(PAYMENT_GUARD) {
        return Signed::Guarded { reason: words(status) };
    }
    let unknown = || Signed::Unknown { error: words(status) };
    let refused = || Signed::Refused { reason: words(status) };
    match status.code() {
        // Away, slow, overloaded, sealed or at fault: it may have signed, or will later.
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::DataLoss
        | Code::Ok => unknown(),
        // Our own key or role is wrong: an operator mends it, and nothing is the matter with the payment.
        Code::Unauthenticated | Code::Unimplemented => unknown(),
        Code::PermissionDenied if reason == rpc::error::reason::ROLE_REQUIRED => unknown(),
        // The kill switch: lifted by an operator, and nobody else gets past this nonce meanwhile.
        Code::FailedPrecondition if reason == FREEZE_FROZEN => unknown(),
        Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::OutOfRange => refused(),
    }
}

fn words(status: &Status) -> String {
    match rpc::error::reason_of(status) {
        Some(reason) => format!("{} ({reason})", status.message()),
        None => format!("{} ({:?})", status.message(), status.code()),
    }
}

/// The request for an attempt of a job, made from what is stored and nothing else.
pub fn request(
    job: &Job,
    attempt: &Attempt,
    network_id: u64,
    lease_epoch: u64,
) -> Result<signer::SignTransactionRequest, Incomplete> {
    let payer = job.payer.as_ref().ok_or(Incomplete("a wallet"))?;
    Ok(signer::SignTransactionRequest {
        idempotency_key: attempt.key(),
        chain: job.chain.to_string(),
        wallet_group_id: payer.group.to_string(),
        derivation_index: payer.index,
        tx_intent: Some(signer::TxIntent { action: Some(action(job, attempt)?) }),
        parameters: Some(match attempt.window {
            None => sign_transaction_request::Parameters::Evm(by_nonce(attempt, network_id)?),
            Some(window) => sign_transaction_request::Parameters::Tron(by_window(attempt, &window)?),
        }),
        authorization: Some(authorization_of(job, attempt)?),
        job_id: job.id.to_string(),
        lease_epoch,
    })
}

/// The numbers of a transaction that has a nonce.
fn by_nonce(attempt: &Attempt, network_id: u64) -> Result<signer::EvmParameters, Incomplete> {
    let nonce = attempt.nonce.ok_or(Incomplete("a nonce"))?;
    let fee = attempt.fee.ok_or(Incomplete("a price"))?;
    let dynamic = fee.max_priority_fee_per_gas.is_some();
    let text = |shown: bool, value: u128| if shown { value.to_string() } else { String::new() };
    Ok(signer::EvmParameters {
        chain_id: network_id,
        nonce,
        gas_limit: fee.gas_limit,
        max_fee_per_gas: text(dynamic, fee.max_fee_per_gas),
        max_priority_fee_per_gas: fee.max_priority_fee_per_gas.map(|tip| tip.to_string()).unwrap_or_default(),
        gas_price: text(!dynamic, fee.max_fee_per_gas),
    })
}

/// The numbers of a transaction that has a window.
fn by_window(attempt: &Attempt, window: &Window) -> Result<signer::TronParameters, Incomplete> {
    let fee = attempt.fee.ok_or(Incomplete("a price"))?;
    let small = |value: u64, what| i64::try_from(value).map_err(|_| Incomplete(what));
    let reference = chain::block_reference(&window.reference.hash);
    Ok(signer::TronParameters {
        ref_block_bytes: reference.number_end.to_vec(),
        ref_block_hash: reference.hash_middle.to_vec(),
        expiration_ms: small(window.expiration_ms, "an expiration that fits")?,
        timestamp_ms: small(window.made_ms, "a time that fits")?,
        fee_limit_sun: small(fee.gas_limit, "a fee limit that fits")?,
    })
}

fn action(job: &Job, attempt: &Attempt) -> Result<tx_intent::Action, Incomplete> {
    let from = job.payer.as_ref().ok_or(Incomplete("a wallet"))?.address.to_string();
    let (to, amount) = (job.to.to_string(), job.amount.to_string());
    let contract = job.contract.map(|contract| contract.to_string());
    Ok(match (attempt.kind, contract, attempt.window) {
        (AttemptKind::Cancel, _, None) => tx_intent::Action::Cancellation(signer::Cancellation { from }),
        (AttemptKind::Cancel, _, Some(_)) => return Err(Incomplete("a nonce to close")),
        (AttemptKind::Pay, None, None) => {
            tx_intent::Action::NativeTransfer(signer::NativeTransfer { from, to, amount_wei: amount })
        }
        (AttemptKind::Pay, None, Some(_)) => {
            tx_intent::Action::SendTrx(signer::SendTrx { from, to, amount_sun: amount })
        }
        (AttemptKind::Pay, Some(contract_address), None) => {
            tx_intent::Action::Erc20Transfer(signer::Erc20Transfer { from, to, amount, contract_address })
        }
        (AttemptKind::Pay, Some(contract_address), Some(_)) => {
            tx_intent::Action::Trc20Transfer(signer::Trc20Transfer { from, to, amount, contract_address })
        }
    })
}

fn authorization_of(job: &Job, attempt: &Attempt) -> Result<signer::Authorization, Incomplete> {
    let kind = match job.queue {
        JobQueue::Withdrawal => authorization::Kind::Withdrawal(signer::WithdrawalAuthorization {
            withdrawal_id: job.withdrawal.ok_or(Incomplete("a withdrawal"))?.to_string(),
            asset: job.symbol.to_string(),
            requested_by: job.requested_by.clone(),
            on_behalf_of: job.on_behalf_of.clone(),
            approvals: job
                .approvals
                .iter()
                .map(|approval| signer::ApprovalProof {
                    approver: approval.approver.clone(),
                    signature: unhex(&approval.signature),
                    expires_at: Some(proto::time::timestamp(approval.expires_at)),
                })
                .collect(),
        }),
        JobQueue::Consolidation => authorization::Kind::Sweep(signer::SweepAuthorization {
            job_id: job.id.to_string(),
            asset: job.symbol.to_string(),
        }),
        JobQueue::Gas => return Err(Incomplete("the deposit wallet of a top-up")),
    };
    let void_attestation = attempt.void_proof.as_ref().map(|proof| attestation(job, proof));
    Ok(signer::Authorization { kind: Some(kind), void_attestation })
}

fn attestation(job: &Job, proof: &VoidProof) -> signer::VoidAttestation {
    signer::VoidAttestation {
        job_id: job.id.to_string(),
        tx_hashes: proof.tx_hashes.iter().map(TxHash::to_string).collect(),
        signature: unhex(&proof.signature),
        attested_at: Some(proto::time::timestamp(proof.attested_at)),
    }
}

/// Signatures are stored by ourselves; one that does not read back is sent as nothing and refused by the signer.
fn unhex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap_or_default()
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
            assert!(matches!(classify(&Status::new(code, "x")), Signed::Unknown { .. }), "{code:?}");
        }
    }

    #[test]
    fn rules_refuse_and_a_seal_only_delays() {
        let refused = rpc::error::failed_precondition("DESTINATION_ZERO", "no");
        assert!(matches!(classify(&refused), Signed::Refused { .. }));
        let guarded = rpc::error::failed_precondition("PAYMENT_GUARD_SECOND_NONCE", "no");
        assert!(matches!(classify(&guarded), Signed::Guarded { .. }));
        let frozen = rpc::error::failed_precondition(FREEZE_FROZEN, "not now");
        assert!(matches!(classify(&frozen), Signed::Unknown { .. }));
        let limited = rpc::error::resource_exhausted(LIMIT_WINDOW, "not now", Duration::from_secs(60));
        assert!(matches!(classify(&limited), Signed::NotNow { .. }));
        let expired = rpc::error::permission_denied(APPROVALS_EXPIRED, "0 of 1 approvals hold");
        assert!(matches!(classify(&expired), Signed::ApprovalsExpired { .. }));
        let spent = rpc::error::failed_precondition(NONCE_SPENT, "nonce 7 was used before");
        assert!(matches!(classify(&spent), Signed::NonceSpent { .. }));
        let fenced = rpc::error::aborted(FENCE_STALE, "older lease");
        assert_eq!(classify(&fenced), Signed::Fenced);
    }
}
