//! Use cases of watches: begin or extend one, show one, list them.

use chain::Transfer;
use sqlx::PgPool;
use telemetry::propagation;
use types::{ChainName, JobId, WithdrawalId};

use super::domain::{State, Watch};
use super::error::WatchError;
use super::list::{self, Page, Query};
use super::put::{Added, NewTx};
use super::repo::{self, Changed, Observation};
use super::row::Stored;
use crate::chains;
use crate::wake;

/// What execution wants watched.
#[derive(Debug, Clone)]
pub struct PutWatch {
    pub job: JobId,
    pub withdrawal: Option<WithdrawalId>,
    pub chain: ChainName,
    pub effect: Transfer,
    pub transactions: Vec<NewTx>,
}

#[derive(Debug, Clone)]
pub struct WatchApp {
    pool: PgPool,
}

impl WatchApp {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// How a chain writes addresses; parsing a request needs it.
    pub async fn settings(&self, chain: &ChainName) -> Result<chains::Settings, WatchError> {
        let found = chains::repo::find(&self.pool, chain).await.map_err(|error| match error {
            chains::ChainsError::Database(source) => WatchError::Database(source),
            other => super::error::corrupt("chain", other),
        })?;
        found.ok_or_else(|| WatchError::UnknownChain { chain: chain.clone() })
    }

    /// Begins or extends a watch. The same request again changes nothing and returns the watch as it stands.
    pub async fn put(&self, request: PutWatch) -> Result<Stored, WatchError> {
        let mut tx = self.pool.begin().await?;
        let blank = Watch {
            job: request.job,
            withdrawal: request.withdrawal,
            chain: request.chain.clone(),
            effect: request.effect,
            transactions: Vec::new(),
            round: 1,
            state: State::Waiting,
            contradicted: false,
            since_block: 0,
        };
        let begun = repo::insert_in(&mut tx, &blank, &propagation::current()).await?;
        let mut stored = repo::load_in(&mut tx, &[request.job])
            .await?
            .pop()
            .ok_or(WatchError::NotFound { job: request.job })?;
        same_job(&stored.watch, &blank)?;
        let known = stored.watch.transactions.len();
        let (mut open, mut rounds) = (false, Vec::new());
        for new in &request.transactions {
            match stored.watch.add(new)? {
                Added::Known | Added::ToEndedRound => {}
                Added::ToOpenRound => open = true,
                Added::ToNewRound => {
                    open = true;
                    stored.delayed_reason.clear();
                    let detail = format!("round {} begins", stored.watch.round);
                    let job = request.job;
                    rounds.push(Observation { job, kind: "round", tx: Some(new.hash), block: None, detail });
                }
            }
        }
        let added = stored.watch.transactions.len() - known;
        if added > 0 {
            repo::insert_transactions_in(&mut tx, &stored.watch, known).await?;
            repo::save_in(&mut tx, &[Changed { stored: &stored, renewed: open }]).await?;
            repo::observe_in(&mut tx, &rounds).await?;
            wake::notify_in(&mut tx, &wake::watches(&request.chain)).await?;
        }
        tx.commit().await?;
        if begun || added > 0 {
            let (job, chain) = (stored.watch.job, &stored.watch.chain);
            tracing::info!(%job, %chain, added, round = stored.watch.round, "watching");
        }
        Ok(stored)
    }

    pub async fn get(&self, job: JobId) -> Result<Stored, WatchError> {
        repo::find(&self.pool, job).await?.ok_or(WatchError::NotFound { job })
    }

    pub async fn list(&self, query: &Query) -> Result<Page, WatchError> {
        list::page(&self.pool, query).await
    }

    /// Newest canonical block of each chain, for counting confirmations.
    pub async fn tips(&self) -> Result<list::Tips, WatchError> {
        list::tips(&self.pool).await
    }
}

fn same_job(known: &Watch, asked: &Watch) -> Result<(), WatchError> {
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
