//! The nodes of one source: their chain, their heads, and the order in which they are used.
//!
//! Invariants: a node of another chain is asked for nothing but its chain id; a node's head counts only if the node also returns
//! that block by its number.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::Address;
use chain::NodeError;
use chain::jsonrpc::JsonRpc;
use chain::node::Node;
use futures::future::join_all;
use tonic::Status;
use types::ChainName;

use super::client::{LogClient, malformed};
use super::json::Header;

/// Requests in one JSON-RPC batch; hosted nodes often accept no more.
const MAX_BATCH: usize = 100;

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("node {index} is not an http or https address")]
    Address { index: usize },
    #[error("wrong RPC chain id: the node is of chain {found}, the source of chain {expected}")]
    WrongChain { expected: String, found: String },
    #[error("no contract deployed at {0}")]
    NoContract(Address),
    #[error("no node answers")]
    Unreachable(#[source] NodeError),
}

impl From<CheckError> for Status {
    fn from(error: CheckError) -> Self {
        let text = rpc::error::chain(&error);
        match error {
            CheckError::Address { .. } => rpc::error::invalid("source.nodes", text),
            CheckError::WrongChain { .. } => rpc::error::failed_precondition("WRONG_CHAIN", text),
            CheckError::NoContract(_) => rpc::error::failed_precondition("NO_CONTRACT", text),
            CheckError::Unreachable(_) => rpc::error::unavailable(
                rpc::error::reason::DEPENDENCY_UNAVAILABLE,
                text,
                Duration::from_secs(2),
            ),
        }
    }
}

/// How far the chain is, as its nodes report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heads {
    /// The highest head of any node: blocks up to it can be read.
    pub(crate) highest: u64,
    /// The highest head that two nodes have reached, if there are two. It decides which blocks are final: a single node that
    /// reports blocks it does not have would make everything look final, and reorganisations would go unnoticed.
    pub(crate) agreed: u64,
}

impl Heads {
    /// `None` when there is no head at all.
    fn of(mut heads: Vec<u64>) -> Option<Self> {
        heads.sort_unstable_by(|a, b| b.cmp(a));
        let highest = *heads.first()?;
        Some(Self { highest, agreed: heads.get(1).copied().unwrap_or(highest) })
    }
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    heads: Heads,
    at: Instant,
}

/// All nodes of one source, in the operator's order.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Arc<Node<LogClient>>>,
    seen: Mutex<Option<Seen>>,
}

impl Nodes {
    pub(crate) fn new(chain_id: u64, urls: &[String], timeout: Duration) -> Result<Self, CheckError> {
        let chain =
            format!("evm-{chain_id}").parse::<ChainName>().map_err(|_| CheckError::Address { index: 0 })?;
        let node = |(index, url): (usize, &String)| {
            let rpc = JsonRpc::new(url, timeout, MAX_BATCH).ok_or(CheckError::Address { index })?;
            // Named by place and not by URL, which may contain a key.
            Ok(Arc::new(Node::new(chain.clone(), &format!("node-{index}"), LogClient::new(rpc, chain_id))))
        };
        let nodes = urls.iter().enumerate().map(node).collect::<Result<Vec<_>, CheckError>>()?;
        Ok(Self { nodes, seen: Mutex::new(None) })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The startup check: one node must be of the right chain and have the contract. A node of another chain is refused even if
    /// others are right, because it is a mistake in the configuration.
    pub(crate) async fn check(&self, contract: Option<Address>) -> Result<(), CheckError> {
        let answers = join_all(self.nodes.iter().map(|node| async move {
            node.ask(|client| async move {
                match contract {
                    Some(address) => client.code(address).await.map(|code| !code.is_empty()),
                    None => client.head().await.map(|_| true),
                }
            })
            .await
        }))
        .await;
        let mut failed = None;
        let (mut good, mut empty) = (false, false);
        for answer in answers {
            match answer {
                Err(NodeError::WrongChain { expected, found }) => {
                    return Err(CheckError::WrongChain { expected, found });
                }
                Err(error) => failed = Some(error),
                Ok(true) => good = true,
                Ok(false) => empty = true,
            }
        }
        match (good, empty, contract) {
            (true, _, _) => Ok(()),
            (false, true, Some(address)) => Err(CheckError::NoContract(address)),
            _ => Err(CheckError::Unreachable(failed.unwrap_or_else(|| malformed("no node is configured")))),
        }
    }

    /// The heads that nodes really have; queried again when the last result is older than `age`.
    pub(crate) async fn heads(&self, age: Duration) -> Result<Heads, NodeError> {
        if let Some(seen) = self.seen().filter(|seen| seen.at.elapsed() < age) {
            return Ok(seen.heads);
        }
        let rested = self.nodes.iter().all(|node| node.resting().is_some());
        let asked = self.nodes.iter().filter(|node| rested || node.resting().is_none());
        let answers = join_all(asked.map(|node| async move {
            let head = node.ask(LogClient::head).await?;
            // A node can report any number, so it must also return the block.
            let number = head.number();
            match node.ask(|client| client.header(number)).await? {
                // Another hash means a reorganisation between the two requests; the later response counts.
                Some(shown) => {
                    node.saw_head(shown.head());
                    Ok(number)
                }
                None => Err(malformed("the node does not have the head that it reports")),
            }
        }))
        .await;
        let (mut heads, mut failed) = (Vec::new(), None);
        for answer in answers {
            match answer {
                Ok(head) => heads.push(head),
                Err(error) => failed = Some(error),
            }
        }
        let heads = Heads::of(heads).ok_or_else(|| failed.unwrap_or(NodeError::Resting { failures: 0 }))?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen { heads, at: Instant::now() });
        Ok(heads)
    }

    fn seen(&self) -> Option<Seen> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes in the order in which they should be asked for blocks up to `to`: healthy ones that have the blocks first.
    pub(crate) fn for_block(&self, to: u64) -> Vec<Arc<Node<LogClient>>> {
        let mut order: Vec<_> = self.nodes.iter().map(|node| (node.clone(), node.health())).collect();
        order.sort_by_key(|(node, health)| {
            let lags = health.head.is_some_and(|head| head.number < to);
            (
                health.wrong_chain.is_some(),
                node.resting().is_some(),
                lags || health.went_back,
                health.failures,
            )
        });
        order.into_iter().filter(|(_, health)| health.wrong_chain.is_none()).map(|(node, _)| node).collect()
    }

    /// The block of this number from the first node, in the order of [`Nodes::for_block`], that has it. `None` when none does.
    pub(crate) async fn canonical(&self, number: u64) -> Result<Option<Header>, NodeError> {
        let mut last = None;
        for node in self.for_block(number) {
            match node.ask(|client| client.header(number)).await {
                Ok(Some(header)) => return Ok(Some(header)),
                // A node that lags proves nothing about what is canonical.
                Ok(None) => {}
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_final_is_judged_by_the_head_that_two_nodes_have_reached() {
        assert_eq!(Heads::of(Vec::new()), None);
        assert_eq!(Heads::of(vec![7]), Some(Heads { highest: 7, agreed: 7 }));
        assert_eq!(Heads::of(vec![100, 1_000_000]), Some(Heads { highest: 1_000_000, agreed: 100 }));
        assert_eq!(Heads::of(vec![3, 100, 101]), Some(Heads { highest: 101, agreed: 100 }));
    }
}
