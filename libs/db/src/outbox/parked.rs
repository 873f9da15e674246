//! What an operator sees of the outbox: how full it is, what is parked and why, and how to set it going again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Row as _};
use uuid::Uuid;

use super::OutboxError;

/// A lane that was given up, by the message at its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub message_id: Uuid,
    pub aggregate: String,
    pub topic: String,
    pub created_at: DateTime<Utc>,
    pub parked_at: DateTime<Utc>,
    pub tries: u32,
    pub reason: String,
    /// Messages of the same aggregate that it holds back.
    pub waiting_behind: u64,
}

/// The lanes that were given up, the longest parked first.
pub async fn parked(pool: &PgPool, limit: u32) -> Result<Vec<Parked>, OutboxError> {
    let rows = sqlx::query(include_str!("../../queries/outbox_parked.sql"))
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(Parked {
            message_id: row.try_get("message_id")?,
            aggregate: row.try_get("aggregate")?,
            topic: row.try_get("topic")?,
            created_at: row.try_get("created_at")?,
            parked_at: row.try_get("parked_at")?,
            tries: row.try_get::<i32, _>("tries")?.unsigned_abs(),
            reason: row.try_get("last_error")?,
            waiting_behind: row.try_get::<i64, _>("waiting_behind")?.unsigned_abs(),
        })
    };
    rows.iter().map(read).collect()
}

/// Sets a parked message, and those behind it, going again with its tries counted anew. False if it is not parked.
pub async fn requeue_parked(pool: &PgPool, message_id: Uuid) -> Result<bool, OutboxError> {
    let freed = sqlx::query(include_str!("../../queries/outbox_requeue.sql"))
        .bind(message_id)
        .fetch_optional(pool)
        .await?;
    if freed.is_some() {
        tracing::info!(%message_id, "parked message requeued");
    }
    Ok(freed.is_some())
}

/// Sets everything that is parked going again, as after mending what receivers refused it for. Says how many lanes that were.
pub async fn requeue_all_parked(pool: &PgPool) -> Result<u64, OutboxError> {
    let lanes: i64 =
        sqlx::query_scalar(include_str!("../../queries/outbox_requeue_all.sql")).fetch_one(pool).await?;
    tracing::info!(lanes, "all parked messages requeued");
    Ok(lanes.unsigned_abs())
}

/// The outbox at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    pub messages: u64,
    pub parked_lanes: u64,
    /// The age of the oldest message.
    pub oldest: Option<Duration>,
}

impl Depth {
    /// Sets the gauges.
    pub fn record(&self) {
        metrics::gauge!("bursar_outbox_depth_messages").set(self.messages as f64);
        metrics::gauge!("bursar_outbox_parked_lanes").set(self.parked_lanes as f64);
        metrics::gauge!("bursar_outbox_oldest_age_seconds")
            .set(self.oldest.unwrap_or_default().as_secs_f64());
    }
}

/// Counts the outbox. Reads all of it; meant for every few seconds.
pub async fn depth(pool: &PgPool) -> Result<Depth, OutboxError> {
    let row = sqlx::query(
        "SELECT count(*) AS messages,
                (extract(epoch FROM clock_timestamp() - min(created_at)) * 1000)::bigint AS oldest_ms,
                (SELECT count(*) FROM outbox_lane WHERE parked_at IS NOT NULL) AS parked
         FROM outbox",
    )
    .fetch_one(pool)
    .await?;
    let oldest: Option<i64> = row.try_get("oldest_ms")?;
    Ok(Depth {
        messages: row.try_get::<i64, _>("messages")?.unsigned_abs(),
        parked_lanes: row.try_get::<i64, _>("parked")?.unsigned_abs(),
        oldest: oldest.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
    })
}
