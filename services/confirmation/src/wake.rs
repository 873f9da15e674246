//! The topics that loops wait on, to be woken when something was written for them (`db::wake_in`).
//!
//! A notification carries no work, and no loop relies on one: every wait has an end.

use types::ChainName;

/// Chains were added or changed.
pub const CHAINS: &str = "chains";

/// Watches of this chain were added or extended.
pub fn watches(chain: &ChainName) -> String {
    format!("watches/{chain}")
}
