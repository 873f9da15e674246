//! What execution tells the other services, as rows written with the change they tell of.
//!
//! Owns topics, aggregates and payloads: one place where a message is spelled, and one where it is delivered
//! (`worker::relay`). It never delivers anything itself.
//!
//! Intent orders blocked and unblocked by the time they carry. That is the database's, taken in the transaction that holds the
//! job, and not the clock of whichever replica tells it: two replicas whose clocks differ would otherwise leave a withdrawal
//! blocked that goes on.

use chrono::{DateTime, Utc};
use db::outbox::{self, OutboxError, OutboxMessage};
use prost::Message as _;
use proto::confirmation::v1 as confirmation;
use proto::intent::v1 as intent;
use sqlx::PgConnection;
use telemetry::TraceContext;
use types::WithdrawalId;

/// `confirmation.PutWatch`, in the order of the job.
pub const PUT_WATCH: &str = "confirmation.PutWatch";
/// `confirmation.PutChain`, in the order of the chain.
pub const PUT_CHAIN: &str = "confirmation.PutChain";
/// `intent.PutCatalogueEntry`, in the order of chain and asset.
pub const PUT_CATALOGUE_ENTRY: &str = "intent.PutCatalogueEntry";
/// `intent.RecordProgress`, in the order of the withdrawal.
pub const RECORD_PROGRESS: &str = "intent.RecordProgress";

/// A message ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    aggregate: String,
    topic: &'static str,
    content: Content,
    /// The trace it belongs to; the running one where none was named.
    trace: Option<TraceContext>,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Whole(Vec<u8>),
    /// Lacks its time.
    Progress(intent::RecordProgressRequest),
}

impl Content {
    fn bytes(&self, now: DateTime<Utc>) -> Vec<u8> {
        match self {
            Self::Whole(bytes) => bytes.clone(),
            Self::Progress(request) => {
                intent::RecordProgressRequest { at: Some(proto::time::timestamp(now)), ..request.clone() }
                    .encode_to_vec()
            }
        }
    }
}

impl Told {
    /// Tells it as part of this trace rather than the running one: a batch serves many.
    #[must_use]
    pub fn traced(self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self }
    }

    pub fn watch(request: &confirmation::PutWatchRequest) -> Self {
        Self {
            aggregate: request.job_id.clone(),
            topic: PUT_WATCH,
            content: Content::Whole(request.encode_to_vec()),
            trace: None,
        }
    }

    pub fn chain(settings: confirmation::ChainSettings) -> Self {
        let aggregate = settings.name.clone();
        let request = confirmation::PutChainRequest { chain: Some(settings) };
        Self { aggregate, topic: PUT_CHAIN, content: Content::Whole(request.encode_to_vec()), trace: None }
    }

    pub fn catalogue_entry(entry: intent::CatalogueEntry) -> Self {
        let aggregate = format!("{}/{}", entry.chain, entry.asset);
        let request = intent::PutCatalogueEntryRequest { entry: Some(entry) };
        let content = Content::Whole(request.encode_to_vec());
        Self { aggregate, topic: PUT_CATALOGUE_ENTRY, content, trace: None }
    }

    pub fn progress(withdrawal: WithdrawalId, progress: intent::record_progress_request::Progress) -> Self {
        let withdrawal_id = withdrawal.to_string();
        let request = intent::RecordProgressRequest {
            withdrawal_id: withdrawal_id.clone(),
            at: None,
            progress: Some(progress),
        };
        Self {
            aggregate: withdrawal_id,
            topic: RECORD_PROGRESS,
            content: Content::Progress(request),
            trace: None,
        }
    }
}

/// Writes messages as part of the transaction, in their order. Call it with the rows locked that they tell of: their time is
/// taken here, and a transaction that waits for those rows must tell a later one.
pub async fn tell_in(tx: &mut PgConnection, messages: &[Told]) -> Result<(), OutboxError> {
    let timed = messages.iter().any(|told| matches!(told.content, Content::Progress(_)));
    let now = if timed {
        // Not the time the transaction began, which may have been before that of the one it waited for.
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&mut *tx).await?
    } else {
        DateTime::UNIX_EPOCH
    };
    let messages: Vec<OutboxMessage> = messages
        .iter()
        .map(|told| OutboxMessage {
            trace: told.trace.clone(),
            ..OutboxMessage::new(told.aggregate.as_str(), told.topic, told.content.bytes(now))
        })
        .collect();
    outbox::enqueue_many_in(tx, &messages).await
}

#[cfg(test)]
mod tests {
    use intent::record_progress_request::Progress;

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
        let blocked = Progress::Blocked(intent::Blocked { reason: "no liquidity".to_owned() });
        tell_in(&mut tx, &[Told::progress(WithdrawalId::new(), blocked)]).await.unwrap();
        tx.commit().await.unwrap();
        let payload: Vec<u8> =
            sqlx::query_scalar("SELECT payload FROM outbox").fetch_one(&pool).await.unwrap();
        let told = intent::RecordProgressRequest::decode(payload.as_slice()).unwrap();
        let at = proto::time::datetime(&told.at.unwrap()).unwrap();
        assert_eq!(at.to_rfc3339(), "2001-02-03T04:05:06.789+00:00");
    }
}
