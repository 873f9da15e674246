//! Messages about a change, written with the change: one transaction, delivered after it, at least once and in order.
//!
//! Owns `outbox` and `outbox_lane` (`sql/outbox.sql`) and the relay that empties them. It never knows receivers: whoever
//! implements [`Deliver`] does.
//!
//! Invariants:
//! - A message exists if and only if the change it tells of was committed.
//! - Within one aggregate no message is delivered before the one ahead of it was acknowledged; a parked message holds back
//!   those behind it, and shows.
//! - A receiver that hangs holds up its own messages and nobody else's.
//! - A message goes only by being acknowledged. A crash between delivery and acknowledgement delivers it again.

mod lane;
mod parked;
mod relay;

use std::collections::BTreeSet;

use serde::Serialize as _;
use sqlx::PgConnection;
use telemetry::propagation::{self, TraceContext};
use uuid::Uuid;

pub use self::parked::{Depth, Parked, depth, parked, requeue_all_parked, requeue_parked};
pub use self::relay::{Deliver, Delivery, DeliveryError, Relay, RelayConfig, Tick};

/// The tables, for tests; a service copies `sql/outbox.sql` and `sql/outbox_receivers.sql` into migrations of its own.
pub const OUTBOX_SCHEMA: &str =
    concat!(include_str!("../../sql/outbox.sql"), "\n", include_str!("../../sql/outbox_receivers.sql"));

/// What a relay sleeps on.
pub const TOPIC: &str = "outbox";

#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    #[error("the outbox's database failed")]
    Database(#[from] sqlx::Error),
    #[error("the trace context cannot be written")]
    Trace(#[source] serde_json::Error),
}

impl OutboxError {
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(source) => crate::classify(source).is_transient(),
            Self::Trace(_) => false,
        }
    }
}

/// What is to be told.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Messages with the same aggregate are delivered one after the other. Ones that may overtake each other, such as those
    /// to different receivers, are best given different ones.
    pub aggregate: &'a str,
    /// Where it goes, up to the first dot, and what it is; read by whoever delivers.
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// A message that belongs to a trace of its own: one transaction may serve many.
#[derive(Debug, Clone, Copy)]
pub struct Traced<'a> {
    pub message: Message<'a>,
    /// The running one where none is named.
    pub trace: Option<&'a TraceContext>,
}

/// Writes a message as part of the transaction, with the running trace, and wakes the relay when it commits. Returns the
/// message's id, by which the receiver recognises it.
///
/// Holds the aggregate's lane until the transaction ends, so that the messages of two transactions come in the order of
/// their commits. Call it late in the transaction.
pub async fn enqueue_in(tx: &mut PgConnection, message: &Message<'_>) -> Result<Uuid, OutboxError> {
    let message_id = Uuid::now_v7();
    write_in(tx, &[(message_id, &Traced { message: *message, trace: None })]).await?;
    Ok(message_id)
}

/// The same for many messages, in their order and in as few statements as that allows: a batch would otherwise spend most of
/// its transaction on round trips.
pub async fn enqueue_many_in(tx: &mut PgConnection, messages: &[Traced<'_>]) -> Result<(), OutboxError> {
    // One statement cannot write to a lane twice, so a batch is cut where an aggregate comes again.
    let mut rest = messages;
    while !rest.is_empty() {
        let mut seen = BTreeSet::new();
        let again = rest.iter().position(|traced| !seen.insert(traced.message.aggregate));
        let (now, later) = rest.split_at(again.unwrap_or(rest.len()));
        let mut batch: Vec<(Uuid, &Traced<'_>)> = now.iter().map(|traced| (Uuid::now_v7(), traced)).collect();
        // Two transactions that write to the same aggregates wait for each other instead of deadlocking.
        batch.sort_by_key(|(_, traced)| traced.message.aggregate);
        write_in(tx, &batch).await?;
        rest = later;
    }
    Ok(())
}

/// Each aggregate once, sorted.
async fn write_in(tx: &mut PgConnection, batch: &[(Uuid, &Traced<'_>)]) -> Result<(), OutboxError> {
    let running = propagation::current();
    let mut traces = Vec::with_capacity(batch.len());
    for (_, traced) in batch {
        traces.push(trace_json(traced.trace.unwrap_or(&running)).map_err(OutboxError::Trace)?);
    }
    let messages = || batch.iter().map(|(_, traced)| traced.message);
    sqlx::query(include_str!("../../queries/outbox_enqueue.sql"))
        .bind(messages().map(|message| message.aggregate).collect::<Vec<_>>())
        .bind(batch.iter().map(|(message_id, _)| *message_id).collect::<Vec<_>>())
        .bind(messages().map(|message| message.topic).collect::<Vec<_>>())
        .bind(messages().map(|message| message.payload).collect::<Vec<_>>())
        .bind(traces)
        .execute(tx)
        .await?;
    for (message_id, traced) in batch {
        let Message { aggregate, topic, .. } = traced.message;
        tracing::debug!(%message_id, aggregate, topic, "message written");
    }
    metrics::counter!("bursar_outbox_enqueued_messages_total").increment(batch.len() as u64);
    Ok(())
}

fn trace_json(trace: &TraceContext) -> Result<serde_json::Value, serde_json::Error> {
    trace.serialize(serde_json::value::Serializer)
}
