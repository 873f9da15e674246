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

impl ChainStanding {
    /// Why no verdicts can be expected, or whom to mistrust; `None` when all is well enough.
    pub fn problem(&self) -> Option<String> {
        let chain = &self.chain;
        if let Some(reason) = &self.halted_reason {
            return Some(format!("{chain} is halted: {reason}"));
        }
        let bad: Vec<&NodeStanding> = self.nodes.iter().filter(|node| !node.problem.is_empty()).collect();
        let wrong = bad.iter().find(|node| node.problem.contains("belongs to chain"));
        let told = if bad.len() == self.nodes.len() { bad.first() } else { wrong };
        match told {
            Some(node) => Some(format!("{chain}: {} {}", node.node, node.problem)),
            None if self.nodes.is_empty() => Some(format!("{chain} was not looked at yet")),
            None => None,
        }
    }
}
