//! Heads: the recent canonical blocks of each chain, the lease of the loop that follows them, and where each chain stands.

pub mod lease;
pub mod repo;

use types::{ChainName, TxHash};

pub use lease::{Fence, Lease};

/// What one node said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStanding {
    /// Its address without credentials.
    pub node: String,
    pub number: u64,
    pub hash: Option<TxHash>,
    /// What is wrong with it; empty if nothing.
    pub problem: String,
}

/// Where a chain stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainStanding {
    pub chain: ChainName,
    /// Newest canonical block.
    pub tip: Option<(u64, TxHash)>,
    pub final_number: Option<u64>,
    pub nodes: Vec<NodeStanding>,
    pub halted_reason: Option<String>,
}
