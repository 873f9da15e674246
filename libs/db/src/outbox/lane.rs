//! The relay's side of the tables: taking lanes, and writing down what became of them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize as _;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row as _};
use telemetry::propagation::TraceContext;
use uuid::Uuid;

use super::{Delivery, OutboxError, TOPIC};

/// An error's text as stored: enough to understand, too little to hurt.
const LONGEST_ERROR: usize = 1_000;

/// A lane as taken: the messages at its head, in order.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) aggregate: String,
    pub(super) token: i64,
    /// The newest message it had when taken.
    pub(super) last_id: i64,
    pub(super) tries: u32,
    pub(super) messages: Vec<Delivery>,
}

/// What became of a lane.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) aggregate: String,
    pub(super) token: i64,
    /// The messages that were acknowledged.
    pub(super) acked: Vec<Uuid>,
    /// Nothing up to and including this one is left: the last acknowledged message, or 0.
    pub(super) done_to: i64,
    pub(super) tries: u32,
    pub(super) failure: Option<Failure>,
}

#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// How long until the next try; `None` parks the lane.
    pub(super) retry_in: Option<Duration>,
}

/// Which lanes to claim, and how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneClaim {
    pub(super) receiver: &'static str,
    pub(super) start: DateTime<Utc>,
    pub(super) lanes: u32,
    pub(super) messages_per_lane: u32,
    pub(super) lease: Duration,
}

/// The lanes that are now leased to the caller, and where in the order of due times they ended.
pub(super) async fn claim(
    pool: &PgPool,
    request: LaneClaim,
) -> Result<(Vec<Lane>, Option<DateTime<Utc>>), OutboxError> {
    let rows = sqlx::query(include_str!("../../queries/outbox_claim.sql"))
        .bind(request.start)
        .bind(i64::from(request.lanes))
        .bind(crate::millis(request.lease))
        .bind(i64::from(request.messages_per_lane))
        .bind(request.receiver)
        .fetch_all(pool)
        .await?;
    let reached = rows.first().map(|row| row.try_get("reached")).transpose()?.flatten();
    let mut lanes: Vec<Lane> = Vec::new();
    for row in &rows {
        let aggregate: String = row.try_get("aggregate")?;
        let tries = row.try_get::<i32, _>("tries")?.unsigned_abs();
        if lanes.last().is_none_or(|lane| lane.aggregate != aggregate) {
            let (token, last_id) = (row.try_get("lease_token")?, row.try_get("last_id")?);
            lanes.push(Lane { aggregate: aggregate.clone(), token, last_id, tries, messages: Vec::new() });
        }
        if let (Some(lane), Some(message)) = (lanes.last_mut(), read(row, aggregate, tries)?) {
            lane.messages.push(message);
        }
    }
    Ok((lanes, reached))
}

fn read(row: &PgRow, aggregate: String, tries: u32) -> Result<Option<Delivery>, sqlx::Error> {
    let Some(id) = row.try_get::<Option<i64>, _>("id")? else { return Ok(None) };
    let trace: serde_json::Value = row.try_get("trace")?;
    Ok(Some(Delivery {
        id,
        message_id: row.try_get("message_id")?,
        aggregate,
        topic: row.try_get("topic")?,
        payload: row.try_get("payload")?,
        // A trace that cannot be read is the same as none: it must not hold the message back.
        trace: TraceContext::deserialize(trace).unwrap_or_default(),
        created_at: row.try_get("created_at")?,
        tries,
    }))
}

/// Writes down what became of lanes. Those taken over by another relay meanwhile are left alone; returns for each outcome
/// whether it was still ours to write.
pub(super) async fn settle(pool: &PgPool, outcomes: &[Outcome]) -> Result<Vec<bool>, OutboxError> {
    let (names, tokens): (Vec<&str>, Vec<i64>) =
        outcomes.iter().map(|outcome| (outcome.aggregate.as_str(), outcome.token)).unzip();
    let mut tx = crate::pool::begin(pool).await?;
    // Locked first, and judged by what the locked rows say: a single statement that waits for a writer would still judge by
    // the lane as it was before, and remove it from under the writer's message.
    let held: Vec<(String, i64)> = sqlx::query_as(include_str!("../../queries/outbox_hold.sql"))
        .bind(names)
        .bind(tokens)
        .fetch_all(&mut *tx)
        .await?;
    let last_ids: BTreeMap<&str, i64> =
        held.iter().map(|(name, last_id)| (name.as_str(), *last_id)).collect();
    let mine = outcomes.iter().filter(|outcome| last_ids.contains_key(outcome.aggregate.as_str()));
    let is_emptied = |outcome: &&Outcome| {
        outcome.failure.is_none()
            && last_ids.get(outcome.aggregate.as_str()).is_some_and(|last| *last <= outcome.done_to)
    };
    let acked: Vec<Uuid> = mine.clone().flat_map(|outcome| outcome.acked.iter().copied()).collect();
    let (emptied, kept): (Vec<&Outcome>, Vec<&Outcome>) = mine.partition(is_emptied);
    let retry_in = |outcome: &Outcome| outcome.failure.as_ref().map(|failure| failure.retry_in);
    sqlx::query(include_str!("../../queries/outbox_settle.sql"))
        .bind(acked)
        .bind(emptied.iter().map(|lane| lane.aggregate.as_str()).collect::<Vec<_>>())
        .bind(kept.iter().map(|lane| lane.aggregate.as_str()).collect::<Vec<_>>())
        .bind(kept.iter().map(|lane| i32::try_from(lane.tries).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(kept.iter().map(|lane| retry_in(lane).flatten().map_or(0, crate::millis)).collect::<Vec<_>>())
        .bind(kept.iter().map(|lane| retry_in(lane) == Some(None)).collect::<Vec<_>>())
        .bind(kept.iter().map(|lane| stored_reason(lane)).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(outcomes.iter().map(|outcome| last_ids.contains_key(outcome.aggregate.as_str())).collect())
}

fn stored_reason(outcome: &Outcome) -> Option<String> {
    let reason = &outcome.failure.as_ref()?.reason;
    // PostgreSQL's text knows no zero byte, and a receiver's words may hold anything.
    Some(reason.chars().filter(|symbol| *symbol != '\0').take(LONGEST_ERROR).collect())
}

/// Gives lanes that no receiver's loops would take to those of their first message's receiver, or else of the first.
pub(super) async fn adopt(pool: &PgPool, receivers: &[&str]) -> Result<(), OutboxError> {
    let adopted = sqlx::query(include_str!("../../queries/outbox_adopt.sql"))
        .bind(receivers)
        .bind(receivers.first())
        .execute(pool)
        .await?;
    if adopted.rows_affected() > 0 {
        tracing::info!(lanes = adopted.rows_affected(), "lanes without a known receiver adopted");
        crate::wake_in(&mut *pool.acquire().await?, TOPIC).await?;
    }
    Ok(())
}

/// How long until a lane of this receiver becomes due or its lease runs out.
pub(super) async fn next_due(pool: &PgPool, receiver: &str) -> Result<Option<Duration>, OutboxError> {
    let wait: Option<i64> = sqlx::query_scalar(include_str!("../../queries/outbox_next_due.sql"))
        .bind(receiver)
        .fetch_one(pool)
        .await?;
    Ok(wait.map(|ms| Duration::from_millis(u64::try_from(ms.saturating_add(1)).unwrap_or(0))))
}
