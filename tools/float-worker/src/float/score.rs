//! Scoring: one price for each asset, and whether it is to be believed.

use std::collections::BTreeMap;

use serde::Serialize;
use types::AssetSymbol;

use super::FloatBounds;
use crate::decimal::Decimal;
use crate::market::Market;
use crate::strategy::StrategyError;

/// How the market of an asset looks. Worse is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    Calm,
    /// The price moved too much to have settled.
    Volatile,
    /// The sources disagree.
    Disputed,
}

impl Regime {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Volatile => "volatile",
            Self::Disputed => "disputed",
        }
    }
}

/// What is thought of one asset's price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// Median of the sources' last closes.
    pub price: Decimal,
    /// How far the price moved within the candles.
    pub volatility_bp: u64,
    /// The largest distance of a source, pools included, from the price.
    pub deviation_bp: u64,
    /// How many candle sources and pools were heard.
    pub witnesses: usize,
    pub regime: Regime,
}

/// All scores, by asset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Scores(pub BTreeMap<AssetSymbol, Score>);

impl Scores {
    /// The price of an asset, if it is to be believed.
    #[must_use]
    pub fn trusted(&self, asset: &AssetSymbol) -> Option<Decimal> {
        self.0.get(asset).filter(|score| score.regime == Regime::Calm).map(|score| score.price)
    }

    /// That of the worst asset.
    #[must_use]
    pub fn regime(&self) -> Regime {
        self.0.values().map(|score| score.regime).max().unwrap_or(Regime::Calm)
    }
}

pub(super) fn score(strategy: &FloatBounds, market: &Market) -> Result<Scores, StrategyError> {
    let scores =
        strategy.assets().into_iter().map(|asset| Ok((asset.clone(), one(strategy, market, asset)?)));
    scores.collect::<Result<_, _>>().map(Scores)
}

fn one(strategy: &FloatBounds, market: &Market, asset: &AssetSymbol) -> Result<Score, StrategyError> {
    if *asset == strategy.quote {
        let (price, regime) = (Decimal::ONE, Regime::Calm);
        return Ok(Score { price, volatility_bp: 0, deviation_bp: 0, witnesses: 0, regime });
    }
    let trust = strategy.trust;
    let mut closes: Vec<Decimal> =
        market.candles(asset).filter_map(|series| series.candles.last()).map(|last| last.close).collect();
    closes.sort_unstable();
    // Of an even number the lower one: a price that was really paid, rather than a mean that was not.
    let middle = closes.len().saturating_sub(1) / 2;
    let price = *closes.get(middle).ok_or_else(|| StrategyError::Unpriced(asset.clone()))?;
    let pools =
        market.pools_of(asset).filter(|pool| pool.reserve >= trust.min_reserve).map(|pool| pool.price);
    let witnesses: Vec<Decimal> = closes.iter().copied().chain(pools).collect();
    // A price of zero is at no distance from anything; it is as far away as can be.
    let distance = |other: &Decimal| price.distance_bp(*other).unwrap_or(u64::MAX);
    let deviation_bp = witnesses.iter().map(distance).max().unwrap_or(0);
    let volatility_bp = volatility(market, asset);
    let regime = if deviation_bp > trust.max_deviation_bp {
        Regime::Disputed
    } else if volatility_bp > trust.max_volatility_bp {
        Regime::Volatile
    } else {
        Regime::Calm
    };
    Ok(Score { price, volatility_bp, deviation_bp, witnesses: witnesses.len(), regime })
}

/// The range between the lowest low and the highest high, of the source where it is widest.
fn volatility(market: &Market, asset: &AssetSymbol) -> u64 {
    let range = |candles: &[crate::market::Candle]| {
        let low = candles.iter().map(|candle| candle.low).min()?;
        let high = candles.iter().map(|candle| candle.high).max()?;
        Some(low.distance_bp(high).unwrap_or(u64::MAX))
    };
    market.candles(asset).filter_map(|series| range(&series.candles)).max().unwrap_or(0)
}
