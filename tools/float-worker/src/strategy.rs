//! What a strategy is: it scores the market and decides which moves to make. To be replaced by one's own.
//!
//! Owns the words of a decision and the check that every decision passes before anything is done with it, whoever made it.
//! A strategy does no I/O and reads no clock: the same market and book give the same decision.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use serde::Serialize;
use types::{AssetSymbol, ChainName, Decimals, RawAmount, WalletId, format_amount};

use crate::book::{Book, Role, Wallet};
use crate::decimal::Decimal;
use crate::market::Market;

/// More moves than this in one decision are a mistake of the strategy.
pub const MAX_MOVES: usize = 1_000;

/// Why a strategy reaches no decision. The cycle then fails and proposes nothing.
#[derive(Debug, thiserror::Error)]
pub enum StrategyError {
    #[error("execution knows no {asset} on {chain}")]
    UnknownAsset { chain: ChainName, asset: AssetSymbol },
    #[error("no candles of {0} were fetched")]
    Unpriced(AssetSymbol),
    #[error("amounts of {asset} on {chain} leave the range of 256 bits")]
    Overflow { chain: ChainName, asset: AssetSymbol },
    /// For strategies of one's own.
    #[error("the strategy failed")]
    Other(#[source] Box<dyn Error + Send + Sync>),
}

/// Decides what to do. See the crate's README for how to write one.
pub trait Strategy: Send + Sync + 'static {
    /// What the market looks like to this strategy. Stored and published as JSON.
    type Scores: Serialize + Send + Sync;

    /// Shown in the worker's state.
    fn name(&self) -> &'static str;

    /// The kinds of moves that it may ever propose; the client must offer them all before anything is carried out.
    fn kinds(&self) -> &'static [Kind];

    /// Judges the market.
    ///
    /// # Errors
    /// When what was fetched is not enough to judge by.
    fn score(&self, market: &Market) -> Result<Self::Scores, StrategyError>;

    /// Decides an allocation: the moves that lead to it.
    ///
    /// # Errors
    /// When no decision can be made.
    fn decide(&self, scores: &Self::Scores, book: &Book) -> Result<Decision, StrategyError>;

    /// One word about the market, for the worker's state.
    fn regime(&self, scores: &Self::Scores) -> &'static str;
}

/// What a move does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// From outside into a hot wallet. Cold wallets never pay, so a person brings it.
    Refill,
    /// From a hot wallet into a cold one.
    Sweep,
    /// From one hot wallet into another.
    Rebalance,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refill => "refill",
            Self::Sweep => "sweep",
            Self::Rebalance => "rebalance",
        })
    }
}

/// One end of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Wallet(WalletId),
    /// Where Bursar holds no key.
    Outside,
}

/// One transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub kind: Kind,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub from: End,
    pub to: End,
    pub amount: RawAmount,
    pub decimals: Decimals,
    /// At the price it was decided with; absent when no price is trusted.
    pub value: Option<Decimal>,
    /// For people.
    pub reason: String,
}

impl Move {
    /// The amount in the asset's unit.
    #[must_use]
    pub fn amount_text(&self) -> String {
        format_amount(self.amount, self.decimals)
    }
}

/// Something that would have been decided, and why it was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hold {
    pub chain: ChainName,
    pub asset: AssetSymbol,
    /// Absent when it concerns all wallets of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wallet: Option<WalletId>,
    pub reason: String,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    pub moves: Vec<Move>,
    pub holds: Vec<Hold>,
}

/// A decision that no strategy may make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("move {index} of the decision is refused: {reason}")]
pub struct Impossible {
    pub index: usize,
    pub reason: String,
}

impl Decision {
    /// Holds a decision against the book: known and active wallets of the right roles, one chain, whole amounts, and no wallet giving
    /// more than it may, all moves together.
    ///
    /// # Errors
    /// The first move that cannot be. None of the others is made either.
    pub fn check(&self, book: &Book, kinds: &[Kind]) -> Result<(), Impossible> {
        let mut given: BTreeMap<(WalletId, &AssetSymbol), RawAmount> = BTreeMap::new();
        for (index, a_move) in self.moves.iter().enumerate() {
            let refuse = |reason: String| Impossible { index, reason };
            if index >= MAX_MOVES {
                return Err(refuse(format!("a decision has at most {MAX_MOVES} moves")));
            }
            let payer = check_ends(a_move, book, kinds).map_err(refuse)?;
            let Some(payer) = payer else { continue };
            let movable =
                payer.holdings.get(&a_move.asset).filter(|h| !h.stale).map(|holding| holding.movable());
            let before = given.get(&(payer.id, &a_move.asset)).copied().unwrap_or(RawAmount::ZERO);
            match (before.checked_add(a_move.amount), movable) {
                (Some(sum), Some(movable)) if sum <= movable => {
                    given.insert((payer.id, &a_move.asset), sum);
                }
                _ => return Err(refuse(format!("{} has not that much to give", payer.id))),
            }
        }
        Ok(())
    }
}

/// The wallet that gives, if it is one of ours.
fn check_ends<'a>(a_move: &Move, book: &'a Book, kinds: &[Kind]) -> Result<Option<&'a Wallet>, String> {
    if !kinds.contains(&a_move.kind) {
        return Err(format!("the strategy said that it never proposes a {}", a_move.kind));
    }
    match book.asset(&a_move.chain, &a_move.asset) {
        Some(asset) if asset.decimals == a_move.decimals => {}
        Some(_) => return Err("the asset has other decimals".to_owned()),
        None => return Err(format!("there is no {} on {}", a_move.asset, a_move.chain)),
    }
    if a_move.amount.is_zero() {
        return Err("it moves nothing".to_owned());
    }
    if a_move.from == a_move.to {
        return Err("it leads nowhere".to_owned());
    }
    let wallet = |end: End, role: Role| match end {
        End::Outside => Err(format!("a {} has a wallet at both ends", a_move.kind)),
        End::Wallet(id) => book
            .wallets
            .get(&id)
            .filter(|w| w.active && w.role == role && w.chain == a_move.chain)
            .ok_or_else(|| format!("{id} is no active wallet of {} for that", a_move.chain)),
    };
    match (a_move.kind, a_move.from) {
        (Kind::Refill, End::Outside) => wallet(a_move.to, Role::Hot).map(|_| None),
        (Kind::Refill, End::Wallet(_)) => Err("a refill comes from outside".to_owned()),
        (Kind::Sweep, from) => {
            wallet(a_move.to, Role::Cold)?;
            wallet(from, Role::Hot).map(Some)
        }
        (Kind::Rebalance, from) => {
            wallet(a_move.to, Role::Hot)?;
            wallet(from, Role::Hot).map(Some)
        }
    }
}
