//! SQL that counts jobs.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, PgPool, Row as _};
use types::ChainName;

use crate::job::{JobCount, JobError, Statistics};
use crate::queue::JobQueue;
use crate::row::{text, unsigned};

pub(crate) async fn statistics(pool: &PgPool, window: Duration) -> Result<Statistics, JobError> {
    let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX / 1000);
    let rows = sqlx::query(
        "SELECT queue, chain, status, count(*) AS count FROM jobs WHERE created_at >= now() - $1 * interval '1 s'
         GROUP BY queue, chain, status ORDER BY queue, chain, status",
    )
    .bind(seconds)
    .fetch_all(pool)
    .await?;
    let counts = rows.iter().map(|row| {
        Ok(JobCount {
            queue: text(row, "queue")?,
            chain: text(row, "chain")?,
            status: text(row, "status")?,
            count: unsigned(row, "count")?,
        })
    });
    let counts = counts.collect::<Result<Vec<_>, sqlx::Error>>()?;
    let row =
        sqlx::query(include_str!("../../../queries/statistics.sql")).bind(seconds).fetch_one(pool).await?;
    let average_ms: Option<i64> = row.try_get("confirmation_ms")?;
    let rate: i64 = row.try_get("retry_rate")?;
    Ok(Statistics {
        counts,
        stuck: unsigned(&row, "stuck")?,
        retry_rate_basis_points: u32::try_from(rate).unwrap_or(u32::MAX),
        average_confirmation: average_ms.map(|ms| Duration::from_millis(ms.unsigned_abs())),
        average_gas: text(&row, "average_gas")?,
    })
}

/// The unfinished jobs of a chain and queue in one status.
pub(crate) struct JobGauge {
    pub chain: ChainName,
    pub queue: JobQueue,
    pub status: String,
    pub count: u64,
    pub oldest_s: u64,
    pub blocked: u64,
}

pub(crate) async fn job_gauges(db: impl PgExecutor<'_>) -> Result<Vec<JobGauge>, sqlx::Error> {
    let names: Vec<&'static str> = JobQueue::all().map(JobQueue::name).collect();
    let rows = sqlx::query(include_str!("../../../queries/job_gauges.sql")).bind(names).fetch_all(db).await?;
    let gauge = |row: &PgRow| {
        Ok(JobGauge {
            chain: text(row, "chain")?,
            queue: text(row, "queue")?,
            status: row.try_get("status")?,
            count: unsigned(row, "count")?,
            oldest_s: unsigned(row, "oldest_s")?,
            blocked: unsigned(row, "blocked")?,
        })
    };
    rows.iter().map(gauge).collect()
}
