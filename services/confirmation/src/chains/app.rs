//! Use cases of chains: store settings, resume a halted chain, report the status of each.

use sqlx::PgPool;
use types::ChainName;

use super::domain::Settings;
use super::repo;
use crate::error::Error;
use crate::heads::{self, ChainStatus};
use crate::wake;

#[derive(Debug, Clone)]
pub struct ChainApp {
    pool: PgPool,
}

impl ChainApp {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Stores settings unless they are older than what is known. The loops pick them up by themselves.
    ///
    /// # Errors
    /// When the chain is known as one of another kind or network.
    pub async fn put(&self, settings: &Settings) -> Result<(), Error> {
        let mut tx = db::begin(&self.pool).await?;
        let stored = repo::put_in(&mut tx, settings).await?;
        if !stored && repo::is_other_network_in(&mut tx, settings).await? {
            return Err(Error::OtherNetwork { chain: settings.name.clone() });
        }
        if stored {
            db::wake_in(&mut tx, wake::CHAINS).await?;
            db::wake_in(&mut tx, &wake::watches(&settings.name)).await?;
        }
        tx.commit().await?;
        if stored {
            tracing::info!(chain = %settings.name, revision = settings.revision, ?settings, "chain settings stored");
        }
        Ok(())
    }

    /// Allows verdicts on a halted chain again. A chain that is not halted stays as it is.
    pub async fn resume(&self, chain: &ChainName, by: &str) -> Result<(), Error> {
        if !repo::resume(&self.pool, chain).await? {
            return Err(Error::ChainNotFound { chain: chain.clone() });
        }
        tracing::warn!(%chain, by, "chain resumed");
        Ok(())
    }

    pub async fn statuses(&self) -> Result<Vec<ChainStatus>, Error> {
        heads::repo::statuses(&self.pool).await
    }
}
