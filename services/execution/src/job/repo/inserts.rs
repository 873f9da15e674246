//! SQL that creates jobs.

use sqlx::PgConnection;
use types::{Address, AssetId, AttemptId, ChainName, JobId, Priority, WalletId};

use crate::job::app::EnqueuedJob;
use crate::job::{ImportedJob, JobError};
use crate::queue::JobQueue;

pub(crate) async fn insert_all_in(
    tx: &mut PgConnection,
    queue: JobQueue,
    jobs: &[EnqueuedJob<'_>],
    max_tries: u32,
) -> Result<(), JobError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let mut approvals = Vec::with_capacity(jobs.len());
    let mut traces = Vec::with_capacity(jobs.len());
    for job in jobs {
        approvals.push(serde_json::to_value(&job.new.approvals)?);
        traces.push(serde_json::to_value(&job.new.trace)?);
    }
    let column = |of: fn(&EnqueuedJob<'_>) -> String| jobs.iter().map(of).collect::<Vec<_>>();
    sqlx::query(include_str!("../../../queries/insert_jobs.sql"))
        .bind(jobs.iter().map(|job| job.id.as_uuid()).collect::<Vec<_>>())
        .bind(jobs.iter().map(|job| job.new.id.as_uuid()).collect::<Vec<_>>())
        .bind(column(|job| job.new.chain.to_string()))
        .bind(jobs.iter().map(|job| job.asset.id.as_uuid()).collect::<Vec<_>>())
        .bind(jobs.iter().map(|job| job.choice.map(|choice| choice.wallet.as_uuid())).collect::<Vec<_>>())
        .bind(column(|job| job.destination.to_string()))
        .bind(column(|job| job.new.amount.to_string()))
        .bind(jobs.iter().map(|job| job.new.priority.rank()).collect::<Vec<_>>())
        .bind(jobs.iter().map(|job| job.blocked.clone()).collect::<Vec<_>>())
        .bind(column(|job| job.new.requested_by.clone()))
        .bind(approvals)
        .bind(traces)
        .bind(i32::try_from(max_tries).unwrap_or(i32::MAX))
        .bind(column(|job| job.new.on_behalf_of.clone()))
        .bind(queue.name())
        .execute(tx)
        .await?;
    Ok(())
}

/// What is stored of an imported payment besides the request.
pub(crate) struct ImportRow<'a> {
    pub id: JobId,
    pub new: &'a ImportedJob,
    pub asset: AssetId,
    pub wallet: WalletId,
    pub to: Address,
    pub from: Address,
}

/// Inserts the job and its only attempt.
pub(crate) async fn import_in(tx: &mut PgConnection, row: &ImportRow<'_>) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("../../../queries/import_job.sql"))
        .bind(row.id.as_uuid())
        .bind(row.new.withdrawal.as_uuid())
        .bind(row.new.chain.as_str())
        .bind(row.asset.as_uuid())
        .bind(row.wallet.as_uuid())
        .bind(row.to.to_string())
        .bind(row.new.amount.to_string())
        .bind(Priority::Normal.rank())
        // Nothing may ever be signed for it: a transaction that did not pay is the end.
        .bind(1)
        .bind(row.new.tx_hash.as_bytes().to_vec())
        .bind(row.new.created_at)
        .bind(AttemptId::new().as_uuid())
        .bind(row.from.to_string())
        .execute(tx)
        .await?;
    Ok(())
}

/// Inserts a filler: a job that pays nobody and is being closed from the start, so that it goes through the same protocol, the
/// same guard and the same verdict as any other.
pub(crate) async fn filler_in(
    tx: &mut PgConnection,
    job: JobId,
    chain: &ChainName,
    address: &Address,
    nonce: u64,
) -> Result<(), JobError> {
    let inserted = sqlx::query(include_str!("../../../queries/insert_filler.sql"))
        .bind(job.as_uuid())
        .bind(chain.as_str())
        .bind(address.to_string())
        .bind(format!("closes the gap at nonce {nonce}"))
        .bind(Priority::Urgent.rank())
        .execute(tx)
        .await?;
    db::expect_one(inserted).map_err(|_| JobError::Conflict)
}
