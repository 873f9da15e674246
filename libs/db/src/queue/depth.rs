//! How full a queue is, for gauges and operators; and when it next has something to do.

use std::time::Duration;

use sqlx::{PgPool, Row as _};

use super::{Queue, QueueError, claim};

/// A queue at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    pub ready_due: u64,
    pub ready_future: u64,
    pub leased: u64,
    /// Leases that ran out and were not taken back yet.
    pub leases_expired: u64,
    /// For how long the longest waiting due job has been due.
    pub oldest_due: Option<Duration>,
}

impl Depth {
    /// Sets the gauges of this queue.
    pub fn record(&self, queue: &Queue) {
        let gauge = |name: &'static str, value: f64| {
            metrics::gauge!(name, "queue" => queue.name().to_owned()).set(value)
        };
        gauge("bursar_queue_due_jobs", self.ready_due as f64);
        gauge("bursar_queue_future_jobs", self.ready_future as f64);
        gauge("bursar_queue_leased_jobs", self.leased as f64);
        gauge("bursar_queue_oldest_due_seconds", self.oldest_due.unwrap_or_default().as_secs_f64());
    }
}

impl Queue {
    /// Counts the queue. Reads all of it, in an index; meant for every few seconds.
    pub async fn depth(&self, pool: &PgPool) -> Result<Depth, QueueError> {
        let row = sqlx::query(include_str!("../../queries/queue_depth.sql"))
            .bind(self.name())
            .fetch_one(pool)
            .await?;
        let count = |column: &str| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
        let oldest: Option<i64> = row.try_get("oldest_due_ms")?;
        Ok(Depth {
            ready_due: count("due")?,
            ready_future: count("future")?,
            leased: count("live")?,
            leases_expired: count("expired")?,
            oldest_due: oldest.map(|ms| Duration::from_millis(ms.unsigned_abs())),
        })
    }

    /// How long until a job becomes due or a lease expires; `None` if there is neither. A worker sleeps no longer than this,
    /// and is woken for new jobs.
    pub async fn next_due(&self, pool: &PgPool) -> Result<Option<Duration>, QueueError> {
        let wait: Option<i64> = sqlx::query_scalar(include_str!("../../queries/queue_next_due.sql"))
            .bind(self.name())
            .bind(claim::ranks())
            .fetch_one(pool)
            .await?;
        // Rounded up, because a worker that wakes too early finds nothing and has to look again.
        Ok(wait.map(|ms| Duration::from_millis(u64::try_from(ms.saturating_add(1)).unwrap_or(0))))
    }
}
