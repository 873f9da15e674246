//! Writes requests, their histories and approvals; each statement takes any number of rows.
//!
//! Every change of a request is compare-and-set on its sequence, so a change that was decided on an older state is a conflict
//! and not a lost update.

use rpc::fields::Violation;
use sqlx::PgConnection;
use sqlx::types::Json;
use types::WithdrawalId;
use uuid::Uuid;

use crate::error::StoreError;
use crate::withdrawal::approval::Approval;
use crate::withdrawal::domain::{State, Transition};
use crate::withdrawal::error::WithdrawalError;
use crate::withdrawal::request::{ImportedPayment, Withdrawal};
use crate::withdrawal::watch::TOPIC;

const INSERT: &str = include_str!("../../../queries/withdrawal_insert.sql");
const UPDATE: &str = include_str!("../../../queries/withdrawal_update.sql");
const APPEND: &str = include_str!("../../../queries/transition_append.sql");
const PUT_APPROVALS: &str = include_str!("../../../queries/approval_put.sql");
const ADD_REFUSALS: &str = include_str!("../../../queries/approval_refusal_add.sql");

/// Inserts new requests with the first entry of each history.
///
/// # Errors
/// `Conflict` when an idempotency key or id is taken: another transaction has just committed it.
pub async fn insert_in(tx: &mut PgConnection, new: &[&Withdrawal]) -> Result<(), WithdrawalError> {
    if new.is_empty() {
        return Ok(());
    }
    let payloads = || new.iter().map(|withdrawal| &withdrawal.payload);
    let hash = |withdrawal: &&Withdrawal| withdrawal.payload.hash(&withdrawal.requested_by).to_vec();
    let required = |required: u32| i32::try_from(required).unwrap_or(i32::MAX);
    let inserted = sqlx::query(INSERT)
        .bind(new.iter().map(|withdrawal| withdrawal.id.as_uuid()).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.origin.into_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.key.as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(hash).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.user_id.as_uuid()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.chain.as_str()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.asset.as_str()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.amount.to_string()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| i16::from(payload.decimals.get())).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.destination.to_string()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.memo.as_str()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.priority.rank()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| Json(&payload.labels)).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.requested_by.as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| required(withdrawal.required_approvals)).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.state.status().into_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.created_at).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.updated_at).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.state.queued_at()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.on_behalf_of.as_str()).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    db::cas::expect_rows(inserted, new.len())?;
    let first: Vec<Transition> = new.iter().map(|withdrawal| withdrawal.first_transition()).collect();
    let entries: Vec<_> = new.iter().map(|withdrawal| withdrawal.id).zip(&first).collect();
    append_in(tx, &entries).await
}

/// Stores how another system paid an imported request. The table accepts each transaction once.
pub async fn put_import_in(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
    payment: &ImportedPayment,
) -> Result<(), WithdrawalError> {
    sqlx::query("INSERT INTO imports (request_id, chain, from_address, tx_hash) VALUES ($1, $2, $3, $4)")
        .bind(withdrawal.id.as_uuid())
        .bind(withdrawal.payload.chain.as_str())
        .bind(payment.from_address.to_string())
        .bind(payment.tx_hash.to_string())
        .execute(tx)
        .await
        .map_err(|error| match db::constraint(&error) {
            Some("imports_transaction_once") => {
                let why = "belongs to another imported withdrawal";
                WithdrawalError::Invalid(Violation::new("tx_hash", why).into())
            }
            _ => error.into(),
        })?;
    Ok(())
}

/// A request in its new state, with the entries that led there.
#[derive(Debug, Clone, Copy)]
pub struct Changed<'a> {
    pub withdrawal: &'a Withdrawal,
    /// Its sequence in the database.
    pub stored_sequence: u64,
    pub transitions: &'a [Transition],
}

pub async fn update_in(tx: &mut PgConnection, changed: &[Changed<'_>]) -> Result<(), WithdrawalError> {
    if changed.is_empty() {
        return Ok(());
    }
    let blocked_since = |state: &State| match state {
        State::Queued { blockage, .. } => blockage.changed_at,
        _ => None,
    };
    let paid = |state: &State| match state {
        State::Completed { tx_hash, block, .. } => (Some(tx_hash.to_string()), Some(*block)),
        _ => (None, None),
    };
    let all = || changed.iter().map(|changed| changed.withdrawal);
    let states = || all().map(|withdrawal| &withdrawal.state);
    let blocks = states().map(|state| paid(state).1.map(signed).transpose());
    let updated = sqlx::query(UPDATE)
        .bind(all().map(|withdrawal| withdrawal.id.as_uuid()).collect::<Vec<_>>())
        .bind(changed.iter().map(|changed| signed(changed.stored_sequence)).collect::<Result<Vec<_>, _>>()?)
        .bind(all().map(|withdrawal| signed(withdrawal.sequence)).collect::<Result<Vec<_>, _>>()?)
        .bind(states().map(|state| state.status().into_str()).collect::<Vec<_>>())
        .bind(states().map(State::blocked_reason).collect::<Vec<_>>())
        .bind(states().map(blocked_since).collect::<Vec<_>>())
        .bind(states().map(State::failure_reason).collect::<Vec<_>>())
        .bind(states().map(|state| paid(state).0).collect::<Vec<_>>())
        .bind(blocks.collect::<Result<Vec<_>, _>>()?)
        .bind(all().map(|withdrawal| withdrawal.updated_at).collect::<Vec<_>>())
        .bind(states().map(State::approved_at).collect::<Vec<_>>())
        .bind(states().map(State::queued_at).collect::<Vec<_>>())
        .bind(states().map(State::finished_at).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    db::cas::expect_rows(updated, changed.len())?;
    let mut entries = Vec::new();
    for Changed { withdrawal, transitions, .. } in changed {
        entries.extend(transitions.iter().map(|transition| (withdrawal.id, transition)));
    }
    append_in(tx, &entries).await
}

async fn append_in(
    tx: &mut PgConnection,
    entries: &[(WithdrawalId, &Transition)],
) -> Result<(), WithdrawalError> {
    let (ids, entries): (Vec<Uuid>, Vec<&Transition>) =
        entries.iter().map(|(id, transition)| (id.as_uuid(), *transition)).unzip();
    sqlx::query(APPEND)
        .bind(ids)
        .bind(entries.iter().map(|entry| signed(entry.sequence)).collect::<Result<Vec<_>, _>>()?)
        .bind(entries.iter().map(|entry| entry.from.map(|from| from.into_str())).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.to.into_str()).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.actor.as_str()).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.detail.as_str()).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.at).collect::<Vec<_>>())
        .bind(TOPIC)
        .execute(tx)
        .await?;
    Ok(())
}

/// A counted approval to be stored.
#[derive(Debug, Clone)]
pub struct NewApproval {
    pub request: WithdrawalId,
    pub requested_by: String,
    pub on_behalf_of: String,
    pub approval: Approval,
    /// The stored signature of the same approver that no longer counts.
    pub replaced: Option<[u8; 64]>,
}

/// Stores approvals. Each replaces only the signature that was read.
pub async fn put_approvals_in(tx: &mut PgConnection, new: &[NewApproval]) -> Result<(), WithdrawalError> {
    if new.is_empty() {
        return Ok(());
    }
    let approvals = || new.iter().map(|new| &new.approval);
    let replaced = new.iter().filter_map(|new| new.replaced.as_ref());
    let stored = sqlx::query(PUT_APPROVALS)
        .bind(new.iter().map(|new| new.request.as_uuid()).collect::<Vec<_>>())
        .bind(approvals().map(|approval| approval.approver.as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|new| new.requested_by.as_str()).collect::<Vec<_>>())
        .bind(approvals().map(|approval| approval.signature.as_slice()).collect::<Vec<_>>())
        .bind(approvals().map(|approval| approval.expires_at).collect::<Vec<_>>())
        .bind(approvals().map(|approval| approval.approved_at).collect::<Vec<_>>())
        .bind(new.iter().map(|new| new.on_behalf_of.as_str()).collect::<Vec<_>>())
        .bind(replaced.map(|signature| signature.as_slice()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    db::cas::expect_rows(stored, new.len())?;
    Ok(())
}

/// Refused approvals of one approver for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusalKey {
    pub request: WithdrawalId,
    pub approver: String,
    pub reason: String,
}

/// Adds to the counts of refused approvals.
pub async fn add_refusals_in(
    tx: &mut PgConnection,
    refusals: &[(&RefusalKey, i64)],
) -> Result<(), WithdrawalError> {
    if refusals.is_empty() {
        return Ok(());
    }
    sqlx::query(ADD_REFUSALS)
        .bind(refusals.iter().map(|(key, _)| key.request.as_uuid()).collect::<Vec<_>>())
        .bind(refusals.iter().map(|(key, _)| key.approver.as_str()).collect::<Vec<_>>())
        .bind(refusals.iter().map(|(key, _)| key.reason.as_str()).collect::<Vec<_>>())
        .bind(refusals.iter().map(|(_, times)| *times).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

fn signed(value: u64) -> Result<i64, WithdrawalError> {
    let too_large = |_| StoreError::Corrupt(format!("{value} is too large to store"));
    Ok(i64::try_from(value).map_err(too_large)?)
}
