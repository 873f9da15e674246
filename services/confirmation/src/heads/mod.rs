//! Heads: the recent canonical blocks of each chain, the lease of the loop that follows them, and the status of each chain.

pub mod repo;

use std::collections::HashMap;

use types::{ChainName, TxHash};

pub use repo::lease::{Fence, Lease};

/// Number of the newest canonical block of each chain.
pub type Tips = HashMap<ChainName, u64>;

/// What one node said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its address without credentials.
    pub node: String,
    pub number: u64,
    pub hash: Option<TxHash>,
    /// Empty if nothing is wrong with it.
    pub problem: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainStatus {
    pub chain: ChainName,
    /// Newest canonical block.
    pub tip: Option<(u64, TxHash)>,
    pub final_number: Option<u64>,
    pub nodes: Vec<NodeStatus>,
    pub halted_reason: Option<String>,
}

impl ChainStatus {
    /// Why no verdicts can be expected, or which node belongs to another chain; `None` when verdicts can be given.
    pub fn problem(&self) -> Option<String> {
        let chain = &self.chain;
        if let Some(reason) = &self.halted_reason {
            return Some(format!("{chain} is halted: {reason}"));
        }
        let bad: Vec<&NodeStatus> = self.nodes.iter().filter(|node| !node.problem.is_empty()).collect();
        let wrong_chain = bad.iter().find(|node| node.problem.contains("belongs to chain"));
        let shown = if bad.len() == self.nodes.len() { bad.first() } else { wrong_chain };
        match shown {
            Some(node) => Some(format!("{chain}: {} {}", node.node, node.problem)),
            None if self.nodes.is_empty() => Some(format!("{chain} was not looked at yet")),
            None => None,
        }
    }
}
