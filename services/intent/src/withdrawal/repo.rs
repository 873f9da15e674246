//! SQL of withdrawal requests, approvals and transitions.
//!
//! Owns the statements and the mapping of rows. It never decides; updates are compare-and-set on the request's sequence, so
//! a change that was decided on an older state is a conflict and not a lost update.

use std::collections::HashMap;

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
use super::request::{IdempotencyKey, Origin, Withdrawal};
use super::row::{ApprovalRow, WithdrawalRow};

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

/// Inserts a new request with the first entry of its history. False when its key or id is taken; nothing is written then.
pub async fn insert_in(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
    detail: &str,
) -> Result<bool, WithdrawalError> {
    let payload = &withdrawal.payload;
    let status = withdrawal.state.status();
    let inserted = sqlx::query(INSERT)
        .bind(withdrawal.id.as_uuid())
        .bind(withdrawal.origin.as_str())
        .bind(withdrawal.key.as_str())
        .bind(payload.hash(&withdrawal.requested_by).as_slice())
        .bind(payload.user_id.as_uuid())
        .bind(payload.chain.as_str())
        .bind(payload.asset.as_str())
        .bind(payload.amount.to_string())
        .bind(i16::from(payload.decimals.get()))
        .bind(payload.destination.to_string())
        .bind(&payload.memo)
        .bind(payload.priority.rank())
        .bind(Json(&payload.labels))
        .bind(&withdrawal.requested_by)
        .bind(i32::try_from(withdrawal.required_approvals).unwrap_or(i32::MAX))
        .bind(status.as_str())
        .bind(1_i64)
        .bind(withdrawal.created_at)
        .bind(withdrawal.updated_at)
        .bind(withdrawal.state.queued_at())
        .bind(&payload.on_behalf_of)
        .execute(&mut *tx)
        .await?;
    if inserted.rows_affected() == 0 {
        return Ok(false);
    }
    if let Origin::Import(payment) = &withdrawal.origin {
        sqlx::query("INSERT INTO imports (request_id, from_address, tx_hash) VALUES ($1, $2, $3)")
            .bind(withdrawal.id.as_uuid())
            .bind(payment.from_address.to_string())
            .bind(payment.tx_hash.to_string())
            .execute(&mut *tx)
            .await?;
    }
    let first = Note { from: None, to: status, detail: detail.to_owned() };
    let entries = vec![Entry { note: &first, actor: &withdrawal.requested_by }];
    many::append_in(tx, &[Changed { withdrawal, read: 0, entries }]).await?;
    Ok(true)
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
    let mut approvals = approvals_in(tx, ids).await?;
    let whole = |row: WithdrawalRow| {
        let own = approvals.remove(&row.id).unwrap_or_default();
        row.into_domain(own)
    };
    rows.into_iter().map(whole).collect()
}

/// The request under a caller's key.
pub async fn find_by_key_in(
    connection: &mut PgConnection,
    key: &IdempotencyKey,
) -> Result<Option<Withdrawal>, WithdrawalError> {
    let row = sqlx::query_as(select!("WHERE request.idempotency_key = $1"))
        .bind(key.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    match row {
        Some(row) => whole(connection, row).await.map(Some),
        None => Ok(None),
    }
}

async fn whole(connection: &mut PgConnection, row: WithdrawalRow) -> Result<Withdrawal, WithdrawalError> {
    let mut approvals = approvals_in(connection, &[row.id]).await?;
    let own = approvals.remove(&row.id).unwrap_or_default();
    row.into_domain(own)
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
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut approvals = approvals_in(connection, &ids).await?;
    rows.into_iter()
        .map(|row| {
            let own = approvals.remove(&row.id).unwrap_or_default();
            row.into_domain(own)
        })
        .collect()
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
