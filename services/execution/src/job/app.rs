//! Use cases of jobs: load, decide, save and tell, in one transaction each.

use std::collections::BTreeMap;
use std::time::Duration;

use db::{Lease, Queue};
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use types::{ChainName, JobId};
use uuid::Uuid;

use super::enqueue::{self, NewWithdrawal};
use super::write::Schedule;
use super::{Job, JobError, repo};
use crate::catalogue;
use crate::outbox::{Told, tell_in};
use crate::wallet;

/// Requests that may wait for the next transaction.
const WAITING: usize = 1024;
/// Requests taken together.
const TOGETHER: usize = 256;
/// After a conflict the batch is tried again this often.
const TRIES: u32 = 3;

#[derive(Debug, Clone)]
pub struct JobsConfig {
    pub schedule: Schedule,
    /// Whether a foreign transaction at one of our nonces stops the lane until a person looks.
    pub halt_on_foreign: bool,
}

type Waiting = (NewWithdrawal, oneshot::Sender<Result<JobId, JobError>>);

/// Jobs. Clones share one writer of new withdrawals.
#[derive(Debug, Clone)]
pub struct Jobs {
    pub(super) pool: PgPool,
    pub(super) config: JobsConfig,
    incoming: mpsc::Sender<Waiting>,
}

impl Jobs {
    /// Starts the writer that takes withdrawals in groups; it ends with the last clone.
    pub fn start(pool: PgPool, config: JobsConfig) -> Self {
        let (incoming, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write_groups(pool.clone(), config.schedule.tries.max_tries, waiting));
        Self { pool, config, incoming }
    }

    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Takes an approved withdrawal. Requests that arrive while a transaction runs share the next one: under load a commit
    /// serves many, and on an idle system nobody waits.
    pub async fn enqueue(&self, new: NewWithdrawal) -> Result<JobId, JobError> {
        let (answer, told) = oneshot::channel();
        self.incoming.send((new, answer)).await.map_err(|_| JobError::Closing)?;
        told.await.map_err(|_| JobError::Closing)?
    }

    /// Gives wallets to jobs that have none, under their leases. Returns why, for those that still have none.
    pub async fn assign(
        &self,
        chain: &ChainName,
        queue: &Queue,
        leases: &[Lease],
    ) -> Result<BTreeMap<JobId, String>, JobError> {
        let mut tx = self.pool.begin().await?;
        let held: Vec<Uuid> = queue.guard_many_in(&mut tx, leases).await?;
        let now = wallet::repo::lock_selection_in(&mut tx, chain).await?;
        let mut jobs = repo::by_ids(&mut *tx, &held).await?;
        jobs.retain(|job| job.payer.is_none());
        // Most urgent first, then the oldest: scarce money goes to whoever waits longest.
        jobs.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.id));
        let reasons = assign_in(&mut tx, chain, jobs, now).await?;
        tx.commit().await?;
        Ok(reasons)
    }
}

async fn assign_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    jobs: Vec<Job>,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<BTreeMap<JobId, String>, JobError> {
    let assets = catalogue::repo::assets(&mut *tx, Some(chain)).await?;
    let wanted: Vec<Uuid> = jobs.iter().map(|job| job.asset.as_uuid()).collect();
    let mut candidates = wallet::repo::candidates_in(tx, chain, &wanted).await?;
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
    sqlx::query(
        "UPDATE jobs AS j SET wallet_id = n.wallet_id, reserved = true, blocked_reason = NULL, waits = 0, updated_at = now()
         FROM unnest($1::uuid[], $2::uuid[]) AS n (id, wallet_id)
         WHERE j.id = n.id AND j.wallet_id IS NULL",
    )
    .bind(found.iter().map(|(job, _)| job.id.as_uuid()).collect::<Vec<_>>())
    .bind(found.iter().map(|(_, choice)| choice.wallet.as_uuid()).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    let told: Vec<Told> = found
        .iter()
        .filter_map(|(job, _)| Some((job.withdrawal?, job)))
        .map(|(withdrawal, job)| {
            Told::progress(withdrawal, Progress::Unblocked(intent::Unblocked {})).traced(job.trace.clone())
        })
        .collect();
    tell_in(tx, &told).await?;
    Ok(reasons)
}

/// Takes what is waiting, writes it in one transaction, answers each.
async fn write_groups(pool: PgPool, max_tries: u32, mut waiting: mpsc::Receiver<Waiting>) {
    let mut group: Vec<Waiting> = Vec::with_capacity(TOGETHER);
    while waiting.recv_many(&mut group, TOGETHER).await > 0 {
        let (news, answers): (Vec<NewWithdrawal>, Vec<_>) = group.drain(..).unzip();
        match write_group(&pool, max_tries, &news).await {
            Ok(results) => {
                for (answer, result) in answers.into_iter().zip(results) {
                    // A caller that went away asks again; the job is there.
                    let _ = answer.send(result);
                }
            }
            Err(error) if error.retry() => {
                tracing::warn!(error = rpc::error::chain(&error), waiting = news.len(), "withdrawals not written");
                for answer in answers {
                    let _ = answer.send(Err(JobError::Unavailable));
                }
            }
            // One of them breaks the transaction: alone, each succeeds or fails for itself.
            Err(_) => {
                for (new, answer) in news.into_iter().zip(answers) {
                    let alone = write_group(&pool, max_tries, std::slice::from_ref(&new)).await;
                    let result = alone.and_then(|mut one| one.pop().unwrap_or(Err(JobError::Conflict)));
                    let _ = answer.send(result);
                }
            }
        }
    }
}

async fn write_group(
    pool: &PgPool,
    max_tries: u32,
    news: &[NewWithdrawal],
) -> Result<Vec<Result<JobId, JobError>>, JobError> {
    let mut tries = 0;
    loop {
        let written = async {
            let mut tx = pool.begin().await?;
            let answers = enqueue::enqueue_in(&mut tx, news, max_tries).await?;
            tx.commit().await?;
            Ok(answers)
        };
        match written.await {
            Err(JobError::Database(error)) if tries < TRIES && db::classify(&error) == db::Fault::Contention => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(5 * u64::from(tries))).await;
            }
            result => return result,
        }
    }
}
