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

use crate::Fault;

pub use self::parked::{Depth, Parked, depth, parked, requeue_all_parked, requeue_parked};
pub use self::relay::{Deliver, Delivery, DeliveryError, Relay, RelayConfig, RelayTick};

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
    pub fn fault(&self) -> Fault {
        match self {
            Self::Database(source) => crate::classify(source),
            Self::Trace(_) => Fault::Permanent,
        }
    }

    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.fault().is_transient()
    }
}

/// A message to another service, to be written with the change that it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Messages with the same aggregate are delivered one after the other, in the order of their transactions. Messages that
    /// may overtake each other, such as those to different receivers, should have different aggregates.
    pub aggregate: String,
    /// The receiver, a dot, and the call: `confirmation.PutWatch`.
    pub topic: String,
    pub payload: Vec<u8>,
    /// The trace that the message belongs to. Without one it belongs to the trace that is running when it is written.
    pub trace: Option<TraceContext>,
}

impl OutboxMessage {
    /// A message of the trace that is running when it is written.
    pub fn new(aggregate: impl Into<String>, topic: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self { aggregate: aggregate.into(), topic: topic.into(), payload: payload.into(), trace: None }
    }

    /// The same message as part of another trace: one transaction may serve the requests of many callers.
    #[must_use]
    pub fn in_trace(self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self }
    }
}

/// Writes a message as part of the transaction and wakes the relay when it commits. Returns the message's id, by which the
/// receiver recognises a repetition.
///
/// The aggregate's lane stays locked until the transaction ends, so that the messages of two transactions are delivered in
/// the order of their commits. Call it late in the transaction, because other writers to the aggregate wait meanwhile.
pub async fn enqueue_in(tx: &mut PgConnection, message: &OutboxMessage) -> Result<Uuid, OutboxError> {
    let message_id = Uuid::now_v7();
    write_in(tx, &[(message_id, message)]).await?;
    Ok(message_id)
}

/// The same for many messages, in their order and in as few statements as that allows: a batch would otherwise spend most of
/// its transaction on round trips.
pub async fn enqueue_many_in(tx: &mut PgConnection, messages: &[OutboxMessage]) -> Result<(), OutboxError> {
    // One statement cannot write to a lane twice, so the batch is cut where an aggregate is repeated.
    let mut rest = messages;
    while !rest.is_empty() {
        let mut seen = BTreeSet::new();
        let repeated = rest.iter().position(|message| !seen.insert(message.aggregate.as_str()));
        let (now, later) = rest.split_at(repeated.unwrap_or(rest.len()));
        let mut batch: Vec<(Uuid, &OutboxMessage)> =
            now.iter().map(|message| (Uuid::now_v7(), message)).collect();
        // Two transactions that write to the same aggregates wait for each other instead of deadlocking.
        batch.sort_by(|(_, a), (_, b)| a.aggregate.cmp(&b.aggregate));
        write_in(tx, &batch).await?;
        rest = later;
    }
    Ok(())
}

/// Each aggregate occurs once, and they are sorted.
async fn write_in(tx: &mut PgConnection, batch: &[(Uuid, &OutboxMessage)]) -> Result<(), OutboxError> {
    let running = propagation::current();
    let mut traces = Vec::with_capacity(batch.len());
    for (_, message) in batch {
        let trace = message.trace.as_ref().unwrap_or(&running);
        traces.push(trace.serialize(serde_json::value::Serializer).map_err(OutboxError::Trace)?);
    }
    let messages = || batch.iter().map(|(_, message)| message);
    sqlx::query(include_str!("../../queries/outbox_enqueue.sql"))
        .bind(messages().map(|message| message.aggregate.as_str()).collect::<Vec<_>>())
        .bind(batch.iter().map(|(message_id, _)| *message_id).collect::<Vec<_>>())
        .bind(messages().map(|message| message.topic.as_str()).collect::<Vec<_>>())
        .bind(messages().map(|message| message.payload.as_slice()).collect::<Vec<_>>())
        .bind(traces)
        .execute(tx)
        .await?;
    for (message_id, OutboxMessage { aggregate, topic, .. }) in batch {
        tracing::debug!(%message_id, aggregate, topic, "message written");
    }
    metrics::counter!("bursar_outbox_enqueued_messages_total").increment(batch.len() as u64);
    Ok(())
}
