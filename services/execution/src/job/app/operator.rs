//! What operators may do with a job, and the import of payments of another system.

use chrono::{DateTime, Utc};
use proto::intent::v1 as intent_pb;
use proto::intent::v1::record_progress_request::Progress;
use types::{Address, AssetSymbol, ChainName, JobId, RawAmount, TxHash, WithdrawalId};

use super::Jobs;
use super::enqueue::all_equal;
use crate::catalogue;
use crate::confirmation::watch;
use crate::job::change::{Settlement, apply_in};
use crate::job::repo::inserts::{ImportRow, import_in};
use crate::job::{Event, Job, JobError, Step, repo};
use crate::outbox::{JobMessage, enqueue_in};
use crate::wallet;

/// A payment that another system has broadcast.
#[derive(Debug, Clone)]
pub struct ImportedJob {
    pub withdrawal: WithdrawalId,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub amount: RawAmount,
    pub destination: String,
    pub from: String,
    pub tx_hash: TxHash,
    pub created_at: DateTime<Utc>,
}

impl Jobs {
    /// Makes a waiting or parked job due now.
    pub async fn retry(&self, id: JobId) -> Result<Job, JobError> {
        self.take(id, &Event::RetryRequested).await
    }

    /// Gives a job up: at once if nothing of it can land, and otherwise by closing its nonce first.
    pub async fn cancel(&self, id: JobId, reason: String) -> Result<Job, JobError> {
        self.take(id, &Event::CancelRequested { reason }).await
    }

    async fn take(&self, id: JobId, event: &Event) -> Result<Job, JobError> {
        let mut tx = db::begin(&self.pool).await?;
        let job = repo::lock_in(&mut tx, id).await?;
        if let Step::Changed(change) = job.apply(event)? {
            apply_in(&mut tx, &job, &change, &self.config.schedules, Settlement::default()).await?;
        }
        let job = repo::lock_in(&mut tx, id).await?;
        tx.commit().await?;
        Ok(job)
    }

    /// Takes over a payment on its way: a confirming job whose transaction is watched. Nothing is ever signed for it.
    pub async fn import(&self, new: &ImportedJob) -> Result<JobId, JobError> {
        let wrong = |field, problem: String| JobError::Invalid { field, problem };
        let mut tx = db::begin(&self.pool).await?;
        wallet::repo::lock_selection_in(&mut tx, &new.chain).await?;
        let chain = catalogue::repo::chain(&mut *tx, &new.chain).await?;
        let assets = catalogue::repo::assets(&mut *tx, Some(&new.chain)).await?;
        let asset = assets.into_iter().find(|asset| asset.symbol == new.asset);
        let (Some(chain), Some(asset)) = (chain, asset) else {
            return Err(JobError::NoAsset { chain: new.chain.clone(), asset: new.asset.clone() });
        };
        let format = chain.kind;
        let to = Address::parse(format, &new.destination)
            .map_err(|error| wrong("destination", error.to_string()))?;
        let from =
            Address::parse(format, &new.from).map_err(|error| wrong("from_address", error.to_string()))?;
        if let Some(known) = repo::by_withdrawal(&mut *tx, new.withdrawal).await? {
            return same_import(&known, new, &to, &from).map(|()| known.id);
        }
        if new.amount.is_zero() {
            return Err(wrong("amount_raw", "must be above zero".to_owned()));
        }
        let payer = wallet::repo::list(&mut *tx, Some(&new.chain), None, Some(&from)).await?.pop();
        let payer = payer.filter(|payer| payer.key.is_some()).ok_or_else(|| {
            wrong("from_address", "is not a registered operation wallet that pays".to_owned())
        })?;
        let id = JobId::new();
        let row = ImportRow { id, new, asset: asset.id, wallet: payer.id, to, from };
        import_in(&mut tx, &row).await.map_err(|error| match db::constraint(&error) {
            Some("attempts_hash_key") => wrong("tx_hash", "belongs to another job".to_owned()),
            _ => JobError::Database(error),
        })?;
        let job = repo::lock_in(&mut tx, id).await?;
        let queued = Progress::Queued(intent_pb::Queued { job_id: id.to_string() });
        let mut messages = vec![JobMessage::progress(new.withdrawal, queued)];
        messages.extend(watch::messages_in(&mut tx, &[(&job, None)]).await?);
        enqueue_in(&mut tx, &messages).await?;
        tx.commit().await?;
        tracing::info!(job_id = %id, withdrawal_id = %new.withdrawal, tx_hash = %new.tx_hash, "payment taken over");
        Ok(id)
    }
}

fn same_import(known: &Job, new: &ImportedJob, to: &Address, from: &Address) -> Result<(), JobError> {
    let same_payer = known.payer.as_ref().is_some_and(|payer| payer.address == *from);
    all_equal(&[
        ("asset", known.symbol == new.asset),
        ("amount_raw", known.amount == new.amount),
        ("destination", known.to == *to),
        ("from_address", known.imported && same_payer),
        ("tx_hash", known.tx_hash == Some(new.tx_hash)),
    ])
}
