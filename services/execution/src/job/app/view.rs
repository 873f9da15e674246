//! Reading jobs: one, a page, the lanes, statistics.

use std::time::Duration;

use types::{Address, ChainName, JobId, RawAmount, WalletId, WithdrawalId};

use super::Jobs;
use crate::catalogue;
use crate::job::{Attempt, Job, JobError, Status, repo};
use crate::lane::{self, LaneRow};
use crate::queue::JobQueue;

#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    pub queue: Option<JobQueue>,
    pub statuses: Vec<Status>,
    pub chain: Option<ChainName>,
    pub wallet: Option<WalletId>,
    pub before: Option<JobId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCount {
    pub queue: JobQueue,
    pub chain: ChainName,
    pub status: Status,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    pub counts: Vec<JobCount>,
    pub stuck: u64,
    pub retry_rate_basis_points: u32,
    pub average_confirmation: Option<Duration>,
    pub average_gas: RawAmount,
}

impl Jobs {
    pub async fn get(&self, id: JobId) -> Result<(Job, Vec<Attempt>), JobError> {
        let job = repo::by_ids(&self.pool, &[id.as_uuid()]).await?.pop();
        self.with_attempts(job.ok_or_else(|| JobError::NoJob(id.to_string()))?).await
    }

    pub async fn get_by_withdrawal(&self, id: WithdrawalId) -> Result<(Job, Vec<Attempt>), JobError> {
        let job = repo::by_withdrawal(&self.pool, id).await?;
        self.with_attempts(job.ok_or_else(|| JobError::NoJob(id.to_string()))?).await
    }

    async fn with_attempts(&self, job: Job) -> Result<(Job, Vec<Attempt>), JobError> {
        let attempts = repo::attempts::of_job(&self.pool, &job).await?;
        Ok((job, attempts))
    }

    /// A page, newest first.
    pub async fn list(&self, filter: &JobFilter, size: u32) -> Result<Vec<Job>, JobError> {
        repo::page(&self.pool, filter, size).await
    }

    pub async fn lanes(&self, chain: Option<&ChainName>) -> Result<Vec<LaneRow>, JobError> {
        Ok(lane::repo::list(&self.pool, chain, None).await?)
    }

    /// Resumes a halted lane, and with it the jobs that waited for it.
    pub async fn resume_lane(&self, chain: &ChainName, address: &str) -> Result<LaneRow, JobError> {
        let missing = || JobError::NoLane { chain: chain.clone(), address: address.to_owned() };
        let settings = catalogue::repo::chain(&self.pool, chain).await?.ok_or_else(missing)?;
        let address = Address::parse(settings.kind, address)
            .map_err(|error| JobError::Invalid { field: "address", problem: error.to_string() })?;
        let mut tx = db::begin(&self.pool).await?;
        if !lane::repo::resume(&mut *tx, chain, &address).await? {
            return Err(missing());
        }
        repo::wake_blocked_in(&mut tx, chain).await?;
        let lane = lane::repo::list(&mut *tx, Some(chain), Some(&address)).await?.pop();
        tx.commit().await?;
        tracing::warn!(%chain, %address, "lane resumed by an operator");
        lane.ok_or_else(missing)
    }

    pub async fn statistics(&self, window: Duration) -> Result<Statistics, JobError> {
        repo::statistics::statistics(&self.pool, window).await
    }
}
