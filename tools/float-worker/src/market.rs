//! What a cycle knows about the market: candles and pools as their sources told them, checked but not judged.

use chrono::{DateTime, Utc};
use serde::Serialize;
use types::AssetSymbol;

use crate::decimal::Decimal;

/// One candle, in units of the quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candle {
    #[serde(with = "chrono::serde::ts_milliseconds")]
    pub open_time: DateTime<Utc>,
    #[serde(with = "chrono::serde::ts_milliseconds")]
    pub close_time: DateTime<Utc>,
    pub open: Decimal,
    pub high: Decimal,
    pub low: Decimal,
    pub close: Decimal,
    pub volume: Decimal,
}

/// The candles of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub asset: AssetSymbol,
    pub source: String,
    /// Oldest first, at least one, all of them closed.
    pub candles: Vec<Candle>,
}

/// A liquidity pool as it was a moment ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pool {
    pub asset: AssetSymbol,
    pub source: String,
    /// Of the asset, in US dollars.
    pub price: Decimal,
    /// What the pool holds, in US dollars.
    pub reserve: Decimal,
    pub volume_h24: Decimal,
    pub trades_h24: u64,
    #[serde(with = "chrono::serde::ts_milliseconds")]
    pub seen_at: DateTime<Utc>,
}

/// Everything that was fetched for one cycle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Market {
    pub series: Vec<Series>,
    pub pools: Vec<Pool>,
}

impl Market {
    /// The candles of an asset, one entry for each source.
    pub fn candles(&self, asset: &AssetSymbol) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.asset == *asset)
    }

    /// The pools of an asset.
    pub fn pools_of(&self, asset: &AssetSymbol) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| pool.asset == *asset)
    }
}
