//! Counts and averages.

use std::time::Duration;

use sqlx::{FromRow, PgConnection};
use strum::VariantArray as _;

use crate::withdrawal::domain::Status;
use crate::withdrawal::error::WithdrawalError;
use crate::withdrawal::list::Statistics;

const STATISTICS: &str = include_str!("../../../queries/statistics.sql");

#[derive(FromRow)]
struct Row {
    pending_approvals: i64,
    approval_ms: Option<i64>,
    completion_ms: Option<i64>,
    completed: i64,
    finished: i64,
}

pub async fn statistics_in(
    connection: &mut PgConnection,
    window: Duration,
) -> Result<Statistics, WithdrawalError> {
    let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX);
    let row: Row = sqlx::query_as(STATISTICS).bind(seconds).fetch_one(&mut *connection).await?;
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT status, count(*) FROM withdrawal_requests \
         WHERE created_at > now() - $1 * interval '1 second' GROUP BY status",
    )
    .bind(seconds)
    .fetch_all(connection)
    .await?;
    let millis = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    let rate = row.completed.saturating_mul(10_000).checked_div(row.finished).unwrap_or(0);
    Ok(Statistics {
        pending_approvals: row.pending_approvals.unsigned_abs(),
        by_status: every_status(&counts, Status::VARIANTS),
        average_approval: row.approval_ms.map(millis),
        average_completion: row.completion_ms.map(millis),
        completion_rate_basis_points: u32::try_from(rate).unwrap_or(0),
    })
}

/// How many requests are not finished, by status. The cost does not grow with the history.
pub async fn count_open_in(connection: &mut PgConnection) -> Result<Vec<(Status, u64)>, WithdrawalError> {
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT status, count(*) FROM withdrawal_requests \
         WHERE status IN ('pending', 'approved', 'queued') GROUP BY status",
    )
    .fetch_all(connection)
    .await?;
    Ok(every_status(&counts, &[Status::Pending, Status::Approved, Status::Queued]))
}

/// Adds a zero for each status without requests, because a gauge must fall and not vanish.
fn every_status(counts: &[(String, i64)], wanted: &[Status]) -> Vec<(Status, u64)> {
    let count = |status: Status| {
        counts.iter().find(|(name, _)| name == status.into_str()).map_or(0, |(_, count)| count.unsigned_abs())
    };
    wanted.iter().map(|status| (*status, count(*status))).collect()
}
