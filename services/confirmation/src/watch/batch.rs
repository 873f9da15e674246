//! Batch writes of `PutWatch`: requests that arrive together share one transaction and a handful of statements.
//!
//! Owns that transaction. The truth is [`PendingWatch::put`], which takes one request; a batch loads all its watches, applies
//! that function to one request after the other and saves the result, so a request in a batch does what it does alone. A
//! refused request rolls the whole batch back, and the batch writer then writes each request alone, so that nothing of a
//! refused request is kept. A property test compares random batches with the same requests one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use db::{BatchError, BatchWriter};
use payment::Effect;
use sqlx::{PgConnection, PgPool};
use telemetry::{TraceContext, crash_point};
use types::{ChainName, JobId};

use super::add::Added;
use super::app::PutWatch;
use super::domain::Watch;
use super::repo::{self, ChangedWatch, StoredWatch, transactions};
use crate::error::Error;
use crate::verdict::{Observation, ObservationKind, repo as verdicts};
use crate::wake;

/// What is to be watched, and the trace it belongs to.
#[derive(Debug, Clone)]
pub struct PutCommand {
    pub request: PutWatch,
    pub trace: TraceContext,
}

#[derive(Debug)]
pub struct PutOutcome {
    pub stored: StoredWatch,
    /// Whether this request began the watch.
    pub begun: bool,
    /// How many transactions were new.
    pub added: usize,
}

pub(super) type WatchWriter = BatchWriter<PutCommand, PutOutcome, Error>;

pub(super) fn start(pool: PgPool) -> WatchWriter {
    BatchWriter::start("watches", move |commands: Arc<[PutCommand]>| {
        let pool = pool.clone();
        async move { put_batch(&pool, &commands).await }
    })
}

impl BatchError for Error {
    fn retry(&self) -> bool {
        Error::retry(self)
    }

    fn not_now() -> Self {
        Self::Database(sqlx::Error::PoolTimedOut)
    }
}

/// Writes these requests in one transaction, or none of them.
pub async fn put_batch(
    pool: &PgPool,
    commands: &[PutCommand],
) -> Result<Vec<Result<PutOutcome, Error>>, Error> {
    let mut tx = db::begin(pool).await?;
    let mut blanks: BTreeMap<JobId, (Watch, &TraceContext)> = BTreeMap::new();
    for PutCommand { request, trace } in commands {
        let PutWatch { job, withdrawal, chain, effect, .. } = request;
        let blank = || (Watch::new(*job, *withdrawal, chain.clone(), *effect), trace);
        blanks.entry(*job).or_insert_with(blank);
    }
    let jobs: Vec<JobId> = blanks.keys().copied().collect();
    let mut begun = repo::insert_in(&mut tx, &blanks.into_values().collect::<Vec<_>>()).await?;
    let loaded = repo::load_in(&mut tx, &jobs).await?;
    let mut pending: BTreeMap<JobId, PendingWatch> =
        loaded.into_iter().map(|stored| (stored.watch.job, PendingWatch::new(stored))).collect();
    let mut outcomes = Vec::with_capacity(commands.len());
    for PutCommand { request, .. } in commands {
        let job = request.job;
        let watch = pending.get_mut(&job).ok_or(Error::WatchNotFound { job })?;
        let added = watch.put(request)?;
        outcomes.push(Ok(PutOutcome { stored: watch.stored.clone(), begun: begun.remove(&job), added }));
    }
    save_in(&mut tx, &pending.into_values().collect::<Vec<_>>()).await?;
    commands.iter().for_each(|_| crash_point("confirmation.before_watch"));
    tx.commit().await?;
    commands.iter().for_each(|_| crash_point("confirmation.after_watch"));
    Ok(outcomes)
}

/// A watch, and what requests changed of it so far.
struct PendingWatch {
    stored: StoredWatch,
    /// How many transactions are already in the database.
    known: usize,
    renewed: bool,
    /// Transactions that are already in the database moved to another round.
    reopened: bool,
    rounds: Vec<Observation>,
}

impl PendingWatch {
    fn new(stored: StoredWatch) -> Self {
        let known = stored.watch.transactions.len();
        Self { stored, known, renewed: false, reopened: false, rounds: Vec::new() }
    }

    /// Applies one request and returns how many transactions are new.
    fn put(&mut self, request: &PutWatch) -> Result<usize, Error> {
        let stored = &mut self.stored;
        same_job(&stored.watch, request)?;
        let before = stored.watch.transactions.len();
        for new in &request.transactions {
            match stored.watch.add(new)? {
                Added::Known | Added::ToEndedRound => {}
                Added::ToOpenRound => self.renewed = true,
                added @ (Added::ToNewRound | Added::Reopened) => {
                    self.renewed = true;
                    self.reopened |= added == Added::Reopened;
                    stored.delayed_reason.clear();
                    self.rounds.push(Observation {
                        job: request.job,
                        kind: ObservationKind::Round,
                        tx: Some(new.hash),
                        block: None,
                        detail: format!("round {} begins", stored.watch.round),
                    });
                }
            }
        }
        Ok(stored.watch.transactions.len() - before)
    }
}

async fn save_in(tx: &mut PgConnection, pending: &[PendingWatch]) -> Result<(), Error> {
    let added: Vec<&PendingWatch> =
        pending.iter().filter(|watch| watch.stored.watch.transactions.len() > watch.known).collect();
    if added.is_empty() {
        return Ok(());
    }
    let new: Vec<(&Watch, usize)> = added.iter().map(|watch| (&watch.stored.watch, watch.known)).collect();
    transactions::insert_in(tx, &new).await?;
    let reopened: Vec<&Watch> =
        added.iter().filter(|watch| watch.reopened).map(|watch| &watch.stored.watch).collect();
    transactions::judge_again_in(tx, &reopened).await?;
    let changed: Vec<ChangedWatch<'_>> =
        added.iter().map(|watch| ChangedWatch { stored: &watch.stored, renewed: watch.renewed }).collect();
    repo::save_in(tx, &changed).await?;
    let rounds: Vec<Observation> = added.iter().flat_map(|watch| watch.rounds.iter().cloned()).collect();
    verdicts::observe_in(tx, &rounds).await?;
    let chains: BTreeSet<&ChainName> = added.iter().map(|watch| &watch.stored.watch.chain).collect();
    for chain in chains {
        db::wake_in(tx, &wake::watches(chain)).await?;
    }
    Ok(())
}

/// A job cannot be watched for something else than before.
fn same_job(known: &Watch, request: &PutWatch) -> Result<(), Error> {
    let effect = match (&known.effect, &request.effect) {
        (Effect::Moves(known), Effect::Moves(new)) => [
            ("effect.from_address", known.from == new.from),
            ("effect.to_address", known.to == new.to),
            ("effect.amount_raw", known.amount == new.amount),
            ("effect.contract_address", known.asset == new.asset),
        ],
        (known, new) => [("effect", known == new); 4],
    };
    let job =
        [("chain", known.chain == request.chain), ("withdrawal_id", known.withdrawal == request.withdrawal)];
    match job.into_iter().chain(effect).find(|(_, is_same)| !is_same) {
        Some((field, _)) => Err(Error::Differs { job: request.job, field }),
        None => Ok(()),
    }
}
