//! What execution tells the other services, as rows written with the change they tell of.
//!
//! Owns topics, aggregates and payloads: one place where a message is spelled, and one where it is delivered
//! (`worker::relay`). It never delivers anything itself.

use db::outbox::{self, Message, OutboxError, Traced};
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    aggregate: String,
    topic: &'static str,
    payload: Vec<u8>,
    /// The trace it belongs to; the running one where none was named.
    trace: Option<TraceContext>,
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
            payload: request.encode_to_vec(),
            trace: None,
        }
    }

    pub fn chain(settings: confirmation::ChainSettings) -> Self {
        let aggregate = settings.name.clone();
        let request = confirmation::PutChainRequest { chain: Some(settings) };
        Self { aggregate, topic: PUT_CHAIN, payload: request.encode_to_vec(), trace: None }
    }

    pub fn catalogue_entry(entry: intent::CatalogueEntry) -> Self {
        let aggregate = format!("{}/{}", entry.chain, entry.asset);
        let request = intent::PutCatalogueEntryRequest { entry: Some(entry) };
        Self { aggregate, topic: PUT_CATALOGUE_ENTRY, payload: request.encode_to_vec(), trace: None }
    }

    pub fn progress(withdrawal: WithdrawalId, progress: intent::record_progress_request::Progress) -> Self {
        let withdrawal_id = withdrawal.to_string();
        let request = intent::RecordProgressRequest {
            withdrawal_id: withdrawal_id.clone(),
            at: Some(proto::time::timestamp(chrono::Utc::now())),
            progress: Some(progress),
        };
        Self {
            aggregate: withdrawal_id,
            topic: RECORD_PROGRESS,
            payload: request.encode_to_vec(),
            trace: None,
        }
    }
}

/// Writes messages as part of the transaction, in their order.
pub async fn tell_in(tx: &mut PgConnection, messages: &[Told]) -> Result<(), OutboxError> {
    let traced: Vec<Traced<'_>> = messages
        .iter()
        .map(|told| Traced {
            message: Message { aggregate: &told.aggregate, topic: told.topic, payload: &told.payload },
            trace: told.trace.as_ref(),
        })
        .collect();
    outbox::enqueue_many_in(tx, &traced).await
}
