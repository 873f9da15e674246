//! What can go wrong when a node is asked something: [`NodeError`] (one node, one question), [`ChainError`] (a question to all nodes
//! of a chain) and [`QuoteError`] (no price).
//!
//! What a refused transaction means is decided in `evm::classify` and `tron::classify`. Addresses of nodes contain API keys, so no
//! error here contains a URL.

use types::{Address, ChainName};

use crate::node::NodeName;
use crate::node::text::shorten;

/// A JSON-RPC error object, as the node wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node answered error {code}: {message}")]
pub struct RpcFault {
    pub code: i64,
    pub message: String,
    /// The error's `data` member as JSON text; nodes put revert data here.
    pub data: Option<String>,
}

/// Why one node gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The connection could not be opened: nothing was sent.
    #[error("node cannot be reached: {reason}")]
    Unreachable { reason: String },
    /// There was no complete answer in time. The node may have acted on the question nevertheless.
    #[error("node did not answer within {after_ms} ms")]
    Timeout { after_ms: u64 },
    /// The connection broke after the question was sent.
    #[error("connection to the node broke: {reason}")]
    Interrupted { reason: String },
    #[error("node answered http status {status}")]
    Http { status: u16 },
    #[error("node's answer cannot be read: {reason}")]
    Malformed { reason: String },
    #[error(transparent)]
    Rpc(#[from] RpcFault),
    /// The node says that it does not answer this now: it limits its callers, or does not keep such history.
    #[error("node does not answer this: {reason}")]
    Declined { reason: String },
    #[error("node belongs to chain {found}, expected chain {expected}")]
    WrongChain { expected: String, found: String },
    /// The node failed several times in a row and is not asked for a while.
    #[error("node is paused after {failures} failures")]
    Resting { failures: u32 },
}

impl NodeError {
    /// An answer that cannot be read. What nodes wrote may be quoted in the reason.
    pub(crate) fn malformed(reason: impl AsRef<str>) -> Self {
        Self::Malformed { reason: shorten(reason.as_ref()) }
    }

    /// Whether the same question may be answered a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Interrupted { .. }
            | Self::Declined { .. }
            | Self::Resting { .. } => true,
            Self::Http { status } => *status == 429 || *status >= 500,
            Self::Rpc(fault) => crate::evm::classify::read_fault(fault).is_transient(),
            Self::Malformed { .. } | Self::WrongChain { .. } => false,
        }
    }

    /// Whether this says something about the node's health, rather than about the question.
    pub fn blames_node(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Interrupted { .. }
            | Self::Http { .. }
            | Self::Malformed { .. }
            | Self::WrongChain { .. } => true,
            Self::Rpc(_) | Self::Declined { .. } | Self::Resting { .. } => false,
        }
    }
}

/// Why a question to a chain has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("no node of chain {chain} could answer: {}", list(tried))]
    NoNode { chain: ChainName, tried: Vec<(NodeName, NodeError)> },
    #[error("{what} is an address of another network than chain {chain}")]
    ForeignAddress { chain: ChainName, what: Address },
    #[error("this kind of chain has no {what}")]
    NotOfThisChain { what: &'static str },
}

impl ChainError {
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoNode { tried, .. } => {
                tried.is_empty() || tried.iter().any(|(_, error)| error.is_transient())
            }
            Self::ForeignAddress { .. } | Self::NotOfThisChain { .. } => false,
        }
    }
}

fn list(tried: &[(NodeName, NodeError)]) -> String {
    if tried.is_empty() {
        return "none is configured".to_owned();
    }
    tried.iter().map(|(node, error)| format!("{node}: {error}")).collect::<Vec<_>>().join("; ")
}

/// The price of the market is above the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chain asks {needed} per gas, the cap is {cap}")]
pub struct AboveCap {
    pub needed: u128,
    pub cap: u128,
}

/// Why there is no price. Nothing was signed or bound yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    #[error(transparent)]
    AboveCap(#[from] AboveCap),
    #[error("the transfer needs {needed} gas, the cap is {cap}")]
    GasAboveCap { needed: u64, cap: u64 },
    /// The node simulated the transfer and it failed: no balance, paused token, blocked receiver.
    #[error("the transfer would revert: {reason}")]
    WouldRevert { reason: String },
    /// The sender cannot pay amount and fee.
    #[error("the wallet cannot pay for the transfer: {reason}")]
    InsufficientFunds { reason: String },
    #[error(transparent)]
    Chain(#[from] ChainError),
}

impl QuoteError {
    /// Whether waiting may help although nobody does anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::AboveCap(_) | Self::InsufficientFunds { .. } => true,
            Self::Chain(error) => error.is_transient(),
            Self::GasAboveCap { .. } | Self::WouldRevert { .. } => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("a chain needs at least one node")]
    NoNodes,
    #[error("two nodes are named {name}")]
    DuplicateNode { name: String },
    #[error("node {name} has an address that is not an http or https url")]
    BadUrl { name: String },
    #[error("quorum {quorum} cannot be met by {nodes} nodes")]
    Quorum { quorum: usize, nodes: usize },
    #[error("{field}: {problem}")]
    Field { field: &'static str, problem: String },
}
