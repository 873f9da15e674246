//! The messages of execution to other services, written as rows with the change they report.
//!
//! Owns topics, aggregates and payloads; `worker::delivery` delivers them.
//!
//! Intent orders blocked and unblocked by the time they carry. That time is the database's, taken in the transaction that holds
//! the job, and not the clock of a replica: two replicas whose clocks differ would otherwise leave a withdrawal blocked that
//! goes on.

mod repo;

use chrono::{DateTime, Utc};
use db::outbox::{self, OutboxError, OutboxMessage};
use prost::Message as _;
use proto::confirmation::v1 as confirmation_pb;
use proto::intent::v1 as intent_pb;
use sqlx::PgConnection;
use telemetry::TraceContext;
use types::WithdrawalId;

/// In the order of the job.
pub const PUT_WATCH: &str = "confirmation.PutWatch";
/// In the order of the chain.
pub const PUT_CHAIN: &str = "confirmation.PutChain";
/// In the order of chain and asset.
pub const PUT_CATALOGUE_ENTRY: &str = "intent.PutCatalogueEntry";
/// In the order of the withdrawal.
pub const RECORD_PROGRESS: &str = "intent.RecordProgress";

/// A message about a job, a chain or an asset.
#[derive(Debug, Clone, PartialEq)]
pub enum JobMessage {
    Complete(OutboxMessage),
    /// Carries the time at which it is written.
    Progress {
        request: intent_pb::RecordProgressRequest,
        trace: Option<TraceContext>,
    },
}

impl JobMessage {
    /// Makes it part of this trace rather than the running one: a batch serves many.
    #[must_use]
    pub fn in_trace(self, trace: TraceContext) -> Self {
        match self {
            Self::Complete(message) => Self::Complete(message.in_trace(trace)),
            Self::Progress { request, .. } => Self::Progress { request, trace: Some(trace) },
        }
    }

    pub fn watch(request: &confirmation_pb::PutWatchRequest) -> Self {
        Self::Complete(OutboxMessage::new(request.job_id.clone(), PUT_WATCH, request.encode_to_vec()))
    }

    pub fn chain(settings: confirmation_pb::ChainSettings) -> Self {
        let aggregate = settings.name.clone();
        let request = confirmation_pb::PutChainRequest { chain: Some(settings) };
        Self::Complete(OutboxMessage::new(aggregate, PUT_CHAIN, request.encode_to_vec()))
    }

    pub fn catalogue_entry(entry: intent_pb::CatalogueEntry) -> Self {
        let aggregate = format!("{}/{}", entry.chain, entry.asset);
        let request = intent_pb::PutCatalogueEntryRequest { entry: Some(entry) };
        Self::Complete(OutboxMessage::new(aggregate, PUT_CATALOGUE_ENTRY, request.encode_to_vec()))
    }

    pub fn progress(
        withdrawal: WithdrawalId,
        progress: intent_pb::record_progress_request::Progress,
    ) -> Self {
        let request = intent_pb::RecordProgressRequest {
            withdrawal_id: withdrawal.to_string(),
            at: None,
            progress: Some(progress),
        };
        Self::Progress { request, trace: None }
    }

    fn at(&self, now: DateTime<Utc>) -> OutboxMessage {
        match self {
            Self::Complete(message) => message.clone(),
            Self::Progress { request, trace } => {
                let at = Some(proto::time::timestamp(now));
                let timed = intent_pb::RecordProgressRequest { at, ..request.clone() };
                let aggregate = request.withdrawal_id.clone();
                let message = OutboxMessage::new(aggregate, RECORD_PROGRESS, timed.encode_to_vec());
                OutboxMessage { trace: trace.clone(), ..message }
            }
        }
    }
}

/// Writes messages as part of the transaction, in their order. The rows that they report must be locked: the time is taken
/// here, and a transaction that waits for those rows must report a later one.
pub async fn enqueue_in(tx: &mut PgConnection, messages: &[JobMessage]) -> Result<(), OutboxError> {
    let timed = messages.iter().any(|message| matches!(message, JobMessage::Progress { .. }));
    let now = if timed { repo::now_in(tx).await? } else { DateTime::UNIX_EPOCH };
    let messages: Vec<OutboxMessage> = messages.iter().map(|message| message.at(now)).collect();
    outbox::enqueue_many_in(tx, &messages).await
}

#[cfg(test)]
mod tests {
    use intent_pb::record_progress_request::Progress;

    use super::*;

    #[tokio::test]
    async fn progress_carries_the_time_of_the_database() {
        let database = testkit::postgres().await;
        let pool = database.pool().await;
        db::migrate::run(&pool, &crate::MIGRATOR).await.unwrap();
        // A database whose clock is not this process's.
        sqlx::raw_sql(
            "CREATE SCHEMA wrong; CREATE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql
             AS $$ SELECT timestamptz '2001-02-03 04:05:06.789Z' $$",
        )
        .execute(&pool)
        .await
        .unwrap();
        let mut tx = db::begin(&pool).await.unwrap();
        sqlx::raw_sql("SET LOCAL search_path = wrong, public, pg_catalog").execute(&mut *tx).await.unwrap();
        let blocked = Progress::Blocked(intent_pb::Blocked { reason: "no liquidity".to_owned() });
        enqueue_in(&mut tx, &[JobMessage::progress(WithdrawalId::new(), blocked)]).await.unwrap();
        tx.commit().await.unwrap();
        let payload: Vec<u8> =
            sqlx::query_scalar("SELECT payload FROM outbox").fetch_one(&pool).await.unwrap();
        let sent = intent_pb::RecordProgressRequest::decode(payload.as_slice()).unwrap();
        let at = proto::time::datetime(&sent.at.unwrap()).unwrap();
        assert_eq!(at.to_rfc3339(), "2001-02-03T04:05:06.789+00:00");
    }
}
