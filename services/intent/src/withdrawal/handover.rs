//! What execution is told: the outbox messages of this service.
//!
//! Owns their topics and contents. A message is written in the transaction of the change it tells of, and names the withdrawal
//! as its aggregate, so that everything about one withdrawal arrives in order.

use db::outbox::{self, OutboxMessage};
use proto::execution::v1::{
    ApprovalProof, EnqueueWithdrawalRequest, ImportJobRequest, RenewApprovalsRequest,
};
use proto::time::timestamp;
use sqlx::PgConnection;
use telemetry::TraceContext;

use super::approval::Approval;
use super::error::WithdrawalError;
use super::request::{ImportedPayment, Withdrawal};

/// `EnqueueWithdrawalRequest` for execution.
pub const ENQUEUE: &str = "execution.EnqueueWithdrawal";
/// `RenewApprovalsRequest` for execution.
pub const RENEW: &str = "execution.RenewApprovals";
/// `ImportJobRequest` for execution.
pub const IMPORT: &str = "execution.ImportJob";

/// A message to execution, to be written with the change it tells of.
#[derive(Debug, Clone)]
pub struct Parcel {
    aggregate: String,
    topic: &'static str,
    payload: Vec<u8>,
}

impl Parcel {
    fn new(withdrawal: &Withdrawal, topic: &'static str, message: &impl prost::Message) -> Self {
        Self { aggregate: withdrawal.id.to_string(), topic, payload: message.encode_to_vec() }
    }

    /// Whether it is the first that execution hears of the request.
    pub fn begins(&self) -> bool {
        self.topic == ENQUEUE
    }

    fn message(&self) -> OutboxMessage {
        OutboxMessage::new(self.aggregate.as_str(), self.topic, self.payload.as_slice())
    }
}

/// Hands an approved request over, with the approvals that made its quorum.
pub fn enqueue(withdrawal: &Withdrawal, holding: &[&Approval]) -> Parcel {
    let payload = &withdrawal.payload;
    let message = EnqueueWithdrawalRequest {
        withdrawal_id: withdrawal.id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        priority: payload.priority.to_string(),
        requested_by: withdrawal.requested_by.clone(),
        on_behalf_of: payload.on_behalf_of.clone(),
        approvals: proofs(holding),
    };
    Parcel::new(withdrawal, ENQUEUE, &message)
}

/// Hands over the approvals of a quorum that was lost and holds again. Comes after the request itself, in order.
pub fn renew(withdrawal: &Withdrawal, holding: &[&Approval]) -> Parcel {
    let message = RenewApprovalsRequest {
        withdrawal_id: withdrawal.id.to_string(),
        approvals: proofs(holding),
        // Every change of the request adds to it, so a later renewal has a higher one.
        revision: withdrawal.sequence,
    };
    Parcel::new(withdrawal, RENEW, &message)
}

fn proofs(holding: &[&Approval]) -> Vec<ApprovalProof> {
    let proof = |approval: &&Approval| ApprovalProof {
        approver: approval.approver.clone(),
        signature: approval.signature.to_vec(),
        expires_at: Some(timestamp(approval.expires_at)),
    };
    holding.iter().map(proof).collect()
}

/// Hands an imported payment over, to be watched to its end.
pub async fn import_in(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
    payment: &ImportedPayment,
) -> Result<(), WithdrawalError> {
    let payload = &withdrawal.payload;
    let message = ImportJobRequest {
        withdrawal_id: withdrawal.id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        from_address: payment.from_address.to_string(),
        tx_hash: payment.tx_hash.to_string(),
        created_at: Some(timestamp(withdrawal.created_at)),
    };
    outbox::enqueue_in(tx, &Parcel::new(withdrawal, IMPORT, &message).message()).await?;
    Ok(())
}

/// Writes messages of several requests, each as part of its own trace.
pub async fn write_many_in(
    tx: &mut PgConnection,
    parcels: &[(Parcel, TraceContext)],
) -> Result<(), WithdrawalError> {
    let messages: Vec<OutboxMessage> =
        parcels.iter().map(|(parcel, trace)| parcel.message().in_trace(trace.clone())).collect();
    outbox::enqueue_many_in(tx, &messages).await?;
    Ok(())
}
