//! The chain-neutral surface: what execution and confirmation ask of any chain.
//!
//! One protocol, two kinds of chain. On both an attempt is tied to a [`Binding`] before it is signed, and the binding
//! is what keeps two attempts of one job from both landing:
//!
//! - EVM: the sender's nonce. Attempts at one nonce may be signed many times (fee bumps, a cancellation): at most one
//!   is ever mined. The binding ends when a transaction is *final* at that nonce.
//! - TRON: reference block and expiration. There is nothing that makes two signatures exclude each other, so there is
//!   one signature per binding; it ends when the expiration is behind a *solid* block and the id is absent up to it.
//!
//! Execution's write-ahead protocol with it, for each attempt:
//!
//! 1. [`ChainEdge::quotes`] prices the actions; [`ChainEdge::anchor`] says what the chain offers to bind to. Both
//!    before the database transaction that reserves. On EVM the nonce comes from the wallet's lane (`crate::lane`),
//!    for which the anchor is the input; on TRON the anchor's window is the binding.
//! 2. The signer returns bytes; [`ChainEdge::check_signed`] compares them with the [`Plan`], field by field, and
//!    gives the hash. Bytes and hash are persisted.
//! 3. [`ChainEdge::broadcast`] sends them to every node. `merged.advice()` says what may be done next.
//! 4. After a crash, or when the answer was unknown: [`ChainEdge::lookup`] the hashes, send the same bytes again.
//!
//! Confirmation's loop with it: `crate::follow` brings a head ring to the tip and returns new blocks and reorgs;
//! watched hashes that appear in them are candidates; [`ChainEdge::finalized`] says how far the chain is final;
//! [`ChainEdge::settlements`] gives the standing of candidates as of that block; and for a binding that is used up
//! without any of its hashes, [`ChainEdge::fate`] gives the positive evidence for a void verdict.
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

use crate::agreement::Agreement;
use crate::broadcast::Broadcast;
use crate::error::{ChainError, QuoteError};
use crate::heads::Head;
use crate::lane::Sight;
use crate::node::NodeHealth;

/// What the chain offers an attempt to bind to, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Input for the sender's lane.
    Nonce(Sight),
    /// A final block, and the window that refers to it and begins at the time of the newest block.
    Window { block: BlockRef, window: Window },
}

/// Everything that determines the bytes to be signed.
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

impl From<Head> for BlockRef {
    fn from(head: Head) -> Self {
        Self { number: head.number, hash: head.hash }
    }
}

/// How much of a block is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Hashes of transactions: small, enough to find watched ones.
    Hashes,
    /// Also who sent each and at which nonce, which shows foreign transactions of watched senders.
    Senders,
}

/// A transaction in a block.
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

/// Where a hash was seen, at best, over all nodes that answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// No node that answered has it. Proves nothing.
    Nowhere,
    Pending,
    /// A node has a receipt for it. Neither final nor checked for its effect.
    Included(BlockRef),
}

impl Seen {
    /// The higher, the more a node has said.
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

/// Where a claimed transaction stands as of a given final block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxStatus {
    /// Unknown to the node. Proves nothing: see [`ChainEdge::fate`].
    NotSeen,
    /// In the pool, or in a block above the given one.
    NotFinal,
    /// In a canonical block at or below the given one.
    Settled(Settlement),
}

/// Asks what became of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FateQuestion {
    pub closing: Closing,
    /// Every hash ever signed under the binding.
    pub ours: Vec<TxHash>,
    /// A final block; the answer is as of it.
    pub asof: Head,
    /// A block at which the binding was certainly still open, where the search begins; of a window, the block it refers to.
    pub since: u64,
}

/// What became of a binding as of a final block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Something signed under it can still land.
    Open,
    /// One of our hashes is in a canonical block at or below the given one.
    Ours { hash: TxHash, block: BlockRef },
    /// Another transaction is: nothing of ours can land any more.
    Foreign { hash: TxHash, block: BlockRef },
    /// The window closed without it. `closing` is the first final block at or beyond its end, and `shown` a digest of all
    /// transactions from where the search began up to there: nodes that speak of another stretch of the chain, or of which
    /// one left a transaction out, do not agree.
    Expired { closing: BlockRef, shown: [u8; 32] },
}

/// Whose balance of what.
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

    /// What an attempt of this sender can bind to.
    async fn anchor(&self, sender: &Address) -> Result<Anchor, ChainError>;

    /// Prices actions from the node's history, within the chain's configured caps, in as few requests as possible; in
    /// the order asked. A price above a cap, a call that would revert and a wallet that cannot pay amount and fee are
    /// refusals that name themselves. Nothing was signed yet, so such a job can wait without a binding. Each action is
    /// judged by itself: what else its wallet has promised is the caller's to reserve.
    async fn quotes(&self, actions: &[Action], priority: Priority) -> Vec<Result<Quote, QuoteError>>;

    /// [`Self::quotes`] for one action.
    async fn quote(&self, action: &Action, priority: Priority) -> Result<Quote, QuoteError> {
        match self.quotes(std::slice::from_ref(action), priority).await.pop() {
            Some(quote) => quote,
            None => Err(ChainError::NotOfThisChain { what: "price" }.into()),
        }
    }

    /// The next price for another attempt at the same binding: at least the chain's replacement step above
    /// `previous`, and no less than `market` when that is known. `None` when the cap is reached or the chain has no
    /// replacements.
    fn bump(&self, previous: &Price, market: Option<&Price>) -> Option<Quote>;

    /// Compares what the signer returned with what was planned and gives the hash of the bytes. No I/O.
    fn check_signed(&self, raw: &[u8], plan: &Plan) -> Result<TxHash, SignedError>;

    /// Sends each of these to every node, in the given order, in as few requests as the nodes take. One result for
    /// each, in the same order; never an error, because "nobody answered" is an outcome too. Sending the same bytes
    /// again is always safe. Only bytes that are already persisted may be passed.
    async fn broadcast(&self, raw: &[Vec<u8>]) -> Vec<Broadcast>;

    /// Where these hashes were seen, over all nodes. For reconciliation after a crash or an unknown answer.
    async fn lookup(&self, hashes: &[TxHash]) -> Result<Vec<Sighting>, ChainError>;

    /// The tip, from the preferred node that does not lag. Per node it never goes back in number.
    async fn head(&self) -> Result<Head, ChainError>;

    /// The highest block that enough nodes call final, by the chain's configured rule.
    async fn finalized(&self) -> Result<Agreement<Head>, ChainError>;

    /// Canonical blocks of these numbers, ascending, from one node. Shorter than asked when the node ends earlier.
    async fn blocks(&self, numbers: RangeInclusive<u64>, detail: Detail) -> Result<Vec<Block>, ChainError>;

    /// Where each claim stands as of a final block, as each node tells it; in the order of the claims.
    async fn settlements(&self, claims: &[Claim], asof: &Head) -> Vec<Agreement<TxStatus>>;

    /// What became of a binding as of a final block. `Foreign` and `Expired`, agreed, are the only grounds on which a
    /// job may be given another binding or be called failed.
    async fn fate(&self, question: &FateQuestion) -> Agreement<Fate>;

    /// Balances in the latest state, in the order asked. `None` where a token's contract gave no number.
    async fn balances(&self, of: &[BalanceOf]) -> Result<Vec<Option<RawAmount>>, ChainError>;

    /// Each node's health as last seen. No I/O.
    fn nodes(&self) -> Vec<NodeHealth>;

    /// Asks every node for its head and reports their health afterwards.
    async fn probe(&self) -> Vec<NodeHealth>;
}
