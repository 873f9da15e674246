//! Messages about a change, written with the change: one transaction, delivered after it, at least once and in order.
//!
//! Owns `outbox` and `outbox_lane` (`sql/outbox.sql`) and the relay that empties them. It never knows receivers: whoever
//! implements [`Deliver`] does.
//!
//! Invariants:
//! - A message exists if and only if the change it tells of was committed.
//! - Within one aggregate no message is delivered before the one ahead of it was acknowledged; a parked message holds back
//!   those behind it, and shows.
//! - A message goes only by being acknowledged. A crash between delivery and acknowledgement delivers it again.

mod lane;
mod parked;
mod relay;

use serde::Serialize as _;
use sqlx::{PgConnection, Row as _};
use telemetry::propagation::{self, TraceContext};
use uuid::Uuid;

pub use self::parked::{Depth, Parked, depth, parked, requeue_parked};
pub use self::relay::{Deliver, Delivery, DeliveryError, Relay, RelayConfig, Tick};

/// The tables, for tests; a service copies `sql/outbox.sql` into a migration of its own.
pub const OUTBOX_SCHEMA: &str = include_str!("../../sql/outbox.sql");

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
    /// Where it goes and what it is; read by whoever delivers.
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// Writes a message as part of the transaction, with the running trace, and wakes the relay when it commits. Returns the
/// message's id, by which the receiver recognises it.
///
/// Holds the aggregate's lane until the transaction ends, so that the messages of two transactions come in the order of
/// their commits. Call it late in the transaction.
pub async fn enqueue_in(tx: &mut PgConnection, message: &Message<'_>) -> Result<Uuid, OutboxError> {
    let message_id = Uuid::now_v7();
    let trace = trace_json(&propagation::current()).map_err(OutboxError::Trace)?;
    let row = sqlx::query(include_str!("../../queries/outbox_enqueue.sql"))
        .bind(message.aggregate)
        .bind(message_id)
        .bind(message.topic)
        .bind(message.payload)
        .bind(trace)
        .fetch_one(tx)
        .await?;
    let id: i64 = row.try_get("last_id")?;
    tracing::debug!(id, %message_id, aggregate = message.aggregate, topic = message.topic, "message written");
    metrics::counter!("bursar_outbox_enqueued_messages_total").increment(1);
    Ok(message_id)
}

fn trace_json(trace: &TraceContext) -> Result<serde_json::Value, serde_json::Error> {
    trace.serialize(serde_json::value::Serializer)
}
