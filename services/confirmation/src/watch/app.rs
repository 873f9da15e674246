//! Use cases of watches: begin or extend one, show one, list them.

use payment::Transfer;
use sqlx::PgPool;
use telemetry::propagation;
use types::{ChainName, JobId, WithdrawalId};

use super::error::WatchError;
use super::list::{self, Page, Query};
use super::put::NewTx;
use super::repo;
use super::row::Stored;
use super::together::{self, Call, Desk, Put};
use crate::chains;

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
    /// Where watches are begun and extended together.
    desk: Desk,
}

impl WatchApp {
    /// Call it inside a Tokio runtime: it starts the writer of what arrives together, which ends with the last clone.
    pub fn new(pool: PgPool) -> Self {
        Self { desk: together::start(db::dedicated_pool(&pool, 1)), pool }
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
        let call = Call { request, trace: propagation::current() };
        let Put { stored, begun, added } = self.desk.call(call).await?;
        if begun || added > 0 {
            let (job, chain) = (stored.watch.job, &stored.watch.chain);
            tracing::info!(%job, %chain, added, round = stored.watch.round, "watching");
        }
        Ok(stored)
    }

    pub async fn get(&self, job: JobId) -> Result<Stored, WatchError> {
        repo::find(&self.pool, job).await?.ok_or(WatchError::NotFound { job })
    }

    /// What was seen of a watch, oldest first.
    pub async fn observations(&self, job: JobId) -> Result<Vec<list::Observed>, WatchError> {
        list::observations(&self.pool, job).await
    }

    pub async fn list(&self, query: &Query) -> Result<Page, WatchError> {
        list::page(&self.pool, query).await
    }

    /// Newest canonical block of each chain, for counting confirmations.
    pub async fn tips(&self) -> Result<list::Tips, WatchError> {
        list::tips(&self.pool).await
    }
}
