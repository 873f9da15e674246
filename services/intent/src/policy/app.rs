//! Use cases of approval policies.

use sqlx::PgPool;

use super::domain::{Policy, PolicyDraft};
use super::repo;
use crate::approvers::Approvers;
use crate::catalogue;
use crate::error::RuleError;

#[derive(Debug, Clone)]
pub struct Policies {
    pool: PgPool,
    approvers: Approvers,
}

impl Policies {
    pub fn new(pool: PgPool, approvers: Approvers) -> Self {
        Self { pool, approvers }
    }

    /// Creates or replaces the policy of an asset. Requests made before keep the number of approvals they were given.
    pub async fn put(&self, draft: PolicyDraft, by: &str) -> Result<Policy, RuleError> {
        let mut tx = db::begin(&self.pool).await?;
        let Some(entry) = catalogue::repo::find_in(&mut tx, &draft.chain, &draft.asset).await? else {
            return Err(RuleError::AssetUnknown { chain: draft.chain, asset: draft.asset });
        };
        let policy = draft.check(entry.decimals, &self.approvers).map_err(RuleError::Invalid)?;
        repo::put_in(&mut tx, &policy, by).await?;
        tx.commit().await?;
        tracing::info!(
            chain = %policy.chain, asset = %policy.asset, tiers = ?policy.tiers, approvers = ?policy.approvers, by,
            "approval policy stored"
        );
        Ok(policy)
    }

    pub async fn list(&self) -> Result<Vec<Policy>, RuleError> {
        let mut connection = self.pool.acquire().await?;
        Ok(repo::list_in(&mut connection).await?)
    }
}
