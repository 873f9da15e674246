//! Use cases of limits. They are checked in the transaction that creates a withdrawal, see `withdrawal/batch`.

use sqlx::PgPool;

use super::domain::{Limit, LimitDraft, LimitId};
use super::repo;
use crate::catalogue;
use crate::error::RuleError;

#[derive(Debug, Clone)]
pub struct Limits {
    pool: PgPool,
}

impl Limits {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Creates or replaces the limit of a scope, asset and window.
    pub async fn put(&self, draft: LimitDraft, by: &str) -> Result<Limit, RuleError> {
        let mut connection = self.pool.acquire().await?;
        let Some(entry) = catalogue::repo::find_in(&mut connection, &draft.chain, &draft.asset).await? else {
            return Err(RuleError::AssetUnknown { chain: draft.chain, asset: draft.asset });
        };
        let mut limit = draft.check(entry.decimals).map_err(RuleError::Invalid)?;
        limit.id = repo::put_in(&mut connection, &limit, by).await?;
        tracing::info!(id = %limit.id, limit = limit.describe(), by, "limit stored");
        Ok(limit)
    }

    /// Deleting a limit again is not an error.
    pub async fn delete(&self, id: LimitId, by: &str) -> Result<(), RuleError> {
        let mut connection = self.pool.acquire().await?;
        let removed = repo::delete_in(&mut connection, id).await?;
        tracing::info!(%id, by, removed, "limit deleted");
        Ok(())
    }

    pub async fn list(&self) -> Result<Vec<Limit>, RuleError> {
        let mut connection = self.pool.acquire().await?;
        Ok(repo::list_in(&mut connection).await?)
    }
}
