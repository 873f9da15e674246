//! A batch of leased jobs and what every step does with it: load, end, hold.
//!
//! Where it could hurt: a worker that was paused writes after somebody else took its jobs. So every write happens in a
//! transaction that first locks the leases by token; a lease that is gone takes its job out of the batch, and the loser does
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

use super::{WorkError, WorkerConfig};
use crate::chains::ChainHandle;
use crate::job::write::{Closing, apply_in};
use crate::job::{Attempt, Event, Job, Step, repo};
use crate::signer::Signer;

/// A job under lease, with its attempts.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub lease: Lease,
    pub job: Job,
    pub attempts: Vec<Attempt>,
}

/// An attempt that is on its way.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub item: Item,
    pub attempt: Attempt,
}

/// An item and what became of it.
pub(super) type Ended = (Item, Event);

/// What the steps share.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    pub pool: PgPool,
    pub queue: Queue,
    pub chain: Arc<ChainHandle>,
    pub signer: Signer,
    pub config: Arc<WorkerConfig>,
    pub checkpoints: Checkpoints,
}

impl Bench {
    /// Claims jobs and says so in their rows, in one transaction.
    pub(super) async fn claim(&self, owner: &str) -> Result<Vec<Item>, WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let leases = self.queue.claim_in(&mut tx, owner, self.config.batch, self.config.lease).await?;
        if leases.is_empty() {
            // Expired leases may have been put back all the same.
            tx.commit().await?;
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = leases.iter().map(|lease| lease.job_id).collect();
        sqlx::query(
            "UPDATE jobs SET status = 'processing', processing_since = now(), updated_at = now()
             WHERE id = ANY ($1) AND status = 'pending'",
        )
        .bind(&ids)
        .execute(&mut *tx)
        .await?;
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

    /// Writes what became of these jobs and gives their leases back, in one transaction.
    pub(super) async fn end(&self, mut ended: Vec<Ended>) -> Result<(), WorkError> {
        if ended.is_empty() {
            return Ok(());
        }
        // Rows are locked in the order of ids everywhere, so that nobody waits in a circle.
        ended.sort_by_key(|(item, _)| item.job.id);
        let leases: Vec<Lease> = ended.iter().map(|(item, _)| item.lease.clone()).collect();
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, &leases).await?;
        for (item, event) in ended.iter().filter(|(item, _)| held.contains(&item.lease.job_id)) {
            let job = repo::lock_in(&mut tx, item.job.id).await?;
            match job.standing().apply(event) {
                Ok(Step::Changed(change)) => {
                    apply_in(&mut tx, &job, &change, &self.config.schedule, Closing::default()).await?;
                }
                Ok(Step::AlreadyApplied) => {}
                // Somebody moved the job meanwhile; what we found no longer applies to it.
                Err(illegal) => tracing::warn!(job_id = %job.id, error = %illegal, "outcome dropped"),
            }
        }
        self.queue.complete_many_in(&mut tx, &leases).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Gives leases back for jobs that need nothing.
    pub(super) async fn done(&self, items: &[Item]) -> Result<(), WorkError> {
        if items.is_empty() {
            return Ok(());
        }
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        self.queue.complete_many(&self.pool, &leases).await?;
        Ok(())
    }

    /// Puts back what is still held at the end of a batch. Running a job once more than needed is harmless.
    pub(super) async fn give_back(&self, leases: &[Lease]) -> Result<(), WorkError> {
        // Nearly always all have ended; then this look is all it costs.
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
        // Both, so that their ratio tells how often a worker still owns what it is about to write.
        crate::metrics::step(chain, "fence", "held", held.len());
        crate::metrics::step(chain, "fence", "lost", lost);
        if lost > 0 {
            tracing::warn!(
                queue = self.queue.name(),
                lost,
                "leases are lost; their jobs belong to somebody else"
            );
        }
        Ok(held)
    }

    /// Keeps leases alive while a batch is worked on.
    pub(super) fn keep_alive(&self, leases: Vec<Lease>) -> KeepAlive {
        let (queue, pool, ttl) = (self.queue.clone(), self.pool.clone(), self.config.lease);
        let beat = async move {
            loop {
                tokio::time::sleep(ttl / 3).await;
                if let Err(error) = queue.extend_many(&pool, &leases, ttl).await {
                    tracing::warn!(queue = queue.name(), error = %error, "leases could not be extended");
                }
            }
        };
        KeepAlive(tokio::spawn(beat).abort_handle())
    }
}

/// Extends leases until it is dropped.
#[derive(Debug)]
pub(super) struct KeepAlive(AbortHandle);

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How soon a job that was left aside is looked at again.
const LEFT_ASIDE: Duration = Duration::from_secs(1);

async fn load_in(connection: &mut PgConnection, leases: Vec<Lease>) -> Result<Vec<Item>, WorkError> {
    let ids: Vec<Uuid> = leases.iter().map(|lease| lease.job_id).collect();
    let jobs = repo::by_ids(&mut *connection, &ids).await?;
    let mut jobs: BTreeMap<JobId, Job> = jobs.into_iter().map(|job| (job.id, job)).collect();
    let mut attempts = repo::attempts(connection, &ids).await?;
    // In the order of the claim: most urgent first.
    Ok(leases
        .into_iter()
        .filter_map(|lease| {
            let id = JobId::from_uuid(lease.job_id);
            Some(Item { job: jobs.remove(&id)?, attempts: attempts.remove(&id).unwrap_or_default(), lease })
        })
        .collect())
}
