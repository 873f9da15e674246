//! Ending the sleeps of loops when something was written for them.
//!
//! Owns the topics. A notification carries no work and none is relied on: every sleep has an end.

use sqlx::PgConnection;
use types::ChainName;

/// Chains were added or changed.
pub const CHAINS: &str = "chains";

/// Watches of this chain were added or extended.
pub fn watches(chain: &ChainName) -> String {
    format!("watches/{chain}")
}

/// Wakes whoever sleeps on the topic when the transaction commits. NOTIFY makes commits wait for one another, so it is
/// sent only when somebody sleeps, which a sleeper shows by a shared lock.
pub async fn notify_in(tx: &mut PgConnection, topic: &str) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("../queries/wake.sql")).bind(topic).execute(tx).await.map(|_| ())
}
