//! SQL of withdrawal requests, approvals and transitions.
//!
//! Owns the statements and the mapping of rows. It never decides; updates are compare-and-set on the request's sequence, so
//! a change that was decided on an older state is a conflict and not a lost update.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use types::WithdrawalId;
use uuid::Uuid;

use super::approval::{Approval, Refusal};
use super::domain::Status;
use super::error::WithdrawalError;
use super::list::Page;
use super::many::{self, Changed, Entry};
use super::request::{ImportedPayment, Origin, Withdrawal};
use super::row::{ApprovalRow, WithdrawalRow};
use crate::violation::Violation;

macro_rules! select {
    ($rest:expr) => {
        concat!(include_str!("../../queries/withdrawal_select.sql"), $rest)
    };
}

const INSERT: &str = include_str!("../../queries/withdrawal_insert.sql");
const LIST: &str = select!(include_str!("../../queries/withdrawal_list.sql"));
const REFUSE: &str = include_str!("../../queries/approval_refuse.sql");
const TRANSITIONS: &str = "SELECT sequence, from_status, to_status, actor, detail, at FROM transitions \
                           WHERE request_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";

/// One entry of a request's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub sequence: u64,
    pub from: Option<Status>,
    pub to: Status,
    pub actor: String,
    pub detail: String,
    pub at: DateTime<Utc>,
}

/// An entry about to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub from: Option<Status>,
    pub to: Status,
    pub detail: String,
}

/// The transaction's time by the database's clock.
pub async fn now_in(connection: &mut PgConnection) -> Result<DateTime<Utc>, WithdrawalError> {
    Ok(sqlx::query_scalar("SELECT now()").fetch_one(connection).await?)
}

/// Inserts new requests with the first entry of each history. Says which; where a key or id is taken, nothing is written.
pub async fn insert_in(
    tx: &mut PgConnection,
    new: &[&Withdrawal],
) -> Result<HashSet<WithdrawalId>, WithdrawalError> {
    if new.is_empty() {
        return Ok(HashSet::new());
    }
    let payloads = || new.iter().map(|withdrawal| &withdrawal.payload);
    let hash = |withdrawal: &&Withdrawal| withdrawal.payload.hash(&withdrawal.requested_by).to_vec();
    let required = |required: u32| i32::try_from(required).unwrap_or(i32::MAX);
    let inserted: Vec<Uuid> = sqlx::query_scalar(INSERT)
        .bind(new.iter().map(|withdrawal| withdrawal.id.as_uuid()).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.origin.as_str()).collect::<Vec<_>>())
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
        .bind(new.iter().map(|withdrawal| withdrawal.state.status().as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.created_at).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.updated_at).collect::<Vec<_>>())
        .bind(new.iter().map(|withdrawal| withdrawal.state.queued_at()).collect::<Vec<_>>())
        .bind(payloads().map(|payload| payload.on_behalf_of.as_str()).collect::<Vec<_>>())
        .fetch_all(&mut *tx)
        .await?;
    let inserted: HashSet<WithdrawalId> = inserted.into_iter().map(WithdrawalId::from_uuid).collect();
    let new: Vec<&&Withdrawal> = new.iter().filter(|withdrawal| inserted.contains(&withdrawal.id)).collect();
    let first: Vec<Note> = new.iter().map(|withdrawal| first_note(withdrawal)).collect();
    let changed: Vec<Changed<'_>> = new
        .iter()
        .zip(&first)
        .map(|(withdrawal, note)| Changed {
            withdrawal,
            read: 0,
            entries: vec![Entry { note, actor: &withdrawal.requested_by }],
        })
        .collect();
    if !changed.is_empty() {
        many::append_in(tx, &changed).await?;
    }
    Ok(inserted)
}

/// How a history begins.
fn first_note(withdrawal: &Withdrawal) -> Note {
    let payload = &withdrawal.payload;
    let detail = match &withdrawal.origin {
        Origin::Request => {
            format!("requested {} {} on {}", payload.amount_text(), payload.asset, payload.chain)
        }
        Origin::Import(payment) => format!("imported from another system, broadcast as {}", payment.tx_hash),
    };
    Note { from: None, to: withdrawal.state.status(), detail }
}

/// Notes how another system paid an imported request. The database lets one request name a transaction.
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
                WithdrawalError::Invalid(vec![Violation::new("tx_hash", why)])
            }
            _ => error.into(),
        })?;
    Ok(())
}

/// Writes the new state of a request whose newest entry was `read`, with the entries that led to it.
pub async fn update_in(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
    read: u64,
    notes: &[Note],
    actor: &str,
) -> Result<(), WithdrawalError> {
    let entries = notes.iter().map(|note| Entry { note, actor }).collect();
    many::save_in(tx, &[Changed { withdrawal, read, entries }]).await
}

/// A request as it stands.
pub async fn find_in(connection: &mut PgConnection, id: WithdrawalId) -> Result<Withdrawal, WithdrawalError> {
    let row =
        sqlx::query_as(select!("WHERE request.id = $1")).bind(id.as_uuid()).fetch_optional(&mut *connection);
    let row = row.await?.ok_or(WithdrawalError::NotFound(id))?;
    whole(connection, row).await
}

/// A request, held against other writers until the transaction ends.
pub async fn lock_in(tx: &mut PgConnection, id: WithdrawalId) -> Result<Withdrawal, WithdrawalError> {
    let row = sqlx::query_as(select!("WHERE request.id = $1 FOR UPDATE OF request"))
        .bind(id.as_uuid())
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(WithdrawalError::NotFound(id))?;
    whole(tx, row).await
}

/// Requests, held likewise, in the order of their ids; unknown ones are left out.
pub(super) async fn lock_many_in(
    tx: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<Withdrawal>, WithdrawalError> {
    let rows: Vec<WithdrawalRow> = sqlx::query_as(select!(
        "WHERE request.id = ANY ((SELECT $1::uuid[])::uuid[]) ORDER BY request.id FOR UPDATE OF request"
    ))
    .bind(ids)
    .fetch_all(&mut *tx)
    .await?;
    with_approvals(tx, rows).await
}

/// The requests under callers' keys, by key.
pub async fn find_by_keys_in(
    connection: &mut PgConnection,
    keys: &BTreeSet<&str>,
) -> Result<HashMap<String, Withdrawal>, WithdrawalError> {
    let rows: Vec<WithdrawalRow> = sqlx::query_as(select!("WHERE request.idempotency_key = ANY ($1)"))
        .bind(keys.iter().collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let found = with_approvals(connection, rows).await?;
    Ok(found.into_iter().map(|withdrawal| (withdrawal.key.as_str().to_owned(), withdrawal)).collect())
}

async fn whole(connection: &mut PgConnection, row: WithdrawalRow) -> Result<Withdrawal, WithdrawalError> {
    let mut approvals = approvals_in(connection, &[row.id]).await?;
    let own = approvals.remove(&row.id).unwrap_or_default();
    row.into_domain(own)
}

async fn with_approvals(
    connection: &mut PgConnection,
    rows: Vec<WithdrawalRow>,
) -> Result<Vec<Withdrawal>, WithdrawalError> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut approvals = approvals_in(connection, &ids).await?;
    let whole = |row: WithdrawalRow| {
        let own = approvals.remove(&row.id).unwrap_or_default();
        row.into_domain(own)
    };
    rows.into_iter().map(whole).collect()
}

async fn approvals_in(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<Approval>>, WithdrawalError> {
    let rows: Vec<ApprovalRow> = sqlx::query_as(
        "SELECT request_id, approver, signature, expires_at, approved_at FROM approvals \
         WHERE request_id = ANY ($1) ORDER BY approved_at, approver",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let mut approvals: HashMap<Uuid, Vec<Approval>> = HashMap::new();
    for row in rows {
        approvals.entry(row.request_id).or_default().push(row.try_into()?);
    }
    Ok(approvals)
}

/// One page of requests, newest first.
pub async fn list_in(connection: &mut PgConnection, page: &Page) -> Result<Vec<Withdrawal>, WithdrawalError> {
    let filter = &page.filter;
    let statuses: Option<Vec<&str>> =
        (!filter.statuses.is_empty()).then(|| filter.statuses.iter().map(|status| status.as_str()).collect());
    let rows: Vec<WithdrawalRow> = sqlx::query_as(LIST)
        // Planned anew each time, for the filters there are: one plan for all of them could use no index but that of the order.
        .persistent(false)
        .bind(statuses)
        .bind(filter.user_id.map(|id| id.as_uuid()))
        .bind(filter.chain.as_ref().map(|chain| chain.as_str()))
        .bind(filter.asset.as_ref().map(|asset| asset.as_str()))
        .bind(filter.destination.map(|address| address.to_string()))
        .bind(filter.created_from)
        .bind(filter.created_to)
        .bind(page.after.map(|(created_at, _)| created_at))
        .bind(page.after.map(|(_, id)| id.as_uuid()))
        .bind(i64::from(page.size))
        .fetch_all(&mut *connection)
        .await?;
    with_approvals(connection, rows).await
}

/// Counts a refused approval. Says how often this approver met this refusal for this request.
pub async fn put_refusal_in(
    tx: &mut PgConnection,
    id: WithdrawalId,
    approver: &str,
    refusal: &Refusal,
) -> Result<i64, WithdrawalError> {
    let times = sqlx::query_scalar(REFUSE)
        .bind(id.as_uuid())
        .bind(approver)
        .bind(refusal.reason())
        .fetch_one(tx)
        .await?;
    Ok(times)
}

#[derive(FromRow)]
struct TransitionRow {
    sequence: i64,
    from_status: Option<String>,
    to_status: String,
    actor: String,
    detail: String,
    at: DateTime<Utc>,
}

/// The history after a sequence, oldest first.
pub async fn transitions_in(
    connection: &mut PgConnection,
    id: WithdrawalId,
    after: u64,
    limit: u32,
) -> Result<Vec<Transition>, WithdrawalError> {
    let rows: Vec<TransitionRow> = sqlx::query_as(TRANSITIONS)
        .bind(id.as_uuid())
        // A resume point beyond what can be stored is beyond every entry.
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await?;
    let status =
        |text: &str| text.parse::<Status>().map_err(|error| WithdrawalError::Corrupt(error.to_string()));
    rows.into_iter()
        .map(|row| {
            Ok(Transition {
                sequence: row.sequence.unsigned_abs(),
                from: row.from_status.as_deref().map(status).transpose()?,
                to: status(&row.to_status)?,
                actor: row.actor,
                detail: row.detail,
                at: row.at,
            })
        })
        .collect()
}
