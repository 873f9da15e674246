//! What execution is told: the outbox messages of this service.
//!
//! Owns their topics and contents. A message is written in the transaction of the change it tells of, and names the withdrawal
//! as its aggregate, so that everything about one withdrawal arrives in order.

use chrono::{DateTime, Utc};
use db::outbox::{self, Message};
use prost::Message as _;
use proto::execution::v1::{ApprovalProof, EnqueueWithdrawalRequest, ImportJobRequest};
use proto::time::timestamp;
use sqlx::PgConnection;

use super::approval::usable;
use super::error::WithdrawalError;
use super::request::{ImportedPayment, Withdrawal};

/// `EnqueueWithdrawalRequest` for execution.
pub const ENQUEUE: &str = "execution.EnqueueWithdrawal";
/// `ImportJobRequest` for execution.
pub const IMPORT: &str = "execution.ImportJob";

/// Hands an approved request over, with the approvals that made its quorum.
pub async fn enqueue_in(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
    now: DateTime<Utc>,
) -> Result<(), WithdrawalError> {
    let payload = &withdrawal.payload;
    let approvals = usable(&withdrawal.approvals, now)
        .map(|approval| ApprovalProof {
            approver: approval.approver.clone(),
            signature: approval.signature.to_vec(),
            expires_at: Some(timestamp(approval.expires_at)),
        })
        .collect();
    let message = EnqueueWithdrawalRequest {
        withdrawal_id: withdrawal.id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        priority: payload.priority.to_string(),
        requested_by: withdrawal.requested_by.clone(),
        approvals,
    };
    write_in(tx, withdrawal, ENQUEUE, &message.encode_to_vec()).await
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
    write_in(tx, withdrawal, IMPORT, &message.encode_to_vec()).await
}

async fn write_in(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
    topic: &str,
    payload: &[u8],
) -> Result<(), WithdrawalError> {
    let aggregate = withdrawal.id.to_string();
    outbox::enqueue_in(tx, &Message { aggregate: &aggregate, topic, payload }).await?;
    Ok(())
}
