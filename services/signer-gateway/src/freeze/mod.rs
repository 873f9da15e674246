//! The kill switch. Owns which chains nothing is signed for. Takes the head's lock like every decision, so that after a
//! freeze returned no signature for that chain is committed, on any replica.

use serde_json::json;
use sqlx::PgPool;
use types::ChainName;

use crate::audit::{self, Decision, Draft};

const ALL: &str = "*";

/// Why the switch did not move.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// A reason is for the people who find the chain frozen.
    #[error("a reason has 1 to 500 characters")]
    Reason,
    /// The database did not answer. Until it does, nothing can be signed either.
    #[error("the freeze cannot be read or written")]
    Database(#[from] sqlx::Error),
}

/// Freezes and unfreezes.
#[derive(Debug, Clone)]
pub struct Freezes {
    pool: PgPool,
}

impl Freezes {
    /// Over the signer's database.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Stops signing for one chain, or for all. A second freeze keeps the first one's reason.
    pub async fn freeze(
        &self,
        caller: &str,
        chain: Option<&ChainName>,
        reason: &str,
    ) -> Result<(), FreezeError> {
        if !(1..=500).contains(&reason.chars().count()) {
            return Err(FreezeError::Reason);
        }
        let scope = chain.map_or(ALL, ChainName::as_str);
        let mut tx = db::begin(&self.pool).await?;
        audit::append_in(&mut tx, vec![draft(caller, "freeze", scope, Some(reason))]).await?;
        sqlx::query(
            "INSERT INTO freezes (chain, reason, frozen_by) VALUES ($1, $2, $3) ON CONFLICT (chain) DO NOTHING",
        )
        .bind(scope)
        .bind(reason)
        .bind(caller)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        tracing::warn!(chain = scope, caller, reason, "signing frozen");
        metrics::gauge!("bursar_signer_frozen", "chain" => scope.to_owned()).set(1.0);
        Ok(())
    }

    /// Lets signing go on.
    pub async fn unfreeze(&self, caller: &str, chain: Option<&ChainName>) -> Result<(), FreezeError> {
        let scope = chain.map_or(ALL, ChainName::as_str);
        let mut tx = db::begin(&self.pool).await?;
        audit::append_in(&mut tx, vec![draft(caller, "unfreeze", scope, None)]).await?;
        sqlx::query("DELETE FROM freezes WHERE chain = $1").bind(scope).execute(&mut *tx).await?;
        tx.commit().await?;
        tracing::warn!(chain = scope, caller, "signing unfrozen");
        metrics::gauge!("bursar_signer_frozen", "chain" => scope.to_owned()).set(0.0);
        Ok(())
    }

    /// What is frozen; `*` for everything.
    pub async fn list(&self) -> Result<Vec<String>, FreezeError> {
        Ok(sqlx::query_scalar("SELECT chain FROM freezes ORDER BY chain").fetch_all(&self.pool).await?)
    }
}

fn draft(caller: &str, action: &'static str, scope: &str, reason: Option<&str>) -> Draft {
    Draft {
        caller: caller.to_owned(),
        action,
        decision: Decision::Allowed,
        reason: format!("{action}.done"),
        detail: json!({"chain": scope, "reason": reason}).to_string(),
    }
}
