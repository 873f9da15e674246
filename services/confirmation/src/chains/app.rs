//! Use cases of chains: taking settings, letting a halted chain go on, saying where each stands.

use sqlx::PgPool;
use types::ChainName;

use super::domain::Settings;
use super::error::ChainsError;
use super::repo;
use crate::heads::{self, ChainStanding};
use crate::wake;

#[derive(Debug, Clone)]
pub struct ChainApp {
    pool: PgPool,
}

impl ChainApp {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Takes settings unless they are older than what is known. The loops pick them up by themselves.
    ///
    /// # Errors
    /// When the chain is known as one of another kind or network.
    pub async fn put(&self, settings: &Settings) -> Result<(), ChainsError> {
        let mut tx = db::begin(&self.pool).await?;
        let taken = repo::put_in(&mut tx, settings).await?;
        if !taken && repo::is_other_network_in(&mut tx, settings).await? {
            return Err(ChainsError::OtherNetwork { chain: settings.name.clone() });
        }
        if taken {
            db::wake_in(&mut tx, wake::CHAINS).await?;
            db::wake_in(&mut tx, &wake::watches(&settings.name)).await?;
        }
        tx.commit().await?;
        if taken {
            tracing::info!(chain = %settings.name, revision = settings.revision, ?settings, "chain settings taken");
        }
        Ok(())
    }

    /// Lets verdicts on a halted chain go on. A chain that is not halted stays as it is.
    pub async fn resume(&self, chain: &ChainName, by: &str) -> Result<(), ChainsError> {
        if !repo::resume(&self.pool, chain).await? {
            return Err(ChainsError::NotFound { chain: chain.clone() });
        }
        tracing::warn!(%chain, by, "chain resumed");
        Ok(())
    }

    pub async fn standings(&self) -> Result<Vec<ChainStanding>, ChainsError> {
        heads::repo::standings(&self.pool).await
    }
}
