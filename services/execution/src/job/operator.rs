//! What operators may do with a job, and taking over payments of another system.

use chrono::{DateTime, Utc};
use proto::confirmation::v1::WatchedTransaction;
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use types::{Address, AssetSymbol, AttemptId, ChainName, JobId, Priority, RawAmount, TxHash, WithdrawalId};

use super::write::{Closing, apply_in};
use super::{Event, Job, JobError, Jobs, Step, repo, watch};
use crate::catalogue;
use crate::outbox::{Told, tell_in};
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
        self.ask(id, &Event::RetryAsked).await
    }

    /// Gives a job up: at once if nothing of it can land, and otherwise by closing its nonce.
    pub async fn cancel(&self, id: JobId, reason: String) -> Result<Job, JobError> {
        self.ask(id, &Event::CancelAsked { reason }).await
    }

    async fn ask(&self, id: JobId, event: &Event) -> Result<Job, JobError> {
        let mut tx = db::begin(&self.pool).await?;
        let job = repo::lock_in(&mut tx, id).await?;
        if let Step::Changed(change) = job.standing().apply(event)? {
            apply_in(&mut tx, &job, &change, &self.config.schedule, Closing::default()).await?;
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
        let format = chain.kind.address_format();
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
        sqlx::query(include_str!("../../queries/import_job.sql"))
            .bind(id.as_uuid())
            .bind(new.withdrawal.as_uuid())
            .bind(new.chain.as_str())
            .bind(asset.id.as_uuid())
            .bind(payer.id.as_uuid())
            .bind(to.to_string())
            .bind(new.amount.to_string())
            .bind(Priority::Normal.rank())
            // Nothing may ever be signed for it: a transaction that did not pay is the end.
            .bind(1)
            .bind(new.tx_hash.as_bytes().to_vec())
            .bind(new.created_at)
            .bind(AttemptId::new().as_uuid())
            .bind(from.to_string())
            .execute(&mut *tx)
            .await
            .map_err(|error| match db::constraint(&error) {
                Some("attempts_hash_key") => wrong("tx_hash", "belongs to another job".to_owned()),
                _ => JobError::Database(error),
            })?;
        let job = repo::lock_in(&mut tx, id).await?;
        let transaction =
            WatchedTransaction { tx_hash: new.tx_hash.to_string(), ..WatchedTransaction::default() };
        let mut told =
            vec![Told::progress(new.withdrawal, Progress::Queued(intent::Queued { job_id: id.to_string() }))];
        told.extend(watch::request(&job, vec![transaction]).map(|request| Told::watch(&request)));
        tell_in(&mut tx, &told).await?;
        tx.commit().await?;
        tracing::info!(job_id = %id, withdrawal_id = %new.withdrawal, tx_hash = %new.tx_hash, "payment taken over");
        Ok(id)
    }
}

fn same_import(known: &Job, new: &ImportedJob, to: &Address, from: &Address) -> Result<(), JobError> {
    let other = |field| Err(JobError::OtherPayload { field });
    if known.symbol != new.asset {
        return other("asset");
    }
    if known.amount != new.amount {
        return other("amount_raw");
    }
    if known.to != *to {
        return other("destination");
    }
    if !known.imported || known.payer.as_ref().is_none_or(|payer| payer.address != *from) {
        return other("from_address");
    }
    if known.tx_hash != Some(new.tx_hash) {
        return other("tx_hash");
    }
    Ok(())
}
