//! Use cases of watches: begin or extend one, show one, list them.

use payment::Effect;
use sqlx::PgPool;
use telemetry::propagation;
use types::{ChainName, JobId, WithdrawalId};

use super::add::NewTransaction;
use super::batch::{self, PutCommand, PutOutcome, WatchWriter};
use super::repo::{self, StoredWatch, list};
use crate::error::Error;
use crate::verdict::{self, StoredObservation};
use crate::{chains, heads};

/// What execution wants watched.
#[derive(Debug, Clone)]
pub struct PutWatch {
    pub job: JobId,
    pub withdrawal: Option<WithdrawalId>,
    pub chain: ChainName,
    pub effect: Effect,
    pub transactions: Vec<NewTransaction>,
}

#[derive(Debug, Clone)]
pub struct WatchApp {
    pool: PgPool,
    writer: WatchWriter,
}

impl WatchApp {
    /// Call it inside a Tokio runtime: it starts the batch writer, which ends with the last clone.
    pub fn new(pool: PgPool) -> Self {
        Self { writer: batch::start(db::dedicated_pool(&pool, 1)), pool }
    }

    /// The chain's settings, which are needed to parse a request.
    pub async fn settings(&self, chain: &ChainName) -> Result<chains::Settings, Error> {
        let found = chains::repo::find(&self.pool, chain).await?;
        found.ok_or_else(|| Error::UnknownChain { chain: chain.clone() })
    }

    /// Begins or extends a watch. A repeated request changes nothing and returns the watch as it is.
    pub async fn put(&self, request: PutWatch) -> Result<StoredWatch, Error> {
        let command = PutCommand { request, trace: propagation::current() };
        let PutOutcome { stored, begun, added } = self.writer.call(command).await?;
        if begun || added > 0 {
            let (job, chain) = (stored.watch.job, &stored.watch.chain);
            tracing::info!(%job, %chain, added, round = stored.watch.round, "watching");
        }
        Ok(stored)
    }

    pub async fn get(&self, job: JobId) -> Result<StoredWatch, Error> {
        repo::find(&self.pool, job).await?.ok_or(Error::WatchNotFound { job })
    }

    /// What was observed of a watch, oldest first.
    pub async fn observations(&self, job: JobId) -> Result<Vec<StoredObservation>, Error> {
        verdict::repo::observations(&self.pool, job).await
    }

    pub async fn list(&self, query: &list::WatchQuery) -> Result<list::WatchPage, Error> {
        list::page(&self.pool, query).await
    }

    /// The newest canonical block of each chain, for counting confirmations.
    pub async fn tips(&self) -> Result<heads::Tips, Error> {
        heads::repo::tips(&self.pool).await
    }
}
