//! Taking approved withdrawals: choose the payer, reserve, insert, queue and report, in one transaction for a whole batch.
//!
//! Two calls for one withdrawal (from two replicas, or a replay) must make one job. Both take the chain's selection lock before
//! they look, so the second one sees the first; the unique key would refuse the second in any case.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use db::Due;
use db::queue::NewJob;
use proto::intent::v1 as intent_pb;
use proto::intent::v1::record_progress_request::Progress;
use sqlx::PgConnection;
use telemetry::TraceContext;
use types::{
    Address, AddressFormat, AssetSymbol, ChainName, JobId, Priority, RawAmount, WithdrawalId, format_amount,
};
use uuid::Uuid;

use crate::catalogue::{self, Asset};
use crate::job::{Approval, Job, JobError, repo};
use crate::outbox::{JobMessage, enqueue_in as enqueue_messages_in};
use crate::queue::JobQueue;
use crate::wallet::{self, Candidate, Choice, WalletRole};

/// An approved withdrawal, as intent sends it.
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
    /// Empty when the requester acted for themselves.
    pub on_behalf_of: String,
    pub approvals: Vec<Approval>,
    pub trace: TraceContext,
}

/// A job that is to be inserted.
pub(crate) struct EnqueuedJob<'a> {
    pub id: JobId,
    pub new: &'a NewWithdrawal,
    pub asset: Asset,
    pub destination: Address,
    pub choice: Option<Choice>,
    pub blocked: Option<String>,
}

/// Takes all of these; one result for each, in their order. An error of the whole is one of the database.
pub(super) async fn enqueue_in(
    tx: &mut PgConnection,
    all: &[NewWithdrawal],
    max_tries: u32,
) -> Result<Vec<Result<JobId, JobError>>, JobError> {
    let chains: BTreeSet<&ChainName> = all.iter().map(|new| &new.chain).collect();
    let mut results: BTreeMap<usize, Result<JobId, JobError>> = BTreeMap::new();
    // In the order of names, so that two batches over several chains wait for each other instead of deadlocking.
    for chain in chains {
        let of_chain = all.iter().enumerate().filter(|(_, new)| new.chain == *chain).collect::<Vec<_>>();
        enqueue_on_chain(tx, chain, &of_chain, max_tries, &mut results).await?;
    }
    Ok(results.into_values().collect())
}

async fn enqueue_on_chain(
    tx: &mut PgConnection,
    chain: &ChainName,
    all: &[(usize, &NewWithdrawal)],
    max_tries: u32,
    results: &mut BTreeMap<usize, Result<JobId, JobError>>,
) -> Result<(), JobError> {
    let now = wallet::repo::lock_selection_in(tx, chain).await?;
    let ids: Vec<Uuid> = all.iter().map(|(_, new)| new.id.as_uuid()).collect();
    let known: BTreeMap<WithdrawalId, Job> = repo::by_withdrawals(&mut *tx, &ids)
        .await?
        .into_iter()
        .filter_map(|job| Some((job.withdrawal?, job)))
        .collect();
    let rules = DestinationRules {
        format: catalogue::repo::chain(&mut *tx, chain).await?.map(|chain| chain.kind),
        assets: catalogue::repo::assets(&mut *tx, Some(chain)).await?,
        own: wallet::repo::addresses_in(tx, chain).await?,
    };
    let mut fresh: Vec<EnqueuedJob<'_>> = Vec::new();
    for (index, new) in all {
        let result = match known.get(&new.id) {
            Some(job) => same_payload(job, new).map(|()| job.id),
            None => match fresh.iter().find(|earlier| earlier.new.id == new.id) {
                Some(earlier) => same_new(earlier.new, new).map(|()| earlier.id),
                None => rules.check(new).map(|(asset, destination)| {
                    let id = JobId::new();
                    fresh.push(EnqueuedJob { id, new, asset, destination, choice: None, blocked: None });
                    id
                }),
            },
        };
        results.insert(*index, result);
    }
    choose_payers(tx, chain, &mut fresh, now).await?;
    repo::inserts::insert_all_in(tx, JobQueue::WITHDRAWAL, &fresh, max_tries).await?;
    announce_in(tx, chain, &fresh).await
}

/// What a chain's withdrawals are checked against.
struct DestinationRules {
    format: Option<AddressFormat>,
    assets: Vec<Asset>,
    own: Vec<String>,
}

impl DestinationRules {
    /// Intent has checked the same, but a mistake here would be paid for, so it is checked again.
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

/// Names the first field in which a repeated request differs from the stored job.
fn same_payload(job: &Job, new: &NewWithdrawal) -> Result<(), JobError> {
    let same_destination = Address::parse(job.to.format(), &new.destination).as_ref() == Ok(&job.to);
    all_equal(&[
        ("chain", job.chain == new.chain),
        ("asset", job.symbol == new.asset),
        ("amount_raw", job.amount == new.amount),
        ("destination", same_destination),
        ("requested_by", job.requested_by == new.requested_by),
        ("on_behalf_of", job.on_behalf_of == new.on_behalf_of),
    ])
}

/// The same for two requests of one batch.
fn same_new(first: &NewWithdrawal, second: &NewWithdrawal) -> Result<(), JobError> {
    all_equal(&[
        ("asset", first.asset == second.asset),
        ("amount_raw", first.amount == second.amount),
        ("destination", first.destination == second.destination),
        ("requested_by", first.requested_by == second.requested_by),
        ("on_behalf_of", first.on_behalf_of == second.on_behalf_of),
    ])
}

/// Names the first field that is not equal.
pub(super) fn all_equal(fields: &[(&'static str, bool)]) -> Result<(), JobError> {
    match fields.iter().find(|(_, equal)| !equal) {
        Some((field, _)) => Err(JobError::OtherPayload { field }),
        None => Ok(()),
    }
}

/// The reason that a person reads on the request.
pub(super) fn no_liquidity(amount: RawAmount, asset: &Asset) -> String {
    let amount = format_amount(amount, asset.decimals);
    format!("no hot wallet with {amount} {} on {}", asset.symbol, asset.chain)
}

async fn choose_payers(
    tx: &mut PgConnection,
    chain: &ChainName,
    fresh: &mut [EnqueuedJob<'_>],
    now: DateTime<Utc>,
) -> Result<(), JobError> {
    let assets: BTreeSet<Uuid> = fresh.iter().map(|job| job.asset.id.as_uuid()).collect();
    let assets: Vec<Uuid> = assets.into_iter().collect();
    let mut candidates = wallet::repo::candidates_in(tx, chain, WalletRole::Hot, &assets).await?;
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

/// Chooses a wallet, and marks it as used for its other assets too.
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

async fn announce_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    fresh: &[EnqueuedJob<'_>],
) -> Result<(), JobError> {
    let mut messages = Vec::with_capacity(fresh.len());
    for job in fresh {
        let message = |progress| JobMessage::progress(job.new.id, progress).in_trace(job.new.trace.clone());
        messages.push(message(Progress::Queued(intent_pb::Queued { job_id: job.id.to_string() })));
        if let Some(reason) = &job.blocked {
            messages.push(message(Progress::Blocked(intent_pb::Blocked { reason: reason.clone() })));
        }
        tracing::info!(
            job_id = %job.id, withdrawal_id = %job.new.id, %chain, asset = %job.new.asset, amount = %job.new.amount,
            to = %job.destination, priority = %job.new.priority, blocked = job.blocked.as_deref(), "withdrawal enqueued"
        );
    }
    enqueue_messages_in(tx, &messages).await?;
    let due: Vec<NewJob> = fresh
        .iter()
        .map(|job| NewJob { job_id: job.id.as_uuid(), priority: job.new.priority, due: Due::Now })
        .collect();
    JobQueue::WITHDRAWAL.on(chain).push_many_in(tx, &due).await?;
    Ok(())
}
