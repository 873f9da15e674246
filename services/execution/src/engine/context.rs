//! A batch of leased jobs and what every step does with it: claim, load, end, renew leases.
//!
//! A worker that was paused could otherwise write after another took its jobs over. So every write happens in a transaction
//! that first locks the leases by token; a lease that is gone takes its job out of the batch, and the worker that lost it does
//! nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::SecondsFormat;
use db::queue::NewJob;
use db::{Due, Lease, Queue};
use sqlx::{PgConnection, PgPool};
use tokio::task::AbortHandle;
use types::JobId;
use uuid::Uuid;
use worker::Checkpoints;

use crate::chains::ChainHandle;
use crate::job::change::{Settlement, apply_in};
use crate::job::{Attempt, Event, Job, Step, WorkEvent, repo};
use crate::queue::QueueKind;
use crate::signer::Signer;
use crate::worker::{WorkError, WorkerConfig};

/// How soon a job that a step left aside is looked at again.
const LEFT_ASIDE: Duration = Duration::from_secs(1);

/// A job under lease, with its attempts.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub lease: Lease,
    pub job: Job,
    pub attempts: Vec<Attempt>,
}

/// An attempt that is to be signed or sent.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub item: Item,
    pub attempt: Attempt,
    /// Whether the job was given up between its claim and the storing of the bytes.
    pub given_up: bool,
}

impl Work {
    pub(super) fn new(item: Item, attempt: Attempt) -> Self {
        Self { item, attempt, given_up: false }
    }
}

/// An item and what became of it.
pub(super) type Ended = (Item, WorkEvent);

/// What the steps of one tick share.
#[derive(Debug, Clone)]
pub(super) struct WorkContext {
    pub pool: PgPool,
    pub queue: Queue,
    pub kind: &'static dyn QueueKind,
    pub chain: Arc<ChainHandle>,
    pub signer: Signer,
    pub config: Arc<WorkerConfig>,
    pub checkpoints: Checkpoints,
}

impl WorkContext {
    /// Claims jobs and marks them as being processed, in one transaction.
    pub(super) async fn claim(&self, owner: &str) -> Result<Vec<Item>, WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let leases = self.queue.claim_in(&mut tx, owner, self.config.batch, self.config.lease).await?;
        if leases.is_empty() {
            // The claim may have returned expired leases to the queue all the same.
            tx.commit().await?;
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = leases.iter().map(|lease| lease.job_id).collect();
        repo::changes::claim_in(&mut tx, &ids).await?;
        let items = load_in(&mut tx, leases).await?;
        tx.commit().await?;
        for item in &items {
            tracing::info!(
                job_id = %item.job.id, chain = %item.job.chain, asset = %item.job.symbol, amount = %item.job.amount,
                to = %item.job.to, from = item.job.payer.as_ref().map(|payer| tracing::field::display(payer.address)),
                priority = item.job.priority.as_str(), status = item.job.state.name(), retry_count = item.job.tries, max_retries = item.job.max_tries,
                lease = item.lease.token, "job picked"
            );
            tracing::info!(
                job_id = %item.job.id, chain = %item.job.chain, queue = self.queue.name(), lease = item.lease.token,
                lock_until = item.lease.lease_until.to_rfc3339_opts(SecondsFormat::Millis, true), "lock acquired"
            );
        }
        Ok(items)
    }

    /// Reads jobs again, for instance after they were given a wallet.
    pub(super) async fn reload(&self, items: Vec<Item>) -> Result<Vec<Item>, WorkError> {
        let mut connection = self.pool.acquire().await.map_err(WorkError::from)?;
        load_in(&mut connection, items.into_iter().map(|item| item.lease).collect()).await
    }

    /// Writes what became of these jobs and ends their leases, in one transaction.
    pub(super) async fn end(&self, mut ended: Vec<Ended>) -> Result<(), WorkError> {
        if ended.is_empty() {
            return Ok(());
        }
        // Rows are locked in the order of ids everywhere, so that no two transactions wait for each other.
        ended.sort_by_key(|(item, _)| item.job.id);
        let leases: Vec<Lease> = ended.iter().map(|(item, _)| item.lease.clone()).collect();
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, &leases).await?;
        for (item, event) in ended.iter().filter(|(item, _)| held.contains(&item.lease.job_id)) {
            let job = repo::lock_in(&mut tx, item.job.id).await?;
            match job.apply(&Event::Work(event.clone())) {
                Ok(Step::Changed(change)) => {
                    apply_in(&mut tx, &job, &change, &self.config.schedules, Settlement::default()).await?;
                }
                Ok(Step::AlreadyApplied) => {}
                // Somebody changed the job meanwhile; the event no longer applies to it.
                Err(illegal) => tracing::warn!(job_id = %job.id, error = %illegal, "event dropped"),
            }
        }
        self.queue.complete_many_in(&mut tx, &leases).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Ends the leases of jobs that need nothing.
    pub(super) async fn complete(&self, items: &[Item]) -> Result<(), WorkError> {
        if items.is_empty() {
            return Ok(());
        }
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        self.queue.complete_many(&self.pool, &leases).await?;
        Ok(())
    }

    /// Returns what is still leased at the end of a batch to the queue. Running a job once more than needed is harmless.
    pub(super) async fn give_back(&self, leases: &[Lease]) -> Result<(), WorkError> {
        // Nearly always all leases have ended; then this query is all it costs.
        let mut connection = self.pool.acquire().await?;
        if self.queue.guard_many_in(&mut connection, leases).await?.is_empty() {
            return Ok(());
        }
        drop(connection);
        let mut tx = db::begin(&self.pool).await?;
        let held = self.queue.complete_many_in(&mut tx, leases).await?;
        let again: Vec<NewJob> = leases
            .iter()
            .filter(|lease| held.contains(&lease.job_id))
            .map(|lease| NewJob { job_id: lease.job_id, priority: lease.priority, due: Due::In(LEFT_ASIDE) })
            .collect();
        self.queue.push_many_in(&mut tx, &again).await?;
        tx.commit().await?;
        Ok(())
    }

    /// The jobs whose leases still hold; they stay ours until the transaction ends.
    pub(super) async fn held_in(
        &self,
        tx: &mut PgConnection,
        leases: &[Lease],
    ) -> Result<HashSet<Uuid>, WorkError> {
        let held: HashSet<Uuid> = self.queue.guard_many_in(tx, leases).await?.into_iter().collect();
        let (chain, lost) = (&self.chain.settings.name, leases.len().saturating_sub(held.len()));
        // Both are counted, so that their ratio shows how often a worker still owns what it is about to write.
        crate::metrics::step(chain, "fence", "held", held.len());
        crate::metrics::step(chain, "fence", "lost", lost);
        if lost > 0 {
            tracing::warn!(
                queue = self.queue.name(),
                lost,
                "leases are lost; their jobs belong to another worker"
            );
        }
        Ok(held)
    }

    /// Renews leases while a batch is worked on.
    pub(super) fn renew(&self, leases: Vec<Lease>) -> LeaseRenewal {
        let (queue, pool, ttl) = (self.queue.clone(), self.pool.clone(), self.config.lease);
        let renewing = async move {
            loop {
                tokio::time::sleep(ttl / 3).await;
                if let Err(error) = queue.extend_many(&pool, &leases, ttl).await {
                    tracing::warn!(queue = queue.name(), error = %error, "leases could not be extended");
                }
            }
        };
        LeaseRenewal(tokio::spawn(renewing).abort_handle())
    }
}

/// Renews leases until it is dropped.
#[derive(Debug)]
pub(super) struct LeaseRenewal(AbortHandle);

impl Drop for LeaseRenewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn load_in(connection: &mut PgConnection, leases: Vec<Lease>) -> Result<Vec<Item>, WorkError> {
    let ids: Vec<Uuid> = leases.iter().map(|lease| lease.job_id).collect();
    let jobs = repo::by_ids(&mut *connection, &ids).await?;
    let mut attempts = repo::attempts::of_jobs(connection, &jobs.iter().collect::<Vec<_>>()).await?;
    let mut jobs: BTreeMap<JobId, Job> = jobs.into_iter().map(|job| (job.id, job)).collect();
    // In the order of the claim: most urgent first.
    Ok(leases
        .into_iter()
        .filter_map(|lease| {
            let id = JobId::from_uuid(lease.job_id);
            Some(Item { job: jobs.remove(&id)?, attempts: attempts.remove(&id).unwrap_or_default(), lease })
        })
        .collect())
}
