//! The configuration of an EVM chain, as the catalogue describes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::ChainName;

use super::price::fees::FeePolicy;
use super::price::gas::GasPolicy;
use crate::error::ConfigError;
use crate::node::NodeConfig;

/// When a block counts as final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finality {
    /// This many blocks are on top of it.
    Depth(u64),
    /// The nodes' own `finalized` block.
    Tag,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvmConfig {
    pub chain: ChainName,
    pub chain_id: u64,
    /// In order of preference.
    pub nodes: Vec<NodeConfig>,
    /// How many nodes must give the same answer before it counts for a verdict. The default is two, or one with a single node.
    #[serde(default)]
    pub quorum: Option<usize>,
    pub finality: Finality,
    #[serde(default)]
    pub fees: FeePolicy,
    #[serde(default)]
    pub gas: GasPolicy,
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Questions in one JSON-RPC batch; hosted nodes often accept no more than 100.
    #[serde(default = "max_batch")]
    pub max_batch: usize,
    /// Nodes further behind the best one are asked last.
    #[serde(default = "max_lag_blocks")]
    pub max_lag_blocks: u64,
    /// How long to wait for the answers of other nodes once one node has a sent transaction. The others still get it.
    #[serde(default = "linger_ms")]
    pub broadcast_linger_ms: u64,
}

fn timeout_ms() -> u64 {
    10_000
}

fn max_batch() -> usize {
    100
}

fn max_lag_blocks() -> u64 {
    5
}

fn linger_ms() -> u64 {
    250
}

impl EvmConfig {
    /// A chain with everything optional at its default.
    pub fn new(chain: ChainName, chain_id: u64, nodes: Vec<NodeConfig>, finality: Finality) -> Self {
        Self {
            chain,
            chain_id,
            nodes,
            quorum: None,
            finality,
            fees: FeePolicy::default(),
            gas: GasPolicy::default(),
            timeout_ms: timeout_ms(),
            max_batch: max_batch(),
            max_lag_blocks: max_lag_blocks(),
            broadcast_linger_ms: linger_ms(),
        }
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        let zero = |field| ConfigError::Field { field, problem: "must be above zero".to_owned() };
        if self.chain_id == 0 {
            return Err(zero("chain_id"));
        }
        if self.timeout_ms == 0 {
            return Err(zero("timeout_ms"));
        }
        if self.max_batch == 0 {
            return Err(zero("max_batch"));
        }
        self.fees.check()?;
        self.gas.check()
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(super) fn linger(&self) -> Duration {
        Duration::from_millis(self.broadcast_linger_ms)
    }
}
