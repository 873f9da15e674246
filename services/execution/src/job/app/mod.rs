//! Use cases of jobs: load, decide, save and report, in one transaction each.

mod approvals;
mod enqueue;
mod operator;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::{BatchWriter, Lease, Queue};
use payment::Verdict;
use sqlx::{PgConnection, PgPool};
use telemetry::crash_point;
use types::{ChainName, JobId};
use uuid::Uuid;

pub use approvals::Renewal;
pub(crate) use enqueue::EnqueuedJob;
pub use enqueue::NewWithdrawal;
pub use operator::ImportedJob;
pub use view::{JobCount, JobFilter, Statistics};

use super::{Job, JobError, Schedules, State, repo};
use crate::outbox::{JobMessage, enqueue_in};
use crate::queue::{self, JobNews, JobQueue, QueueKind};
use crate::{catalogue, confirmation, wallet};

/// After a conflict the batch is tried again this often.
const TRIES: u32 = 3;
/// For batches of calls and the workers, which use one each for a moment.
const HOT_CONNECTIONS: u32 = 8;

#[derive(Debug, Clone)]
pub struct JobsConfig {
    pub schedules: Schedules,
    /// Whether a foreign transaction at one of our nonces stops the lane until a person looks.
    pub halt_on_foreign: bool,
}

/// Jobs. Clones share the writers of new withdrawals and of verdicts.
#[derive(Debug, Clone)]
pub struct Jobs {
    pool: PgPool,
    config: JobsConfig,
    /// For frequent calls; lists use the other pool.
    hot: PgPool,
    enqueueing: BatchWriter<NewWithdrawal, JobId, JobError>,
    verdicts: BatchWriter<Verdict, (), JobError>,
}

impl Jobs {
    /// Starts the writers that take calls in batches; they end with the last clone.
    pub fn start(pool: PgPool, config: JobsConfig) -> Self {
        let max_tries = config.schedules.max_tries(JobQueue::WITHDRAWAL);
        let hot = db::dedicated_pool(&pool, HOT_CONNECTIONS);
        let writing = hot.clone();
        let enqueueing = BatchWriter::start("enqueue", move |news: Arc<[NewWithdrawal]>| {
            let pool = writing.clone();
            async move { enqueue_batch(&pool, max_tries, &news).await }
        });
        let (writing, rules) = (hot.clone(), config.clone());
        let verdicts = BatchWriter::start("verdict", move |verdicts: Arc<[Verdict]>| {
            let (pool, rules) = (writing.clone(), rules.clone());
            async move { confirmation::record_batch(&pool, &rules, &verdicts).await }
        });
        Self { pool, config, hot, enqueueing, verdicts }
    }

    /// The connections of workers.
    pub fn hot(&self) -> &PgPool {
        &self.hot
    }

    /// Takes an approved withdrawal. Idempotent by its id.
    pub async fn enqueue(&self, new: NewWithdrawal) -> Result<JobId, JobError> {
        self.enqueueing.call(new).await
    }

    /// Records a verdict. A replay changes nothing and is no error.
    pub async fn record_verdict(&self, verdict: &Verdict) -> Result<(), JobError> {
        self.verdicts.call(verdict.clone()).await
    }

    /// Gives wallets to jobs that have none, under their leases. Returns why, for those that still have none.
    pub(crate) async fn assign(
        &self,
        chain: &ChainName,
        (queue, kind): (&Queue, &dyn QueueKind),
        leases: &[Lease],
    ) -> Result<BTreeMap<JobId, String>, JobError> {
        let mut tx = db::begin(&self.hot).await?;
        let held: Vec<Uuid> = queue.guard_many_in(&mut tx, leases).await?;
        let now = wallet::repo::lock_selection_in(&mut tx, chain).await?;
        // Locked before they are read: one that is cancelled meanwhile has ended, and must reserve nothing.
        repo::lock_all_in(&mut tx, &held).await?;
        let mut jobs = repo::by_ids(&mut *tx, &held).await?;
        jobs.retain(|job| job.payer.is_none() && matches!(job.state, State::Processing { .. }));
        // Most urgent first, then the oldest: scarce money goes to whoever waits longest.
        jobs.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.id));
        let reasons = assign_in(&mut tx, (chain, kind), jobs, now).await?;
        tx.commit().await?;
        Ok(reasons)
    }
}

async fn assign_in(
    tx: &mut PgConnection,
    (chain, kind): (&ChainName, &dyn QueueKind),
    jobs: Vec<Job>,
    now: DateTime<Utc>,
) -> Result<BTreeMap<JobId, String>, JobError> {
    let assets = catalogue::repo::assets(&mut *tx, Some(chain)).await?;
    let wanted: Vec<Uuid> = jobs.iter().map(|job| job.asset.as_uuid()).collect();
    let mut candidates = wallet::repo::candidates_in(tx, chain, kind.payer_role(), &wanted).await?;
    let (mut booked, mut found, mut reasons) = (Vec::new(), Vec::new(), BTreeMap::new());
    for job in jobs {
        match enqueue::book(&mut candidates, job.asset.as_uuid(), job.amount, now) {
            Some(choice) => {
                booked.push((job.asset.as_uuid(), choice, job.amount));
                found.push((job, choice));
            }
            None => {
                let asset = assets.iter().find(|asset| asset.id == job.asset);
                let reason = asset.map(|asset| enqueue::no_liquidity(job.amount, asset));
                reasons.insert(job.id, reason.unwrap_or_else(|| "its asset is unknown".to_owned()));
            }
        }
    }
    if found.is_empty() {
        return Ok(reasons);
    }
    wallet::repo::reserve_in(tx, &booked).await?;
    let wallets: Vec<_> = found.iter().map(|(job, choice)| (job.id, choice.wallet)).collect();
    repo::changes::assign_in(tx, &wallets).await?;
    let messages: Vec<JobMessage> =
        found.iter().filter_map(|(job, _)| queue::message(job, JobNews::Unblocked)).collect();
    enqueue_in(tx, &messages).await?;
    Ok(reasons)
}

async fn enqueue_batch(
    pool: &PgPool,
    max_tries: u32,
    news: &[NewWithdrawal],
) -> Result<Vec<Result<JobId, JobError>>, JobError> {
    let mut tries = 0;
    loop {
        let written = async {
            let mut tx = db::begin(pool).await?;
            let results = enqueue::enqueue_in(&mut tx, news, max_tries).await?;
            crash_point("execution.before_enqueue");
            tx.commit().await?;
            crash_point("execution.after_enqueue");
            Ok(results)
        };
        match written.await {
            Err(JobError::Database(error))
                if tries < TRIES && db::classify(&error) == db::Fault::Contention =>
            {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(5 * u64::from(tries))).await;
            }
            result => return result,
        }
    }
}
