//! Use cases of limits. Checking them is part of creating a withdrawal, in that transaction.

use sqlx::PgPool;

use super::domain::{Draft, Limit, LimitId};
use super::error::LimitError;
use super::repo;
use crate::catalogue;

/// The limits, as operators see them.
#[derive(Debug, Clone)]
pub struct Limits {
    pool: PgPool,
}

impl Limits {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Creates or replaces the limit of a scope, asset and window.
    pub async fn put(&self, draft: Draft, by: &str) -> Result<Limit, LimitError> {
        let mut connection = self.pool.acquire().await?;
        let Some(entry) = catalogue::repo::find_in(&mut connection, &draft.chain, &draft.asset).await? else {
            return Err(LimitError::AssetUnknown { chain: draft.chain, asset: draft.asset });
        };
        let mut limit = draft.check(entry.decimals).map_err(LimitError::Invalid)?;
        limit.id = repo::put_in(&mut connection, &limit, by).await?;
        tracing::info!(id = %limit.id, limit = limit.describe(), by, "limit stored");
        Ok(limit)
    }

    /// Removes a limit; removing it again is no error.
    pub async fn delete(&self, id: LimitId, by: &str) -> Result<(), LimitError> {
        let mut connection = self.pool.acquire().await?;
        let removed = repo::delete_in(&mut connection, id).await?;
        tracing::info!(%id, by, removed, "limit deleted");
        Ok(())
    }

    /// Every limit.
    pub async fn list(&self) -> Result<Vec<Limit>, LimitError> {
        let mut connection = self.pool.acquire().await?;
        repo::list_in(&mut connection).await
    }
}
