//! Watches that are begun or extended together: one transaction and a handful of statements for all that arrive at once.
//!
//! Owns that transaction. A call that is refused breaks the group, which is then written call by call (see `db::group`), so
//! that nothing of a refused call stays behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use db::{BatchError, BatchWriter};
use sqlx::{PgConnection, PgPool};
use telemetry::{TraceContext, crash_point};
use types::{ChainName, JobId};

use super::app::PutWatch;
use super::domain::{State, Watch};
use super::error::WatchError;
use super::put::Added;
use super::repo::{self, Changed, Observation};
use super::row::Stored;
use crate::wake;

/// What is to be watched, and the trace it belongs to.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) request: PutWatch,
    pub(super) trace: TraceContext,
}

/// The watch as it stands, and whether it is news.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) stored: Stored,
    pub(super) begun: bool,
    /// Transactions it did not have before.
    pub(super) added: usize,
}

/// The way into the transaction.
pub(super) type Desk = BatchWriter<Call, Put, WatchError>;

pub(super) fn start(pool: PgPool) -> Desk {
    BatchWriter::start("watches", move |calls: Arc<[Call]>| {
        let pool = pool.clone();
        async move { write(&pool, &calls).await }
    })
}

impl BatchError for WatchError {
    fn retry(&self) -> bool {
        WatchError::retry(self)
    }

    fn not_now() -> Self {
        Self::Database(sqlx::Error::PoolTimedOut)
    }
}

async fn write(pool: &PgPool, calls: &[Call]) -> Result<Vec<Result<Put, WatchError>>, WatchError> {
    let mut tx = db::begin(pool).await?;
    let mut blanks: BTreeMap<JobId, (Watch, &TraceContext)> = BTreeMap::new();
    for call in calls {
        blanks.entry(call.request.job).or_insert_with(|| (blank(&call.request), &call.trace));
    }
    let mut begun = repo::insert_in(&mut tx, &blanks.into_values().collect::<Vec<_>>()).await?;
    let jobs: BTreeSet<JobId> = calls.iter().map(|call| call.request.job).collect();
    let loaded = repo::load_in(&mut tx, &jobs.into_iter().collect::<Vec<_>>()).await?;
    let mut open: BTreeMap<JobId, Open> =
        loaded.into_iter().map(|stored| (stored.watch.job, Open::new(stored))).collect();
    let mut answers = Vec::with_capacity(calls.len());
    for Call { request, .. } in calls {
        let watch = open.get_mut(&request.job).ok_or(WatchError::NotFound { job: request.job })?;
        let added = watch.add(request)?;
        let begun = begun.remove(&request.job);
        answers.push(Ok(Put { stored: watch.stored.clone(), begun, added }));
    }
    save_in(&mut tx, &open.into_values().collect::<Vec<_>>()).await?;
    calls.iter().for_each(|_| crash_point("confirmation.before_watch"));
    tx.commit().await?;
    calls.iter().for_each(|_| crash_point("confirmation.after_watch"));
    Ok(answers)
}

fn blank(request: &PutWatch) -> Watch {
    Watch {
        job: request.job,
        withdrawal: request.withdrawal,
        chain: request.chain.clone(),
        effect: request.effect,
        transactions: Vec::new(),
        round: 1,
        state: State::Waiting,
        contradicted: false,
        since_block: 0,
    }
}

/// A watch, and what was added to it so far.
struct Open {
    stored: Stored,
    known: usize,
    renewed: bool,
    /// Transactions it had before are in another round now.
    reopened: bool,
    rounds: Vec<Observation>,
}

impl Open {
    fn new(stored: Stored) -> Self {
        Self {
            known: stored.watch.transactions.len(),
            stored,
            renewed: false,
            reopened: false,
            rounds: Vec::new(),
        }
    }

    /// Adds what is new; how much that is.
    fn add(&mut self, request: &PutWatch) -> Result<usize, WatchError> {
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
                    let detail = format!("round {} begins", stored.watch.round);
                    let (job, tx) = (request.job, Some(new.hash));
                    self.rounds.push(Observation { job, kind: "round", tx, block: None, detail });
                }
            }
        }
        Ok(stored.watch.transactions.len() - before)
    }
}

async fn save_in(tx: &mut PgConnection, open: &[Open]) -> Result<(), WatchError> {
    let added: Vec<&Open> =
        open.iter().filter(|open| open.stored.watch.transactions.len() > open.known).collect();
    if added.is_empty() {
        return Ok(());
    }
    let new: Vec<(&Watch, usize)> = added.iter().map(|open| (&open.stored.watch, open.known)).collect();
    repo::insert_transactions_in(tx, &new).await?;
    let reopened: Vec<&Watch> =
        added.iter().filter(|open| open.reopened).map(|open| &open.stored.watch).collect();
    repo::judge_again_in(tx, &reopened).await?;
    let changed: Vec<Changed<'_>> =
        added.iter().map(|open| Changed { stored: &open.stored, renewed: open.renewed }).collect();
    repo::save_in(tx, &changed).await?;
    let rounds: Vec<Observation> = added.iter().flat_map(|open| open.rounds.iter().cloned()).collect();
    repo::observe_in(tx, &rounds).await?;
    let chains: BTreeSet<&ChainName> = added.iter().map(|open| &open.stored.watch.chain).collect();
    for chain in chains {
        db::wake_in(tx, &wake::watches(chain)).await?;
    }
    Ok(())
}

fn same_job(known: &Watch, asked: &PutWatch) -> Result<(), WatchError> {
    let job = asked.job;
    let differs = |field| Err(WatchError::Differs { job, field });
    if known.chain != asked.chain {
        return differs("chain");
    }
    if known.withdrawal != asked.withdrawal {
        return differs("withdrawal_id");
    }
    if known.effect.from != asked.effect.from {
        return differs("effect.from_address");
    }
    if known.effect.to != asked.effect.to {
        return differs("effect.to_address");
    }
    if known.effect.amount != asked.effect.amount {
        return differs("effect.amount_raw");
    }
    if known.effect.asset != asked.effect.asset {
        return differs("effect.contract_address");
    }
    Ok(())
}
