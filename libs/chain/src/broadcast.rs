//! What nodes answered when signed bytes were sent to them.
//!
//! This module defines the meaning of an answer ([`BroadcastOutcome`]), how the answers of several nodes become one, and what may be
//! done next ([`Advice`]). `evm::classify` and `tron::classify` decide which answer leads to which outcome.
//!
//! Invariants: no outcome ever permits another signature under another binding; and a merged outcome is only as final as its least
//! certain part, because a node that did not answer may have accepted the transaction.

use std::fmt;

use types::TxHash;

use crate::node::NodeName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pricing {
    /// Another transaction of the same sender and nonce is in the pool; this one does not pay enough more.
    Replacement,
    /// The price is below what the pool, or the block being built, accepts.
    Pool,
}

/// Why a node did not accept the transaction now, although it may later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransientCause {
    /// Nothing was sent: the connection could not be opened, or the node is of another chain.
    Unreachable,
    RateLimited,
    PoolFull,
    /// An earlier nonce has not reached this node yet.
    NonceGap,
    /// The node is syncing or shutting down.
    Busy,
    /// The node does not know the block that the transaction refers to, or refuses it because of a state that other nodes may
    /// not have: it lags, or is on another branch.
    Behind,
}

/// The answer of one node to one signed transaction.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BroadcastOutcome {
    Accepted,
    /// The node already has these bytes.
    AlreadyKnown,
    /// The node or a block has these bytes, or the node only saw them before and dropped them. Only the chain can tell.
    Duplicate,
    /// A transaction is mined at this nonce. It may be this one.
    NonceTooLow,
    /// The transaction has expired in the view of this node. It may have been mined before.
    Expired,
    Underpriced(Pricing),
    InsufficientFunds,
    /// The gas limit is too low for the work or too high for a block.
    GasLimit {
        reason: String,
    },
    /// The node will never accept these bytes. Another node, or a later version of this one, may.
    Rejected {
        reason: String,
    },
    Transient(TransientCause),
    /// Nothing is certain: timeout, broken connection, 5xx, unreadable or unknown answer. It may have been accepted.
    Unknown {
        reason: String,
    },
}

/// What to do next. Every advice keeps the binding of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// A pool has the transaction.
    Watch,
    /// Send the same bytes again, after a pause.
    ResendSame,
    /// Look for the hashes of this binding on the chain before anything else.
    LookUp,
    /// Make another attempt with a higher fee at the same nonce; all hashes stay watched.
    Bump,
    /// Wait until the wallet is funded, then send the same bytes again.
    Fund,
    /// These bytes cannot be used. The binding stays open until a final transaction uses it: replace or cancel under it.
    Replace,
}

impl BroadcastOutcome {
    pub fn advice(&self) -> Advice {
        match self {
            Self::Accepted | Self::AlreadyKnown => Advice::Watch,
            Self::Duplicate | Self::NonceTooLow | Self::Expired => Advice::LookUp,
            Self::Underpriced(Pricing::Replacement | Pricing::Pool) => Advice::Bump,
            Self::InsufficientFunds => Advice::Fund,
            Self::GasLimit { .. } | Self::Rejected { .. } => Advice::Replace,
            Self::Transient(_) | Self::Unknown { .. } => Advice::ResendSame,
        }
    }

    /// Whether a node certainly has the transaction.
    pub fn in_pool(&self) -> bool {
        match self {
            Self::Accepted | Self::AlreadyKnown => true,
            Self::Duplicate
            | Self::NonceTooLow
            | Self::Expired
            | Self::Underpriced(_)
            | Self::InsufficientFunds
            | Self::GasLimit { .. }
            | Self::Rejected { .. }
            | Self::Transient(_)
            | Self::Unknown { .. } => false,
        }
    }

    /// Whether the same node may accept the same bytes later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transient(_) | Self::Unknown { .. } | Self::InsufficientFunds => true,
            Self::Accepted
            | Self::AlreadyKnown
            | Self::Duplicate
            | Self::NonceTooLow
            | Self::Expired
            | Self::Underpriced(_)
            | Self::GasLimit { .. }
            | Self::Rejected { .. } => false,
        }
    }

    /// A stable name for metrics and tables.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Underpriced(Pricing::Replacement) => "replacement_underpriced",
            other => other.into(),
        }
    }

    /// The answer with the lowest rank stands for all nodes.
    ///
    /// Certain presence comes first, then what the chain or pool says about the nonce, then doubt. Doubt comes before every
    /// refusal, because nobody may act as if all nodes had refused the bytes while one may have accepted them.
    fn rank(&self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::AlreadyKnown => 1,
            Self::Duplicate => 2,
            Self::NonceTooLow => 3,
            Self::Underpriced(Pricing::Replacement) => 4,
            Self::Unknown { .. } => 5,
            Self::Transient(_) => 6,
            Self::InsufficientFunds => 7,
            Self::Underpriced(Pricing::Pool) => 8,
            Self::Expired => 9,
            Self::GasLimit { .. } => 10,
            Self::Rejected { .. } => 11,
        }
    }
}

impl fmt::Display for BroadcastOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GasLimit { reason } | Self::Rejected { reason } | Self::Unknown { reason } => {
                write!(f, "{}: {reason}", self.label())
            }
            Self::Transient(cause) => write!(f, "transient: {cause:?}"),
            Self::Accepted
            | Self::AlreadyKnown
            | Self::Duplicate
            | Self::NonceTooLow
            | Self::Expired
            | Self::Underpriced(_)
            | Self::InsufficientFunds => f.write_str(self.label()),
        }
    }
}

/// What all nodes answered to one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    /// Computed from the bytes, never taken from the answer of a node.
    pub hash: TxHash,
    pub nodes: Vec<(NodeName, BroadcastOutcome)>,
    pub merged: BroadcastOutcome,
}

impl Broadcast {
    pub fn new(hash: TxHash, nodes: Vec<(NodeName, BroadcastOutcome)>) -> Self {
        let merged = merge(nodes.iter().map(|(_, outcome)| outcome));
        Self { hash, nodes, merged }
    }
}

fn merge<'a>(outcomes: impl Iterator<Item = &'a BroadcastOutcome>) -> BroadcastOutcome {
    outcomes
        .min_by_key(|outcome| outcome.rank())
        .cloned()
        .unwrap_or(BroadcastOutcome::Transient(TransientCause::Unreachable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown() -> BroadcastOutcome {
        BroadcastOutcome::Unknown { reason: "timeout".into() }
    }

    fn merged(outcomes: &[BroadcastOutcome]) -> BroadcastOutcome {
        merge(outcomes.iter())
    }

    #[test]
    fn one_acceptance_outranks_everything() {
        let refused = BroadcastOutcome::Rejected { reason: "no".into() };
        assert_eq!(merged(&[refused, unknown(), BroadcastOutcome::Accepted]), BroadcastOutcome::Accepted);
        assert_eq!(
            merged(&[BroadcastOutcome::NonceTooLow, BroadcastOutcome::AlreadyKnown]),
            BroadcastOutcome::AlreadyKnown
        );
    }

    #[test]
    fn a_silent_node_keeps_refusals_from_being_final() {
        let refusals = [
            BroadcastOutcome::Rejected { reason: "no".into() },
            BroadcastOutcome::GasLimit { reason: "low".into() },
            BroadcastOutcome::InsufficientFunds,
            BroadcastOutcome::Underpriced(Pricing::Pool),
        ];
        for refusal in refusals {
            assert_eq!(merged(&[refusal.clone(), unknown()]), unknown());
            assert_eq!(merged(&[unknown(), refusal]), unknown());
        }
    }

    #[test]
    fn no_nodes_at_all_means_send_again() {
        assert_eq!(merged(&[]).advice(), Advice::ResendSame);
    }
}
