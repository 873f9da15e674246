//! Counts and times over a window.

use std::time::Duration;

use sqlx::FromRow;

use super::app::Withdrawals;
use super::domain::Status;
use super::error::WithdrawalError;

const STATISTICS: &str = include_str!("../../queries/statistics.sql");
const BY_STATUS: &str = "SELECT status, count(*) FROM withdrawal_requests \
                         WHERE created_at > now() - $1 * interval '1 second' GROUP BY status";
const OPEN: &str = "SELECT status, count(*) FROM withdrawal_requests \
                    WHERE status IN ('pending', 'approved', 'queued') GROUP BY status";

/// What a window held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// Waiting now, whatever their age.
    pub pending_approvals: u64,
    /// Created in the window, by status; every status is there.
    pub by_status: Vec<(Status, u64)>,
    pub average_approval: Option<Duration>,
    pub average_completion: Option<Duration>,
    /// Completed among those finished in the window, in parts of ten thousand; 0 when none finished.
    pub completion_rate_basis_points: u32,
}

#[derive(FromRow)]
struct Row {
    pending_approvals: i64,
    approval_ms: Option<i64>,
    completion_ms: Option<i64>,
    completed: i64,
    finished: i64,
}

fn millis(value: Option<i64>) -> Option<Duration> {
    value.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

impl Withdrawals {
    /// Counts over the last `window`.
    pub async fn statistics(&self, window: Duration) -> Result<Statistics, WithdrawalError> {
        let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX);
        let mut connection = self.pool.acquire().await?;
        let row: Row = sqlx::query_as(STATISTICS).bind(seconds).fetch_one(&mut *connection).await?;
        let counts: Vec<(String, i64)> =
            sqlx::query_as(BY_STATUS).bind(seconds).fetch_all(&mut *connection).await?;
        let rate = row.completed.saturating_mul(10_000).checked_div(row.finished).unwrap_or(0);
        Ok(Statistics {
            pending_approvals: row.pending_approvals.unsigned_abs(),
            by_status: every_status(&counts, &Status::ALL),
            average_approval: millis(row.approval_ms),
            average_completion: millis(row.completion_ms),
            completion_rate_basis_points: u32::try_from(rate).unwrap_or(0),
        })
    }

    /// How many are not finished, by status. Cheap however long the history is.
    pub async fn open(&self) -> Result<Vec<(Status, u64)>, WithdrawalError> {
        let counts: Vec<(String, i64)> = sqlx::query_as(OPEN).fetch_all(&self.pool).await?;
        Ok(every_status(&counts, &[Status::Pending, Status::Approved, Status::Queued]))
    }
}

/// With a zero for each status that nobody has: a gauge must fall, not vanish.
fn every_status(counts: &[(String, i64)], wanted: &[Status]) -> Vec<(Status, u64)> {
    let count = |status: Status| {
        counts.iter().find(|(name, _)| name == status.as_str()).map_or(0, |(_, count)| count.unsigned_abs())
    };
    wanted.iter().map(|status| (*status, count(*status))).collect()
}
