//! The outbox messages to execution.
//!
//! Owns their topics and contents. A message is written in the transaction of the change that it reports, with the withdrawal
//! as its aggregate, so that all messages about one withdrawal arrive in order.

use db::outbox::OutboxMessage;
use proto::execution::v1 as execution_pb;
use proto::time::timestamp;

use super::approval::Approval;
use super::request::{ImportedPayment, Withdrawal};

pub const ENQUEUE: &str = "execution.EnqueueWithdrawal";
pub const RENEW: &str = "execution.RenewApprovals";
pub const IMPORT: &str = "execution.ImportJob";

fn message(withdrawal: &Withdrawal, topic: &str, message: &impl prost::Message) -> OutboxMessage {
    OutboxMessage::new(withdrawal.id.to_string(), topic, message.encode_to_vec())
}

/// Hands over an approved request, with the approvals that made its quorum.
pub fn enqueue(withdrawal: &Withdrawal, approvals: &[&Approval]) -> OutboxMessage {
    let payload = &withdrawal.payload;
    let request = execution_pb::EnqueueWithdrawalRequest {
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
    message(withdrawal, ENQUEUE, &request)
}

/// Sends the approvals of a quorum that was lost and is complete again.
pub fn renew(withdrawal: &Withdrawal, approvals: &[&Approval]) -> OutboxMessage {
    let request = execution_pb::RenewApprovalsRequest {
        withdrawal_id: withdrawal.id.to_string(),
        approvals: proofs(approvals),
        // Every change of the request increases its sequence, so a later renewal has a higher revision.
        revision: withdrawal.sequence,
    };
    message(withdrawal, RENEW, &request)
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
pub fn import(withdrawal: &Withdrawal, payment: &ImportedPayment) -> OutboxMessage {
    let payload = &withdrawal.payload;
    let request = execution_pb::ImportJobRequest {
        withdrawal_id: withdrawal.id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        from_address: payment.from_address.to_string(),
        tx_hash: payment.tx_hash.to_string(),
        created_at: Some(timestamp(withdrawal.created_at)),
    };
    message(withdrawal, IMPORT, &request)
}
