//! The interface that is the same for every chain: what execution and confirmation ask of it.
//!
//! There is one protocol for all families of chain. An attempt gets a [`Binding`] before it is signed, and the binding keeps two
//! attempts of one job from both landing:
//!
//! - EVM: the nonce of the sender. Transactions with one nonce may be signed many times (fee bumps, a cancellation), because at
//!   most one of them is ever mined. The binding ends when a transaction is *final* at that nonce.
//! - TRON: reference block and expiration. Two signatures do not exclude each other there, so there is one signature per
//!   binding. The binding ends when a *solid* block is beyond the expiration and no block up to there has the transaction.
//!
//! Execution uses it as follows for each attempt:
//!
//! 1. [`ChainEdge::quotes`] prices the actions, and [`ChainEdge::anchor`] says what the attempt can bind to. Both happen before
//!    the database transaction that reserves. On EVM the nonce comes from the wallet's lane (`crate::lane`), which takes the
//!    anchor as its input; on TRON the window of the anchor is the binding.
//! 2. The signer returns bytes. [`ChainEdge::check_signed`] compares them with the [`Plan`], field by field, and returns their
//!    hash. Execution stores bytes and hash.
//! 3. [`ChainEdge::broadcast`] sends them to every node. `merged.advice()` says what may be done next.
//! 4. After a crash, or when the outcome is unknown, execution looks for the hashes with [`ChainEdge::lookup`] and sends the same
//!    bytes again.
//!
//! Confirmation uses it as follows: `crate::follow` brings a head ring to the tip and returns new blocks and reorgs. Watched hashes
//! that appear in them are candidates. [`ChainEdge::finalized`] says how far the chain is final, and [`ChainEdge::settlements`]
//! gives the status of candidates as of that block. If a binding has ended without any of its hashes, [`ChainEdge::fate`] gives
//! the positive evidence for a void verdict.
//!
//! Nothing here is a verdict: values say what nodes report. `TxStatus::NotSeen` in particular proves nothing.

use std::fmt;
use std::ops::RangeInclusive;

use async_trait::async_trait;
use payment::{
    Action, AssetRef, Binding, BindingKind, BlockRef, Closing, Cost, Effect, EffectCheck, Price, Quote,
    Window,
};
use types::{Address, AddressFormat, ChainName, Priority, RawAmount, TxHash};

use crate::broadcast::Broadcast;
use crate::error::{ChainError, QuoteError};
use crate::heads::Head;
use crate::lane::NonceCounts;
use crate::node::NodeHealth;
use crate::node::agreement::Agreement;

/// What an attempt can bind to at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Input for the sender's lane.
    Nonce(NonceCounts),
    /// A final block, and the window that refers to it and begins at the time of the newest block.
    Window { block: BlockRef, window: Window },
}

/// All that determines the bytes to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub action: Action,
    pub binding: Binding,
    pub price: Price,
}

/// Why signed bytes are not what was asked for. Such bytes must never be broadcast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignedError {
    #[error("signed bytes cannot be decoded: {reason}")]
    Undecodable { reason: String },
    #[error("signature does not yield a sender")]
    BadSignature,
    #[error("signed transaction has {field} {found}, expected {expected}")]
    Mismatch { field: &'static str, expected: String, found: String },
    #[error("the plan does not fit this chain: {reason}")]
    Plan { reason: String },
}

impl SignedError {
    pub(crate) fn unless_equal<T: PartialEq + fmt::Debug>(
        field: &'static str,
        expected: &T,
        found: &T,
    ) -> Result<(), Self> {
        if expected == found {
            return Ok(());
        }
        Err(Self::Mismatch { field, expected: format!("{expected:?}"), found: format!("{found:?}") })
    }
}

impl From<Head> for BlockRef {
    fn from(head: Head) -> Self {
        Self { number: head.number, hash: head.hash }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Hashes of transactions. They are small, and enough to find watched ones.
    Hashes,
    /// Also the sender and nonce of each, which shows foreign transactions of watched senders.
    Senders,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxRef {
    pub hash: TxHash,
    /// Sender and nonce, with [`Detail::Senders`] on chains that have nonces.
    pub origin: Option<(Address, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub head: Head,
    pub transactions: Vec<TxRef>,
}

/// Where a hash was seen, over all nodes that answered; the most certain sighting counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// No node that answered has it. Proves nothing.
    Nowhere,
    Pending,
    /// A node has a receipt for it. Neither final nor checked for its effect.
    Included(BlockRef),
}

impl Seen {
    /// A higher number says more.
    pub(crate) fn certainty(&self) -> u8 {
        match self {
            Self::Nowhere => 0,
            Self::Pending => 1,
            Self::Included(_) => 2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    pub hash: TxHash,
    pub seen: Seen,
    pub answered: usize,
    pub asked: usize,
}

/// A transaction and what it must show to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub hash: TxHash,
    pub effect: Effect,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub hash: TxHash,
    pub block: BlockRef,
    pub cost: Cost,
    pub effect: EffectCheck,
}

/// The status of a claimed transaction as of a given final block.
#[allow(
    clippy::large_enum_variant,
    reason = "settled is what nearly all of them are in the end, and a box costs more"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxStatus {
    /// The node does not know it, which proves nothing: see [`ChainEdge::fate`].
    NotSeen,
    /// In the pool, or in a block above the given one.
    NotFinal,
    /// In a canonical block at or below the given one.
    Settled(Settlement),
}

/// The question what became of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FateQuestion {
    pub closing: Closing,
    /// Every hash that was ever signed under the binding.
    pub ours: Vec<TxHash>,
    /// A final block; the answer is as of it.
    pub asof: Head,
    /// A block at which the binding was certainly still open. The search begins there; for a window it is the block that the
    /// window refers to.
    pub since: u64,
}

/// What became of a binding as of a final block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A transaction that was signed under it can still land.
    Open,
    /// One of our hashes is in a canonical block at or below the given one.
    Ours { hash: TxHash, block: BlockRef },
    /// Another transaction is in such a block, so nothing of ours can land any more.
    Foreign { hash: TxHash, block: BlockRef },
    /// The window closed without it. `closing` is the first final block at or beyond its end. `shown` is a digest of all
    /// transactions from the start of the search up to there, so that nodes do not agree if they searched different blocks or
    /// if one of them left a transaction out.
    Expired { closing: BlockRef, shown: [u8; 32] },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BalanceOf {
    pub holder: Address,
    pub asset: AssetRef,
}

/// One chain, behind any number of nodes.
#[async_trait]
pub trait ChainEdge: fmt::Debug + Send + Sync {
    fn name(&self) -> &ChainName;

    fn address_format(&self) -> AddressFormat;

    fn binding_kind(&self) -> BindingKind;

    async fn anchor(&self, sender: &Address) -> Result<Anchor, ChainError>;

    /// Prices actions within the configured caps, in as few requests as possible, and returns the quotes in the order of the
    /// actions. A price above a cap, a call that would revert and a wallet that cannot pay amount and fee have errors of their
    /// own. Nothing is signed yet, so such a job can wait without a binding. Each action is priced by itself: reserving what
    /// else its wallet has to pay is the work of the caller.
    async fn quotes(&self, actions: &[Action], priority: Priority) -> Vec<Result<Quote, QuoteError>>;

    /// [`Self::quotes`] for one action.
    async fn quote(&self, action: &Action, priority: Priority) -> Result<Quote, QuoteError> {
        match self.quotes(std::slice::from_ref(action), priority).await.pop() {
            Some(quote) => quote,
            None => Err(ChainError::NotOfThisChain { what: "price" }.into()),
        }
    }

    /// The price of the next attempt with the same binding: at least the chain's replacement step above `previous`, and not
    /// less than `market` if that is known. `None` if the cap is reached or the chain has no replacements.
    fn bump(&self, previous: &Price, market: Option<&Price>) -> Option<Quote>;

    /// Compares what the signer returned with the plan and returns the hash of the bytes. It does no I/O.
    fn check_signed(&self, raw: &[u8], plan: &Plan) -> Result<TxHash, SignedError>;

    /// Sends each of these to every node, in the given order, in as few requests as the nodes accept. There is one result for
    /// each and never an error, because "nobody answered" is an outcome too. Sending the same bytes again is always safe. Only
    /// bytes that are already stored may be passed.
    async fn broadcast(&self, raw: &[Vec<u8>]) -> Vec<Broadcast>;

    /// Where these hashes were seen, over all nodes. Execution uses it after a crash or an unknown outcome.
    async fn lookup(&self, hashes: &[TxHash]) -> Result<Vec<Sighting>, ChainError>;

    /// The tip, from the preferred node that does not lag. The tip of one node never goes back in number.
    async fn head(&self) -> Result<Head, ChainError>;

    /// The highest block that enough nodes call final, by the chain's configured rule.
    async fn finalized(&self) -> Result<Agreement<Head>, ChainError>;

    /// Canonical blocks of these numbers, ascending, from one node. The list is shorter if the node does not have them all.
    async fn blocks(&self, numbers: RangeInclusive<u64>, detail: Detail) -> Result<Vec<Block>, ChainError>;

    /// The status of each claim as of a final block, over all nodes, in the order of the claims.
    async fn settlements(&self, claims: &[Claim], asof: &Head) -> Vec<Agreement<TxStatus>>;

    /// What became of a binding as of a final block. Only if nodes agree on `Foreign` or `Expired` may a job get another
    /// binding or be called failed.
    async fn fate(&self, question: &FateQuestion) -> Agreement<Fate>;

    /// Balances in the latest state, in the order of the question. `None` where the contract of a token gave no number.
    async fn balances(&self, of: &[BalanceOf]) -> Result<Vec<Option<RawAmount>>, ChainError>;

    /// The health of each node as last seen. It does no I/O.
    fn nodes(&self) -> Vec<NodeHealth>;

    /// Asks every node for its head and reports their health afterwards.
    async fn probe(&self) -> Vec<NodeHealth>;
}
