//! What loops sleep on, to be woken when something was written for them.
//!
//! Owns the topics; waking is `db::wake_in`. A notification carries no work and none is relied on: every sleep has an end.

use types::ChainName;

/// Chains were added or changed.
pub const CHAINS: &str = "chains";

/// Watches of this chain were added or extended.
pub fn watches(chain: &ChainName) -> String {
    format!("watches/{chain}")
}
