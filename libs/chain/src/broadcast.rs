//! What nodes answered when signed bytes were sent to them.
//!
//! Owns the meaning of an answer ([`BroadcastOutcome`]), how the answers of several nodes become one, and what may be
//! done next ([`Advice`]). What leads to an outcome is said in `evm::classify`
//! and `tron::classify`.
//!
//! Invariants: no outcome ever permits another signature under another binding; and a merged outcome is only as final
//! as its least certain part, because a node that did not answer may have taken the transaction.

use std::fmt;

use types::TxHash;

use crate::node::NodeName;

/// Which price was too low.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pricing {
    /// Another transaction of the same sender and nonce is in the pool; this one does not pay enough more.
    Replacement,
    /// Below what the pool, or the block being built, takes.
    Pool,
}

/// Why a node did not take the transaction just now, though it may later.
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
    /// The node does not know the block that the transaction refers to, or refuses it by a state that others may not
    /// have: it lags, or is on another branch.
    Behind,
}

/// One node's answer to one signed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BroadcastOutcome {
    Accepted,
    /// The node has these very bytes already.
    AlreadyKnown,
    /// The node has these bytes, or a block has, or it merely saw them before and forgot: only the chain tells.
    Duplicate,
    /// Some transaction is mined at this nonce. It may be this one.
    NonceTooLow,
    /// Its time is over, as this node sees it. It may have been mined before that.
    Expired,
    Underpriced(Pricing),
    InsufficientFunds,
    /// The gas limit is too low for the work or too high for a block.
    GasLimit {
        reason: String,
    },
    /// The node will never take these bytes. Another node, or a later version of this one, may.
    Rejected {
        reason: String,
    },
    Transient(TransientCause),
    /// Nothing certain: timeout, broken connection, 5xx, unreadable or unheard-of answer. Possibly accepted.
    Unknown {
        reason: String,
    },
}

/// What to do next. Every advice keeps the attempt's binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// A pool has it: watch it.
    Watch,
    /// Send the same bytes again, after a pause.
    ResendSame,
    /// Look for the hashes of this binding on the chain before anything else.
    LookUp,
    /// A new attempt with a higher fee at the same nonce; all hashes stay watched.
    Bump,
    /// Hold the queue until the wallet is funded, then send the same bytes again.
    Fund,
    /// These bytes will not do. The binding stays open until something final occupies it: replace or cancel there.
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

    /// Whether a node has the transaction for certain.
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

    /// Whether the same bytes may be taken by the same node later without any change of ours.
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

    /// A short stable word for metrics and tables.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AlreadyKnown => "already_known",
            Self::Duplicate => "duplicate",
            Self::NonceTooLow => "nonce_too_low",
            Self::Expired => "expired",
            Self::Underpriced(Pricing::Replacement) => "replacement_underpriced",
            Self::Underpriced(Pricing::Pool) => "underpriced",
            Self::InsufficientFunds => "insufficient_funds",
            Self::GasLimit { .. } => "gas_limit",
            Self::Rejected { .. } => "rejected",
            Self::Transient(_) => "transient",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// Which answer speaks for all nodes: the lowest rank does.
    ///
    /// Certain presence first; then what the chain or pool says about the nonce; then doubt, which outranks every
    /// refusal: while one node may have taken the bytes, nobody may act as if all had refused them.
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
    /// Computed from the bytes, never taken from a node's answer.
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
