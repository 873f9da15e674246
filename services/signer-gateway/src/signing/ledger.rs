//! The ledger: one task that takes the requests that wait, decides them in order, signs what was granted and writes guard,
//! records and log of all of them in one statement. The statement commits only if nobody else decided anything meanwhile. Under
//! load many requests share one commit.
//!
//! A batch is nothing but its requests one after another (see [`BatchDecision`]), and a single request is a batch of one.
//!
//! Invariants: nothing is signed that was not granted; no result leaves before its rows are committed; when the commit's
//! outcome is unknown nobody gets bytes, and a retry with the same key returns what happened.

use std::time::Duration;

use sqlx::{Connection, PgConnection, PgPool};
use telemetry::crash_point;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::SigningError;
use super::app::SignedTransaction;
use super::decision::BatchDecision;
use super::facts::PreparedRequest;
use super::repo::{self, LogAppend};
use crate::audit;

/// Requests that may wait. Beyond this, callers are refused and retry later.
const MAX_WAITING: usize = 4_096;
/// One is in use; the other replaces it when its session was lost.
const CONNECTIONS: u32 = 2;
/// Requests that share a commit at most. This bounds how long the head is locked.
const MAX_BATCH: usize = 256;

pub(super) type SigningResult = Result<SignedTransaction, SigningError>;

struct WaitingRequest {
    prepared: Box<PreparedRequest>,
    reply: oneshot::Sender<SigningResult>,
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    queue: mpsc::Sender<WaitingRequest>,
}

#[derive(Debug)]
pub(crate) struct LedgerWorker {
    pool: PgPool,
    queue: mpsc::Receiver<WaitingRequest>,
    /// After this long a batch counts as lost, because a connection that went silent must not block all others for ever.
    timeout: Duration,
}

impl Ledger {
    pub(crate) fn new(pool: PgPool, timeout: Duration) -> (Self, LedgerWorker) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        (Self { queue: sender }, LedgerWorker { pool, queue: receiver, timeout })
    }

    /// Has a request decided, and waits until the decision is durable.
    pub(crate) async fn decide(&self, prepared: PreparedRequest) -> SigningResult {
        let (reply, result) = oneshot::channel();
        let waiting = WaitingRequest { prepared: Box::new(prepared), reply };
        self.queue.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SigningError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => SigningError::LedgerUnavailable,
        })?;
        result.await.unwrap_or(Err(SigningError::LedgerUnavailable))
    }
}

/// The ledger's thread ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerStopped {
    #[error("the ledger's thread cannot be started")]
    Start(#[source] std::io::Error),
    #[error("the ledger's thread ended by itself")]
    Ended,
}

impl LedgerWorker {
    /// Runs until `stop`, which must not come before the last call was answered. It has a thread of its own: on the threads that
    /// serve requests, each reply of its database would be handled only after dozens of other tasks, and all of them wait for it.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), LedgerStopped> {
        let (done, ended) = oneshot::channel();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.work(stop));
            let _ = done.send(());
            Ok::<(), std::io::Error>(())
        };
        std::thread::Builder::new().name("ledger".to_owned()).spawn(work).map_err(LedgerStopped::Start)?;
        ended.await.map_err(|_| LedgerStopped::Ended)
    }

    /// Takes batch after batch; after `stop` it finishes what waits.
    async fn work(mut self, stop: CancellationToken) {
        // A pool of its own, because a long check of the log must not delay signatures. It is made here so that its connections
        // belong to this thread's runtime.
        self.pool = db::dedicated_pool(&self.pool, CONNECTIONS);
        let mut waiting = Vec::with_capacity(MAX_BATCH);
        loop {
            tokio::select! {
                biased;
                taken = self.queue.recv_many(&mut waiting, MAX_BATCH) => {
                    if taken == 0 {
                        return;
                    }
                    self.process(std::mem::take(&mut waiting)).await;
                }
                () = stop.cancelled() => {
                    self.queue.close();
                    while self.queue.recv_many(&mut waiting, MAX_BATCH).await > 0 {
                        self.process(std::mem::take(&mut waiting)).await;
                    }
                    return;
                }
            }
        }
    }

    async fn process(&self, waiting: Vec<WaitingRequest>) {
        let started = std::time::Instant::now();
        let batch: Vec<&PreparedRequest> = waiting.iter().map(|waiting| waiting.prepared.as_ref()).collect();
        let results = match self.decide(&batch).await {
            Ok(results) => results,
            // One request that cannot be written must not make the others fail.
            Err(error) if batch.len() > 1 && !is_outage(&error) => {
                tracing::error!(error = %::rpc::error::chain(&error), requests = batch.len(), "batch failed, deciding one by one");
                self.decide_each(&batch).await
            }
            Err(error) => {
                tracing::error!(error = %::rpc::error::chain(&error), requests = batch.len(), "ledger cannot commit");
                let mut failure = Some(error);
                batch.iter().map(|_| Err(failure.take().unwrap_or(SigningError::LedgerUnavailable))).collect()
            }
        };
        record_metrics(&results, started.elapsed());
        for (waiting, result) in waiting.into_iter().zip(results) {
            // A caller that went away retries with the same key.
            let _ = waiting.reply.send(result);
        }
    }

    async fn decide(&self, batch: &[&PreparedRequest]) -> Result<Vec<SigningResult>, SigningError> {
        let mut connection = self.pool.acquire().await.map_err(SigningError::Ledger)?;
        match tokio::time::timeout(self.timeout, decide_batch(&mut connection, batch)).await {
            Ok(decided) => decided,
            Err(_) => {
                // A transaction that is still open on it must not become part of the next batch.
                connection.close_on_drop();
                Err(SigningError::LedgerUnavailable)
            }
        }
    }

    /// Decides one by one. Once the database is unavailable the rest is not tried: each would wait as long again, and further
    /// requests wait behind them.
    async fn decide_each(&self, batch: &[&PreparedRequest]) -> Vec<SigningResult> {
        let mut results: Vec<SigningResult> = Vec::with_capacity(batch.len());
        for prepared in batch {
            let unavailable = results.last().is_some_and(|last| last.as_ref().is_err_and(is_outage));
            results.push(match unavailable {
                true => Err(SigningError::LedgerUnavailable),
                false => self.decide_alone(prepared).await,
            });
        }
        results
    }

    async fn decide_alone(&self, prepared: &PreparedRequest) -> SigningResult {
        let mut results = self.decide(&[prepared]).await?;
        results.pop().unwrap_or(Err(SigningError::LedgerUnavailable))
    }
}

fn is_outage(error: &SigningError) -> bool {
    match error {
        SigningError::Ledger(source) => db::classify(source).is_transient(),
        SigningError::LedgerUnavailable => true,
        _ => false,
    }
}

/// Judges, signs and commits a batch; the results are in its order. The first try takes no lock: when the head has not moved
/// between load and save, no fact of the batch has changed. If it has moved, the batch is decided once more under the head's lock.
async fn decide_batch(
    connection: &mut PgConnection,
    batch: &[&PreparedRequest],
) -> Result<Vec<SigningResult>, SigningError> {
    if let Some(results) = try_batch(connection, batch).await? {
        return Ok(results);
    }
    metrics::counter!("bursar_signer_head_conflicts_total").increment(1);
    let mut tx = connection.begin().await.map_err(SigningError::Ledger)?;
    audit::lock_head_in(&mut tx).await.map_err(SigningError::Ledger)?;
    let results = try_batch(&mut tx, batch).await?.ok_or(SigningError::Corrupt("audit_head"))?;
    tx.commit().await.map_err(SigningError::Ledger)?;
    Ok(results)
}

/// Returns `None` when somebody else moved the head meanwhile. The signatures are dropped then, and nobody sees them.
async fn try_batch(
    connection: &mut PgConnection,
    batch: &[&PreparedRequest],
) -> Result<Option<Vec<SigningResult>>, SigningError> {
    let mut clock = PhaseTimer::start();
    let (facts, from) = repo::load_in(&mut *connection, batch).await?;
    clock.end("load");
    let now = facts.now;
    let mut decision = BatchDecision::new(facts, from, batch.len());
    let results: Vec<SigningResult> = batch.iter().map(|prepared| decision.decide(prepared)).collect();
    clock.end("sign");
    let log = LogAppend { from, to: decision.head, entries: &decision.entries, now };
    crash_point("signer.before_save");
    let saved = repo::save_in(connection, &decision.writes, &log).await.map_err(SigningError::Ledger)?;
    crash_point("signer.after_save");
    clock.end("save");
    Ok(saved.then_some(results))
}

struct PhaseTimer {
    since: std::time::Instant,
}

impl PhaseTimer {
    fn start() -> Self {
        Self { since: std::time::Instant::now() }
    }

    fn end(&mut self, phase: &'static str) {
        metrics::histogram!("bursar_signer_batch_phase_seconds", "phase" => phase)
            .record(self.since.elapsed().as_secs_f64());
        self.since = std::time::Instant::now();
    }
}

fn record_metrics(results: &[SigningResult], took: Duration) {
    #[allow(clippy::cast_precision_loss, reason = "a batch has at most 256 requests")]
    metrics::histogram!("bursar_signer_batch_requests").record(results.len() as f64);
    metrics::histogram!("bursar_signer_batch_seconds").record(took.as_secs_f64());
    for result in results {
        let (outcome, reason) = match result {
            Ok(signed) if signed.replayed => ("replayed", "none"),
            Ok(_) => ("signed", "none"),
            Err(SigningError::Refused(refusal)) => ("refused", refusal.reason),
            Err(_) => ("failed", "none"),
        };
        metrics::counter!("bursar_signer_requests_total", "outcome" => outcome, "reason" => reason)
            .increment(1);
    }
}
