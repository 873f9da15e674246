//! SQL of withdrawal requests, approvals and transitions, and the mapping of their rows. It never decides anything.

mod row;
mod statistics;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};
use types::WithdrawalId;
use uuid::Uuid;

use self::row::{ApprovalRow, WithdrawalRow};
use super::approval::Approval;
use super::domain::{Status, Transition};
use super::error::WithdrawalError;
use super::list::Page;
use super::request::Withdrawal;
use crate::error::parse;

pub use self::statistics::{count_open_in, statistics_in};
pub use self::write::{
    Changed, NewApproval, RefusalKey, add_refusals_in, insert_in, put_approvals_in, put_import_in, update_in,
};

const FIND: &str = include_str!("../../../queries/withdrawal_find.sql");
const FIND_BY_KEYS: &str = include_str!("../../../queries/withdrawal_find_by_keys.sql");
const LOCK: &str = include_str!("../../../queries/withdrawal_lock.sql");
const LIST: &str = include_str!("../../../queries/withdrawal_list.sql");

/// The transaction's time by the database's clock.
pub async fn now_in(connection: &mut PgConnection) -> Result<DateTime<Utc>, WithdrawalError> {
    Ok(sqlx::query_scalar("SELECT now()").fetch_one(connection).await?)
}

pub async fn find_in(connection: &mut PgConnection, id: WithdrawalId) -> Result<Withdrawal, WithdrawalError> {
    let rows = sqlx::query_as(FIND).bind(id.as_uuid()).fetch_all(&mut *connection).await?;
    with_approvals(connection, rows).await?.pop().ok_or(WithdrawalError::NotFound(id))
}

/// Locks requests against other writers until the transaction ends, in the order of their ids, so that two transactions cannot
/// deadlock. Unknown ones are left out.
pub async fn lock_in(
    tx: &mut PgConnection,
    ids: &BTreeSet<WithdrawalId>,
) -> Result<Vec<Withdrawal>, WithdrawalError> {
    let ids: Vec<Uuid> = ids.iter().map(WithdrawalId::as_uuid).collect();
    let rows = sqlx::query_as(LOCK).bind(ids).fetch_all(&mut *tx).await?;
    with_approvals(tx, rows).await
}

/// The requests that exist under these idempotency keys, by key.
pub async fn find_by_keys_in(
    connection: &mut PgConnection,
    keys: &BTreeSet<&str>,
) -> Result<HashMap<String, Withdrawal>, WithdrawalError> {
    let keys: Vec<&&str> = keys.iter().collect();
    let rows = sqlx::query_as(FIND_BY_KEYS).bind(keys).fetch_all(&mut *connection).await?;
    let found = with_approvals(connection, rows).await?;
    Ok(found.into_iter().map(|withdrawal| (withdrawal.key.as_str().to_owned(), withdrawal)).collect())
}

async fn with_approvals(
    connection: &mut PgConnection,
    rows: Vec<WithdrawalRow>,
) -> Result<Vec<Withdrawal>, WithdrawalError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let found: Vec<ApprovalRow> = sqlx::query_as(
        "SELECT request_id, approver, signature, expires_at, approved_at FROM approvals \
         WHERE request_id = ANY ($1) ORDER BY approved_at, approver",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let mut approvals: HashMap<Uuid, Vec<Approval>> = HashMap::new();
    for row in found {
        approvals.entry(row.request_id).or_default().push(row.try_into()?);
    }
    let whole = |row: WithdrawalRow| {
        let own = approvals.remove(&row.id).unwrap_or_default();
        row.into_domain(own)
    };
    rows.into_iter().map(whole).collect()
}

/// One page of requests, newest first.
pub async fn list_in(connection: &mut PgConnection, page: &Page) -> Result<Vec<Withdrawal>, WithdrawalError> {
    let filter = &page.filter;
    let statuses: Vec<&str> = filter.statuses.iter().map(|status| status.into_str()).collect();
    let rows = sqlx::query_as(LIST)
        // Planned each time for the filters in use: one plan for all of them could use no index but that of the order.
        .persistent(false)
        .bind(Some(statuses).filter(|statuses| !statuses.is_empty()))
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

/// How often each approver was refused for each reason, for these requests.
pub async fn refusals_in(
    connection: &mut PgConnection,
    ids: &BTreeSet<WithdrawalId>,
) -> Result<BTreeMap<RefusalKey, i64>, WithdrawalError> {
    let rows: Vec<(Uuid, String, String, i64)> = sqlx::query_as(
        "SELECT request_id, approver, reason, times FROM approval_refusals WHERE request_id = ANY ($1)",
    )
    .bind(ids.iter().map(WithdrawalId::as_uuid).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    let counted = rows.into_iter().map(|(request, approver, reason, times)| {
        (RefusalKey { request: request.into(), approver, reason }, times)
    });
    Ok(counted.collect())
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
    let rows: Vec<TransitionRow> = sqlx::query_as(
        "SELECT sequence, from_status, to_status, actor, detail, at FROM transitions \
         WHERE request_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3",
    )
    .bind(id.as_uuid())
    // A resume point beyond what can be stored is beyond every entry.
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    let status = |text: &str| parse::<Status>("status", text);
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

/// The newest sequence of each of these requests.
pub async fn newest_sequences_in(
    connection: &mut PgConnection,
    ids: &[WithdrawalId],
) -> Result<Vec<(WithdrawalId, u64)>, WithdrawalError> {
    let rows: Vec<(Uuid, i64)> =
        sqlx::query_as("SELECT id, last_sequence FROM withdrawal_requests WHERE id = ANY ($1)")
            .bind(ids.iter().map(WithdrawalId::as_uuid).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().map(|(id, sequence)| (id.into(), sequence.unsigned_abs())).collect())
}
