//! The configuration of a TRON network, as the catalogue describes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::ChainName;

use super::price::cost::MAX_FEE_LIMIT_SUN;
use crate::error::ConfigError;
use crate::node::NodeConfig;

/// The network takes expirations at most a day ahead.
const LONGEST_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;

/// How much payments may cost. The catalogue sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostPolicy {
    /// Nothing is paid above this per unit of energy.
    pub max_energy_price_sun: u64,
    /// No fee limit above this is ever signed.
    pub max_fee_limit_sun: u64,
    /// Added to the node's estimate of energy, in thousandths.
    pub energy_margin_permille: u32,
}

impl Default for CostPolicy {
    fn default() -> Self {
        Self {
            max_energy_price_sun: 10_000,
            max_fee_limit_sun: MAX_FEE_LIMIT_SUN,
            energy_margin_permille: 200,
        }
    }
}

/// A block of this network is final when it is solid; there is no other rule to configure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TronConfig {
    pub chain: ChainName,
    /// The last four bytes of the first block's id: 728126428 on the main network.
    pub network_id: u64,
    /// In order of preference.
    pub nodes: Vec<NodeConfig>,
    /// How many nodes must give the same answer before it counts for a verdict. The default is two, or one with a single node.
    #[serde(default)]
    pub quorum: Option<usize>,
    #[serde(default)]
    pub costs: CostPolicy,
    /// How long a signed transaction may be included, counted from the time of the newest block. Until a solid block is beyond
    /// its end, nothing else can be signed for the payment.
    #[serde(default = "window_ms")]
    pub window_ms: u64,
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Questions to one node at the same time.
    #[serde(default = "at_once")]
    pub at_once: usize,
    /// Nodes further behind the best one are asked last.
    #[serde(default = "max_lag_blocks")]
    pub max_lag_blocks: u64,
    /// How long to wait for the answers of other nodes once one node has a sent transaction. The others still get it.
    #[serde(default = "linger_ms")]
    pub broadcast_linger_ms: u64,
}

fn window_ms() -> u64 {
    300_000
}

fn timeout_ms() -> u64 {
    10_000
}

fn at_once() -> usize {
    16
}

fn max_lag_blocks() -> u64 {
    5
}

fn linger_ms() -> u64 {
    250
}

impl TronConfig {
    /// A network with everything optional at its default.
    pub fn new(chain: ChainName, network_id: u64, nodes: Vec<NodeConfig>) -> Self {
        Self {
            chain,
            network_id,
            nodes,
            quorum: None,
            costs: CostPolicy::default(),
            window_ms: window_ms(),
            timeout_ms: timeout_ms(),
            at_once: at_once(),
            max_lag_blocks: max_lag_blocks(),
            broadcast_linger_ms: linger_ms(),
        }
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field, problem: &str| Err(ConfigError::Field { field, problem: problem.to_owned() });
        if self.network_id == 0 || self.network_id > u64::from(u32::MAX) {
            return wrong("network_id", "must be the last four bytes of the first block's id");
        }
        if self.timeout_ms == 0 {
            return wrong("timeout_ms", "must be above zero");
        }
        if self.at_once == 0 {
            return wrong("at_once", "must be above zero");
        }
        if !(1_000..LONGEST_WINDOW_MS).contains(&self.window_ms) {
            return wrong("window_ms", "must be 1000 to 86399999");
        }
        if !(1..=MAX_FEE_LIMIT_SUN).contains(&self.costs.max_fee_limit_sun) {
            return wrong("max_fee_limit_sun", "must be 1 to 15000000000");
        }
        Ok(())
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(super) fn linger(&self) -> Duration {
        Duration::from_millis(self.broadcast_linger_ms)
    }
}
