//! The kill switch. Owns which chains nothing is signed for. A freeze takes the head's lock like every decision, so that after it
//! returned no signature for that chain is committed, on any replica.
//!
//! Somebody in a hurry could misspell the chain and believe it frozen. Therefore a freeze must name a chain of the policy, or all.
//! A freeze that is lifted may have any name, because its chain may have been taken out of the policy meanwhile.

mod repo;

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

/// Freezes every chain.
pub(crate) const ALL_CHAINS: &str = "*";
/// How often the table is read for the gauge: a freeze may have been made through another replica.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);

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
        let scope = chain.map_or(ALL_CHAINS, ChainName::as_str);
        let detail = json!({"chain": scope, "reason": reason});
        if let Some(chain) = unknown {
            let draft = draft(caller, "freeze", Decision::Refused, "freeze.unknown_chain", &detail);
            audit::append(&self.pool, draft).await?;
            return Err(FreezeError::UnknownChain(chain.clone()));
        }
        let mut tx = db::begin(&self.pool).await?;
        let draft = draft(caller, "freeze", Decision::Allowed, "freeze.done", &detail);
        audit::append_in(&mut tx, draft).await?;
        repo::insert_in(&mut tx, scope, reason, caller).await?;
        tx.commit().await?;
        tracing::warn!(chain = scope, caller, reason, "signing frozen");
        self.moved.notify_one();
        Ok(())
    }

    pub async fn unfreeze(&self, caller: &str, chain: Option<&ChainName>) -> Result<(), FreezeError> {
        let scope = chain.map_or(ALL_CHAINS, ChainName::as_str);
        let mut tx = db::begin(&self.pool).await?;
        let detail = json!({"chain": scope, "reason": null});
        let draft = draft(caller, "unfreeze", Decision::Allowed, "unfreeze.done", &detail);
        audit::append_in(&mut tx, draft).await?;
        repo::delete_in(&mut tx, scope).await?;
        tx.commit().await?;
        tracing::warn!(chain = scope, caller, "signing unfrozen");
        self.moved.notify_one();
        Ok(())
    }

    /// What is frozen; `*` for everything.
    pub async fn list(&self) -> Result<Vec<String>, FreezeError> {
        Ok(repo::chains(&self.pool).await?)
    }

    /// Keeps this replica's gauge equal to the table, whichever replica made the freeze and however long ago.
    pub(crate) async fn report(self, stop: CancellationToken) -> Result<(), Infallible> {
        // The chains the gauge has shown. One that is gone from the policy and the table must still be shown as lifted.
        let mut reported = BTreeSet::from([ALL_CHAINS.to_owned()]);
        loop {
            self.report_once(&mut reported).await;
            let next = async {
                tokio::select! {
                    () = tokio::time::sleep(GAUGE_INTERVAL) => {}
                    () = self.moved.notified() => {}
                }
            };
            if stop.run_until_cancelled(next).await.is_none() {
                return Ok(());
            }
        }
    }

    async fn report_once(&self, reported: &mut BTreeSet<String>) {
        let frozen = match self.list().await {
            Ok(frozen) => frozen,
            // The gauge keeps its last value; the health check reports that the database is unavailable.
            Err(error) => {
                tracing::debug!(error = %::rpc::error::chain(&error), "cannot read the freezes");
                return;
            }
        };
        reported.extend(self.policy.current().chains.keys().map(ToString::to_string));
        reported.extend(frozen.iter().cloned());
        for chain in reported.iter() {
            let value = if frozen.contains(chain) { 1.0 } else { 0.0 };
            metrics::gauge!("bursar_signer_frozen", "chain" => chain.clone()).set(value);
        }
    }
}
