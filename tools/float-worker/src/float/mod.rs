//! The built-in strategy: keep the float of each hot wallet between a floor and a ceiling.
//!
//! A wallet's float is what it can pay with: its balance and what is on its way, less what is spoken for. Below the floor it is
//! brought up to the target, above the ceiling down to it; between the two nothing is done, so that small payments cause no
//! transfers. What one wallet has too much goes to one that has too little first, the rest into cold storage; what is
//! still missing is asked for from outside.
//!
//! Invariants: a move never takes a float out of its bounds; nothing is decided by a price that the sources do not agree on;
//! a balance that was never read, or not for long, decides nothing.

mod decide;
mod score;

use std::collections::BTreeSet;

use types::{AssetSymbol, ChainName};

pub use score::{Regime, Score, Scores};

use crate::book::Book;
use crate::decimal::Decimal;
use crate::market::Market;
use crate::strategy::{Decision, Kind, Strategy, StrategyError};

/// What bounds are told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// The asset's own unit.
    #[default]
    Asset,
    /// The quote: the bounds move with the price.
    Quote,
}

impl std::str::FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "asset" => Ok(Self::Asset),
            "quote" => Ok(Self::Quote),
            _ => Err("it is neither `asset` nor `quote`".to_owned()),
        }
    }
}

/// The bounds of one asset on one chain, for each hot wallet there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub unit: Unit,
    pub floor: Decimal,
    /// Between floor and ceiling.
    pub target: Decimal,
    pub ceiling: Decimal,
}

/// When a price is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// Sources further apart than this disagree.
    pub max_deviation_bp: u64,
    /// A price that moved more than this within the candles has not settled.
    pub max_volatility_bp: u64,
    /// A pool that holds less is no witness, in US dollars: it takes little to move its price.
    pub min_reserve: Decimal,
}

/// The strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloatBounds {
    /// What prices are told in; its own price is 1.
    pub quote: AssetSymbol,
    pub bounds: Vec<Bounds>,
    pub trust: Trust,
}

impl FloatBounds {
    /// The kinds of moves that it proposes.
    pub const KINDS: &'static [Kind] = &[Kind::Refill, Kind::Sweep, Kind::Rebalance];

    /// Every asset that has bounds.
    #[must_use]
    pub fn assets(&self) -> BTreeSet<&AssetSymbol> {
        self.bounds.iter().map(|bounds| &bounds.asset).collect()
    }
}

impl Strategy for FloatBounds {
    type Scores = Scores;

    fn name(&self) -> &'static str {
        "float-bounds"
    }

    fn kinds(&self) -> &'static [Kind] {
        Self::KINDS
    }

    fn score(&self, market: &Market) -> Result<Scores, StrategyError> {
        score::score(self, market)
    }

    fn decide(&self, scores: &Scores, book: &Book) -> Result<Decision, StrategyError> {
        decide::decide(self, scores, book)
    }

    fn regime(&self, scores: &Scores) -> &'static str {
        scores.regime().name()
    }
}

#[cfg(test)]
mod tests;
