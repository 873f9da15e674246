//! Taking approved withdrawals: choose the payer, reserve, insert, queue and tell, in one transaction for all that arrived
//! together.
//!
//! Where it could hurt: two calls for one withdrawal (from two replicas, or a replay) must make one job. Both take the
//! chain's selection lock before they look, so the second one sees the first; the unique key is the second line.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use db::Due;
use db::queue::NewJob;
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use sqlx::PgConnection;
use telemetry::TraceContext;
use types::{
    Address, AddressFormat, AssetSymbol, ChainName, JobId, Priority, RawAmount, WithdrawalId, format_amount,
};
use uuid::Uuid;

use super::{Approval, Job, JobError, JobQueue, repo};
use crate::catalogue::{self, Asset};
use crate::outbox::{Told, tell_in};
use crate::wallet::{self, Candidate, Choice};

/// An approved withdrawal, as intent hands it over.
#[derive(Debug, Clone)]
pub struct NewWithdrawal {
    pub id: WithdrawalId,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub amount: RawAmount,
    /// Read once the chain's kind is known.
    pub destination: String,
    pub priority: Priority,
    pub requested_by: String,
    /// For whom; empty when for themselves.
    pub on_behalf_of: String,
    pub approvals: Vec<Approval>,
    pub trace: TraceContext,
}

/// One that is to be inserted.
struct Fresh<'a> {
    id: JobId,
    new: &'a NewWithdrawal,
    asset: Asset,
    destination: Address,
    choice: Option<Choice>,
    blocked: Option<String>,
}

/// Takes all of these; one answer for each, in their order. An error of the whole is one of the database.
pub(super) async fn enqueue_in(
    tx: &mut PgConnection,
    all: &[NewWithdrawal],
    max_tries: u32,
) -> Result<Vec<Result<JobId, JobError>>, JobError> {
    let chains: BTreeSet<&ChainName> = all.iter().map(|new| &new.chain).collect();
    let mut answers: BTreeMap<usize, Result<JobId, JobError>> = BTreeMap::new();
    // In the order of names, so that two batches over several chains wait for each other instead of deadlocking.
    for chain in chains {
        let of_chain = all.iter().enumerate().filter(|(_, new)| new.chain == *chain).collect::<Vec<_>>();
        enqueue_on_chain(tx, chain, &of_chain, max_tries, &mut answers).await?;
    }
    Ok(answers.into_values().collect())
}

async fn enqueue_on_chain(
    tx: &mut PgConnection,
    chain: &ChainName,
    all: &[(usize, &NewWithdrawal)],
    max_tries: u32,
    answers: &mut BTreeMap<usize, Result<JobId, JobError>>,
) -> Result<(), JobError> {
    let now = wallet::repo::lock_selection_in(tx, chain).await?;
    let ids: Vec<Uuid> = all.iter().map(|(_, new)| new.id.as_uuid()).collect();
    let known: BTreeMap<WithdrawalId, Job> = repo::by_withdrawals(&mut *tx, &ids)
        .await?
        .into_iter()
        .filter_map(|job| Some((job.withdrawal?, job)))
        .collect();
    let place = Place {
        format: catalogue::repo::chain(&mut *tx, chain).await?.map(|chain| chain.kind.address_format()),
        assets: catalogue::repo::assets(&mut *tx, Some(chain)).await?,
        own: wallet::repo::addresses_in(tx, chain).await?,
    };
    let mut fresh: Vec<Fresh<'_>> = Vec::new();
    for (index, new) in all {
        let answer = match known.get(&new.id) {
            Some(job) => same_payload(job, new).map(|()| job.id),
            None => match fresh.iter().find(|earlier| earlier.new.id == new.id) {
                Some(earlier) => same_new(earlier.new, new).map(|()| earlier.id),
                None => place.check(new).map(|(asset, destination)| {
                    let id = JobId::new();
                    fresh.push(Fresh { id, new, asset, destination, choice: None, blocked: None });
                    id
                }),
            },
        };
        answers.insert(*index, answer);
    }
    choose_payers(tx, chain, &mut fresh, now).await?;
    insert_in(tx, &fresh, max_tries).await?;
    announce_in(tx, chain, &fresh).await
}

/// What a chain's withdrawals are checked against.
struct Place {
    format: Option<AddressFormat>,
    assets: Vec<Asset>,
    own: Vec<String>,
}

impl Place {
    /// What intent has checked too; a mistake here would be paid for, so nothing is taken on trust.
    fn check(&self, new: &NewWithdrawal) -> Result<(Asset, Address), JobError> {
        let wrong = |field, problem: String| JobError::Invalid { field, problem };
        let asset = self.assets.iter().find(|asset| asset.symbol == new.asset);
        let (Some(asset), Some(format)) = (asset, self.format) else {
            return Err(JobError::NoAsset { chain: new.chain.clone(), asset: new.asset.clone() });
        };
        let destination = Address::parse(format, &new.destination)
            .map_err(|error| wrong("destination", error.to_string()))?;
        if destination.is_zero() {
            return Err(wrong("destination", "is the zero address".to_owned()));
        }
        if asset.contract == Some(destination) {
            return Err(wrong("destination", "is the token's own contract".to_owned()));
        }
        if self.own.contains(&destination.to_string()) {
            return Err(wrong("destination", "is one of our own wallets".to_owned()));
        }
        if new.amount.is_zero() {
            return Err(wrong("amount_raw", "must be above zero".to_owned()));
        }
        Ok((asset.clone(), destination))
    }
}

/// Names the first field in which a repeated request differs.
fn same_payload(job: &Job, new: &NewWithdrawal) -> Result<(), JobError> {
    let other = |field| Err(JobError::OtherPayload { field });
    if job.chain != new.chain {
        return other("chain");
    }
    if job.symbol != new.asset {
        return other("asset");
    }
    if job.amount != new.amount {
        return other("amount_raw");
    }
    let destination = Address::parse(job.to.format(), &new.destination);
    if destination.as_ref() != Ok(&job.to) {
        return other("destination");
    }
    if job.requested_by != new.requested_by {
        return other("requested_by");
    }
    if job.on_behalf_of != new.on_behalf_of {
        return other("on_behalf_of");
    }
    Ok(())
}

/// The same among requests that arrived together.
fn same_new(first: &NewWithdrawal, second: &NewWithdrawal) -> Result<(), JobError> {
    let other = |field| Err(JobError::OtherPayload { field });
    if first.asset != second.asset {
        return other("asset");
    }
    if first.amount != second.amount {
        return other("amount_raw");
    }
    if first.destination != second.destination {
        return other("destination");
    }
    if first.requested_by != second.requested_by {
        return other("requested_by");
    }
    if first.on_behalf_of != second.on_behalf_of {
        return other("on_behalf_of");
    }
    Ok(())
}

/// Why nobody can pay: the reason a person reads on the request.
pub(super) fn no_liquidity(amount: RawAmount, asset: &Asset) -> String {
    let amount = format_amount(amount, asset.decimals);
    format!("no hot wallet with {amount} {} on {}", asset.symbol, asset.chain)
}

async fn choose_payers(
    tx: &mut PgConnection,
    chain: &ChainName,
    fresh: &mut [Fresh<'_>],
    now: DateTime<Utc>,
) -> Result<(), JobError> {
    let assets: BTreeSet<Uuid> = fresh.iter().map(|job| job.asset.id.as_uuid()).collect();
    let assets: Vec<Uuid> = assets.into_iter().collect();
    let mut candidates = wallet::repo::candidates_in(tx, chain, &assets).await?;
    let mut booked = Vec::new();
    for job in fresh.iter_mut() {
        let asset = job.asset.id.as_uuid();
        match book(&mut candidates, asset, job.new.amount, now) {
            Some(choice) => {
                job.choice = Some(choice);
                booked.push((asset, choice, job.new.amount));
            }
            None => job.blocked = Some(no_liquidity(job.new.amount, &job.asset)),
        }
    }
    if !booked.is_empty() {
        wallet::repo::reserve_in(tx, &booked).await?;
    }
    Ok(())
}

/// Chooses, and lets the wallet's other assets know that it was used.
pub(super) fn book(
    candidates: &mut BTreeMap<Uuid, Vec<Candidate>>,
    asset: Uuid,
    amount: RawAmount,
    now: DateTime<Utc>,
) -> Option<Choice> {
    let choice = wallet::choose(candidates.get_mut(&asset)?, amount, now)?;
    for candidate in candidates.values_mut().flatten().filter(|candidate| candidate.wallet == choice.wallet) {
        candidate.last_used_at = Some(choice.used_at);
    }
    Some(choice)
}

async fn insert_in(tx: &mut PgConnection, fresh: &[Fresh<'_>], max_tries: u32) -> Result<(), JobError> {
    if fresh.is_empty() {
        return Ok(());
    }
    let mut approvals = Vec::with_capacity(fresh.len());
    let mut traces = Vec::with_capacity(fresh.len());
    for job in fresh {
        approvals.push(serde_json::to_value(&job.new.approvals)?);
        traces.push(serde_json::to_value(&job.new.trace)?);
    }
    let column = |of: fn(&Fresh<'_>) -> String| fresh.iter().map(of).collect::<Vec<_>>();
    sqlx::query(include_str!("../../queries/insert_jobs.sql"))
        .bind(fresh.iter().map(|job| job.id.as_uuid()).collect::<Vec<_>>())
        .bind(fresh.iter().map(|job| job.new.id.as_uuid()).collect::<Vec<_>>())
        .bind(column(|job| job.new.chain.to_string()))
        .bind(fresh.iter().map(|job| job.asset.id.as_uuid()).collect::<Vec<_>>())
        .bind(fresh.iter().map(|job| job.choice.map(|choice| choice.wallet.as_uuid())).collect::<Vec<_>>())
        .bind(column(|job| job.destination.to_string()))
        .bind(column(|job| job.new.amount.to_string()))
        .bind(fresh.iter().map(|job| job.new.priority.rank()).collect::<Vec<_>>())
        .bind(fresh.iter().map(|job| job.blocked.clone()).collect::<Vec<_>>())
        .bind(column(|job| job.new.requested_by.clone()))
        .bind(approvals)
        .bind(traces)
        .bind(i32::try_from(max_tries).unwrap_or(i32::MAX))
        .bind(column(|job| job.new.on_behalf_of.clone()))
        .execute(tx)
        .await?;
    Ok(())
}

async fn announce_in(tx: &mut PgConnection, chain: &ChainName, fresh: &[Fresh<'_>]) -> Result<(), JobError> {
    let mut told = Vec::with_capacity(fresh.len());
    for job in fresh {
        let tell = |progress| Told::progress(job.new.id, progress).traced(job.new.trace.clone());
        told.push(tell(Progress::Queued(intent::Queued { job_id: job.id.to_string() })));
        if let Some(reason) = &job.blocked {
            told.push(tell(Progress::Blocked(intent::Blocked { reason: reason.clone() })));
        }
        tracing::info!(
            job_id = %job.id, withdrawal_id = %job.new.id, %chain, asset = %job.new.asset, amount = %job.new.amount,
            to = %job.destination, priority = %job.new.priority, blocked = job.blocked.as_deref(), "withdrawal enqueued"
        );
    }
    tell_in(tx, &told).await?;
    let due: Vec<NewJob> = fresh
        .iter()
        .map(|job| NewJob { job_id: job.id.as_uuid(), priority: job.new.priority, due: Due::Now })
        .collect();
    JobQueue::Withdrawal.on(chain).push_many_in(tx, &due).await?;
    Ok(())
}
