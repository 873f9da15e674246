//! The nodes of one source: which chain they are of, how far they are, and in which order they are asked.
//!
//! Invariants: a node of another chain is asked nothing but its identity; a node's head counts only when the node also has that
//! block by its number; a node's head never goes back.

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
use super::wire::Header;

/// Questions in one JSON-RPC batch; hosted nodes often take no more.
const MAX_BATCH: usize = 100;

/// Why a source's nodes cannot be used.
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

/// The highest head and when it was seen.
#[derive(Debug, Clone)]
struct Seen {
    head: Header,
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
            // By place and not by address, which may carry a key.
            Ok(Arc::new(Node::new(chain.clone(), &format!("node-{index}"), LogClient::new(rpc, chain_id))))
        };
        let nodes = urls.iter().enumerate().map(node).collect::<Result<Vec<_>, CheckError>>()?;
        Ok(Self { nodes, seen: Mutex::new(None) })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The startup check: one node must be of the right chain and know the contract. A node of another chain is refused even
    /// when others are right: it is a mistake in the configuration, and would be found at the worst time.
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

    /// The highest head that a node really has; asked again when the last look is older than `age`.
    pub(crate) async fn head(&self, age: Duration) -> Result<Header, NodeError> {
        if let Some(seen) = self.seen().filter(|seen| seen.at.elapsed() < age) {
            return Ok(seen.head);
        }
        let rested = self.nodes.iter().all(|node| node.resting().is_some());
        let asked = self.nodes.iter().filter(|node| rested || node.resting().is_none());
        let answers = join_all(asked.map(|node| async move {
            let head = node.ask(LogClient::head).await?;
            // Anybody can name a number; who has the block can show it.
            let number = head.number();
            match node.ask(|client| client.header(number)).await? {
                // Another hash is a reorganisation between two questions: the later answer counts.
                Some(shown) => {
                    node.saw_head(shown.head());
                    Ok(shown)
                }
                None => Err(malformed("the node does not have the head that it names")),
            }
        }))
        .await;
        let mut best: Option<Header> = None;
        let mut failed = None;
        for answer in answers {
            match answer {
                Ok(head) if best.as_ref().is_none_or(|best| best.number() < head.number()) => {
                    best = Some(head)
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        match best {
            Some(head) => {
                let mut slot = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                *slot = Some(Seen { head: head.clone(), at: Instant::now() });
                Ok(head)
            }
            None => Err(failed.unwrap_or(NodeError::Resting { failures: 0 })),
        }
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// In the order in which they should be asked for blocks up to `to`: those that have them and are well first.
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

    /// The block of this number from the node that is furthest ahead. `None` when that one has none.
    pub(crate) async fn canonical(&self, number: u64) -> Result<Option<Header>, NodeError> {
        let mut last = None;
        for node in self.for_block(number) {
            match node.ask(|client| client.header(number)).await {
                Ok(Some(header)) => return Ok(Some(header)),
                // A node that lags says nothing about what is canonical.
                Ok(None) => {}
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), Err)
    }
}
