//! What execution tells the other services, as rows written with the change they tell of.
//!
//! Owns topics, aggregates and payloads: one place where a message is spelled, and one where it is delivered
//! (`worker::relay`). It never delivers anything itself.

use std::collections::BTreeSet;

use db::outbox::OutboxError;
use prost::Message as _;
use proto::confirmation::v1 as confirmation;
use proto::intent::v1 as intent;
use sqlx::PgConnection;
use telemetry::TraceContext;
use telemetry::propagation;
use types::WithdrawalId;
use uuid::Uuid;

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
    // One statement cannot write to a lane twice, so a batch is cut where an aggregate comes again.
    let mut rest = messages;
    while !rest.is_empty() {
        let mut seen = BTreeSet::new();
        let cut = rest.iter().position(|told| !seen.insert(told.aggregate.as_str())).unwrap_or(rest.len());
        let (now, later) = rest.split_at(cut);
        write_in(tx, now).await?;
        rest = later;
    }
    Ok(())
}

/// The same as `db::outbox::enqueue_in`, for many aggregates in one statement: a batch of a hundred jobs would otherwise
/// spend most of its transaction on round trips.
async fn write_in(tx: &mut PgConnection, messages: &[Told]) -> Result<(), OutboxError> {
    let running = propagation::current();
    let mut sorted: Vec<&Told> = messages.iter().collect();
    // Two transactions that write to the same aggregates wait for each other instead of deadlocking.
    sorted.sort_by(|a, b| a.aggregate.cmp(&b.aggregate));
    let mut traces = Vec::with_capacity(sorted.len());
    for told in &sorted {
        traces
            .push(serde_json::to_value(told.trace.as_ref().unwrap_or(&running)).map_err(OutboxError::Trace)?);
    }
    sqlx::query(include_str!("../queries/tell_many.sql"))
        .bind(sorted.iter().map(|told| told.aggregate.as_str()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|told| told.topic).collect::<Vec<_>>())
        .bind(sorted.iter().map(|told| told.payload.as_slice()).collect::<Vec<_>>())
        .bind(traces)
        .execute(tx)
        .await?;
    ::metrics::counter!("bursar_outbox_enqueued_messages_total").increment(sorted.len() as u64);
    Ok(())
}
