//! Looking at jobs: one, a page, the lanes, the numbers.

use std::time::Duration;

use sqlx::{PgPool, Row as _};
use types::{Address, ChainName, JobId, RawAmount, WalletId, WithdrawalId};

use super::repo::{self, PageKey};
use super::{Attempt, Job, JobError, JobQueue, Jobs};
use crate::catalogue;
use crate::lane::{self, LaneRow};
use crate::sql::{text, unsigned};

/// What a list is narrowed down by.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    pub queue: Option<JobQueue>,
    pub statuses: Vec<&'static str>,
    pub chain: Option<ChainName>,
    pub wallet: Option<WalletId>,
    pub before: Option<JobId>,
}

/// A lane as shown.
pub type LaneView = LaneRow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCount {
    pub queue: JobQueue,
    pub chain: ChainName,
    pub status: String,
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
        let attempts = repo::attempts(&self.pool, &[job.id.as_uuid()]).await?.remove(&job.id);
        Ok((job, attempts.unwrap_or_default()))
    }

    /// A page, newest first.
    pub async fn list(&self, filter: &JobFilter, size: u32) -> Result<Vec<Job>, JobError> {
        let key = PageKey {
            queue: filter.queue,
            statuses: &filter.statuses,
            chain: filter.chain.as_ref(),
            wallet: filter.wallet,
            before: filter.before,
        };
        repo::page(&self.pool, &key, size).await
    }

    pub async fn lanes(&self, chain: Option<&ChainName>) -> Result<Vec<LaneView>, JobError> {
        Ok(lane::repo::list(&self.pool, chain, None).await?)
    }

    /// Lets a halted lane go on, and with it the jobs that waited for it.
    pub async fn resume_lane(&self, chain: &ChainName, address: &str) -> Result<LaneView, JobError> {
        let missing = || JobError::NoLane { chain: chain.clone(), address: address.to_owned() };
        let settings = catalogue::repo::chain(&self.pool, chain).await?.ok_or_else(missing)?;
        let address = Address::parse(settings.kind.address_format(), address)
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
        statistics(&self.pool, window).await
    }
}

async fn statistics(pool: &PgPool, window: Duration) -> Result<Statistics, JobError> {
    let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX / 1000);
    let rows = sqlx::query(
        "SELECT queue, chain, status, count(*) AS count FROM jobs WHERE created_at >= now() - $1 * interval '1 s'
         GROUP BY queue, chain, status ORDER BY queue, chain, status",
    )
    .bind(seconds)
    .fetch_all(pool)
    .await?;
    let counts = rows.iter().map(|row| {
        let queue: &str = row.try_get("queue")?;
        Ok(JobCount {
            queue: JobQueue::parse(queue).unwrap_or(JobQueue::Withdrawal),
            chain: text(row, "chain")?,
            status: row.try_get("status")?,
            count: unsigned(row, "count")?,
        })
    });
    let counts = counts.collect::<Result<Vec<_>, sqlx::Error>>()?;
    let row = sqlx::query(include_str!("../../queries/statistics.sql")).bind(seconds).fetch_one(pool).await?;
    let average_ms: Option<i64> = row.try_get("confirmation_ms")?;
    let rate: i64 = row.try_get("retry_rate")?;
    Ok(Statistics {
        counts,
        stuck: unsigned(&row, "stuck")?,
        retry_rate_basis_points: u32::try_from(rate).unwrap_or(u32::MAX),
        average_confirmation: average_ms.map(|ms| Duration::from_millis(ms.unsigned_abs())),
        average_gas: text(&row, "average_gas")?,
    })
}
