//! The kill switch. Owns which chains nothing is signed for. Takes the head's lock like every decision, so that after a
//! freeze returned no signature for that chain is committed, on any replica.
//!
//! Where it could hurt: somebody in a hurry misspells the chain and believes it frozen. So a freeze names a chain of the policy,
//! or all; what is lifted may have any name, as the policy may have lost a chain meanwhile.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::ChainName;

use crate::audit::{self, Decision, draft};
use crate::signing::PolicySource;

const ALL: &str = "*";
/// How often the table is read for the gauge: another replica may have been asked.
const TELL_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// A reason is for the people who find the chain frozen.
    #[error("a reason has 1 to 500 characters, none of them NUL")]
    Reason,
    #[error("chain {0} is not configured here, so there is nothing to freeze")]
    UnknownChain(ChainName),
    /// The database did not answer. Until it does, nothing can be signed either.
    #[error("the freeze cannot be read or written")]
    Database(#[from] sqlx::Error),
}

#[derive(Debug, Clone)]
pub struct Freezes {
    pool: PgPool,
    policy: PolicySource,
    moved: Arc<Notify>,
}

impl Freezes {
    pub fn new(pool: PgPool, policy: PolicySource) -> Self {
        Self { pool, policy, moved: Arc::default() }
    }

    /// Stops signing for one chain, or for all. A second freeze keeps the first one's reason.
    pub async fn freeze(
        &self,
        caller: &str,
        chain: Option<&ChainName>,
        reason: &str,
    ) -> Result<(), FreezeError> {
        if !(1..=500).contains(&reason.chars().count()) || reason.contains('\0') {
            return Err(FreezeError::Reason);
        }
        let unknown = chain.filter(|chain| !self.policy.current().chains.contains_key(*chain));
        let scope = chain.map_or(ALL, ChainName::as_str);
        let mut tx = db::begin(&self.pool).await?;
        let detail = json!({"chain": scope, "reason": reason});
        if let Some(chain) = unknown {
            let draft = draft(caller, "freeze", Decision::Refused, "freeze.unknown_chain", &detail);
            audit::append_in(&mut tx, vec![draft]).await?;
            tx.commit().await?;
            return Err(FreezeError::UnknownChain(chain.clone()));
        }
        let draft = draft(caller, "freeze", Decision::Allowed, "freeze.done", &detail);
        audit::append_in(&mut tx, vec![draft]).await?;
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
        self.moved.notify_one();
        Ok(())
    }

    pub async fn unfreeze(&self, caller: &str, chain: Option<&ChainName>) -> Result<(), FreezeError> {
        let scope = chain.map_or(ALL, ChainName::as_str);
        let mut tx = db::begin(&self.pool).await?;
        let detail = json!({"chain": scope, "reason": null});
        let draft = draft(caller, "unfreeze", Decision::Allowed, "unfreeze.done", &detail);
        audit::append_in(&mut tx, vec![draft]).await?;
        sqlx::query("DELETE FROM freezes WHERE chain = $1").bind(scope).execute(&mut *tx).await?;
        tx.commit().await?;
        tracing::warn!(chain = scope, caller, "signing unfrozen");
        self.moved.notify_one();
        Ok(())
    }

    /// What is frozen; `*` for everything.
    pub async fn list(&self) -> Result<Vec<String>, FreezeError> {
        Ok(sqlx::query_scalar("SELECT chain FROM freezes ORDER BY chain").fetch_all(&self.pool).await?)
    }

    /// Keeps this replica's gauge at what the table says, whichever replica was asked and however long ago.
    pub(crate) async fn tell(self, stop: CancellationToken) -> Result<(), Infallible> {
        // Those the gauge has told of: one that is gone from the policy and the table still has to be told as lifted.
        let mut told = BTreeSet::from([ALL.to_owned()]);
        loop {
            self.tell_once(&mut told).await;
            let next = async {
                tokio::select! {
                    () = tokio::time::sleep(TELL_EVERY) => {}
                    () = self.moved.notified() => {}
                }
            };
            if stop.run_until_cancelled(next).await.is_none() {
                return Ok(());
            }
        }
    }

    async fn tell_once(&self, told: &mut BTreeSet<String>) {
        let frozen = match self.list().await {
            Ok(frozen) => frozen,
            // The gauge keeps what it said last; that the database is away is told by the health check.
            Err(error) => {
                tracing::debug!(error = %::rpc::error::chain(&error), "cannot read the freezes");
                return;
            }
        };
        told.extend(self.policy.current().chains.keys().map(ToString::to_string));
        told.extend(frozen.iter().cloned());
        for chain in told.iter() {
            let value = if frozen.contains(chain) { 1.0 } else { 0.0 };
            metrics::gauge!("bursar_signer_frozen", "chain" => chain.clone()).set(value);
        }
    }
}
