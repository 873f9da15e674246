//! The outbox messages to execution.
//!
//! Owns their topics and contents. A message is written in the transaction of the change that it reports, with the withdrawal
//! as its aggregate, so that all messages about one withdrawal arrive in order.

use db::outbox::{self, Message, Traced};
use proto::execution::v1 as execution_pb;
use proto::time::timestamp;
use sqlx::PgConnection;
use telemetry::TraceContext;

use super::approval::Approval;
use super::error::WithdrawalError;
use super::request::{ImportedPayment, Withdrawal};

pub const ENQUEUE: &str = "execution.EnqueueWithdrawal";
pub const RENEW: &str = "execution.RenewApprovals";
pub const IMPORT: &str = "execution.ImportJob";

#[derive(Debug, Clone)]
pub struct OutboxMessage {
    aggregate: String,
    topic: &'static str,
    payload: Vec<u8>,
    trace: TraceContext,
}

impl OutboxMessage {
    fn new(
        withdrawal: &Withdrawal,
        topic: &'static str,
        message: &impl prost::Message,
        trace: TraceContext,
    ) -> Self {
        Self { aggregate: withdrawal.id.to_string(), topic, payload: message.encode_to_vec(), trace }
    }
}

/// Hands over an approved request, with the approvals that made its quorum.
pub fn enqueue(withdrawal: &Withdrawal, approvals: &[&Approval], trace: TraceContext) -> OutboxMessage {
    let payload = &withdrawal.payload;
    let message = execution_pb::EnqueueWithdrawalRequest {
        withdrawal_id: withdrawal.id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        priority: payload.priority.to_string(),
        requested_by: withdrawal.requested_by.clone(),
        on_behalf_of: payload.on_behalf_of.clone(),
        approvals: proofs(approvals),
    };
    OutboxMessage::new(withdrawal, ENQUEUE, &message, trace)
}

/// Sends the approvals of a quorum that was lost and is complete again.
pub fn renew(withdrawal: &Withdrawal, approvals: &[&Approval], trace: TraceContext) -> OutboxMessage {
    let message = execution_pb::RenewApprovalsRequest {
        withdrawal_id: withdrawal.id.to_string(),
        approvals: proofs(approvals),
        // Every change of the request increases its sequence, so a later renewal has a higher revision.
        revision: withdrawal.sequence,
    };
    OutboxMessage::new(withdrawal, RENEW, &message, trace)
}

fn proofs(approvals: &[&Approval]) -> Vec<execution_pb::ApprovalProof> {
    let proof = |approval: &&Approval| execution_pb::ApprovalProof {
        approver: approval.approver.clone(),
        signature: approval.signature.to_vec(),
        expires_at: Some(timestamp(approval.expires_at)),
    };
    approvals.iter().map(proof).collect()
}

/// Hands over an imported payment, for execution to have it watched.
pub fn import(withdrawal: &Withdrawal, payment: &ImportedPayment, trace: TraceContext) -> OutboxMessage {
    let payload = &withdrawal.payload;
    let message = execution_pb::ImportJobRequest {
        withdrawal_id: withdrawal.id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        from_address: payment.from_address.to_string(),
        tx_hash: payment.tx_hash.to_string(),
        created_at: Some(timestamp(withdrawal.created_at)),
    };
    OutboxMessage::new(withdrawal, IMPORT, &message, trace)
}

pub async fn send_in(tx: &mut PgConnection, messages: &[OutboxMessage]) -> Result<(), WithdrawalError> {
    let traced: Vec<Traced<'_>> = messages
        .iter()
        .map(|message| Traced {
            message: Message {
                aggregate: &message.aggregate,
                topic: message.topic,
                payload: &message.payload,
            },
            trace: Some(&message.trace),
        })
        .collect();
    Ok(outbox::enqueue_many_in(tx, &traced).await?)
}
