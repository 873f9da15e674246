//! Where candles and pool snapshots come from: HTTP sources named in the configuration.
//!
//! Owns fetching and reading them. Never judges a price, never makes up for a missing one: a source that does not answer, answers
//! nonsense or answers with something old is an error that names it.

mod gecko;
mod http;
mod klines;

use std::fmt;
use std::time::Duration;

use ::http::Uri;
use chrono::{DateTime, Utc};
use futures::future::join_all;
use types::{AssetSymbol, Backoff};

use self::http::Http;
use crate::market::{Market, Pool, Series};

/// Bounds of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For one try, the whole answer included.
    pub timeout: Duration,
    pub max_bytes: usize,
    /// Pauses between tries, and how many tries there are.
    pub backoff: Backoff,
}

/// A source of candles.
#[derive(Clone, PartialEq, Eq)]
pub struct CandleSource {
    pub name: String,
    pub asset: AssetSymbol,
    pub url: Uri,
    /// The last closed candle may have closed this long ago.
    pub max_age: Duration,
}

/// Which token of a pool is the asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    #[default]
    Base,
    Quote,
}

impl std::str::FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "base" => Ok(Self::Base),
            "quote" => Ok(Self::Quote),
            _ => Err("it is neither `base` nor `quote`".to_owned()),
        }
    }
}

/// A source of pool snapshots.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolSource {
    pub name: String,
    pub asset: AssetSymbol,
    pub url: Uri,
    pub side: Side,
    /// The answer may have lain in caches this long.
    pub max_age: Duration,
}

// Addresses may carry an API key, so neither prints its own.
impl fmt::Debug for CandleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CandleSource")
            .field("name", &self.name)
            .field("asset", &self.asset)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolSource")
            .field("name", &self.name)
            .field("asset", &self.asset)
            .finish_non_exhaustive()
    }
}

/// Why a source gave nothing usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("source {name}: {fault} (after {tries} of {max_tries} tries)")]
pub struct SourceError {
    pub name: String,
    pub fault: Fault,
    pub tries: u32,
    pub max_tries: u32,
}

/// What went wrong with the last try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    #[error("no whole answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the answer broke off: {0}")]
    Interrupted(String),
    #[error("answered HTTP {code}")]
    Status {
        code: u16,
        /// How long it asked us to wait.
        retry_after: Option<Duration>,
    },
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the answer makes no sense: {0}")]
    Malformed(String),
    #[error("the answer is stale: {0}")]
    Stale(String),
}

impl Fault {
    /// Whether asking again soon may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Timeout(_) | Self::Interrupted(_) => true,
            // 408 and 429 ask for patience; the other refusals of the 400s stay what they are.
            Self::Status { code, .. } => *code >= 500 || *code == 408 || *code == 429,
            Self::TooLarge(_) | Self::Malformed(_) | Self::Stale(_) => false,
        }
    }
}

/// Every source that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct SourceErrors(pub Vec<SourceError>);

/// All configured sources.
#[derive(Debug)]
pub struct Sources {
    http: Http,
    candles: Vec<CandleSource>,
    pools: Vec<PoolSource>,
}

impl Sources {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// When no certificates can be had, neither the machine's nor our own.
    pub fn new(limits: Limits, candles: Vec<CandleSource>, pools: Vec<PoolSource>) -> Result<Self, NoTls> {
        Ok(Self { http: Http::new(limits)?, candles, pools })
    }

    /// Asks all of them at once.
    ///
    /// # Errors
    /// Every source that failed: half a market is none.
    pub async fn fetch(&self) -> Result<Market, SourceErrors> {
        let series = join_all(self.candles.iter().map(|source| self.candles_of(source)));
        let pools = join_all(self.pools.iter().map(|source| self.pool_of(source)));
        let (series, pools) = tokio::join!(series, pools);
        let mut errors = Vec::new();
        let series = keep(series, &mut errors);
        let pools = keep(pools, &mut errors);
        if errors.is_empty() { Ok(Market { series, pools }) } else { Err(SourceErrors(errors)) }
    }

    async fn candles_of(&self, source: &CandleSource) -> Result<Series, SourceError> {
        let read = |answer: &http::Answer, now: DateTime<Utc>| {
            let candles = klines::read(&answer.body, now)?;
            klines::check_age(&candles, now, source.max_age)?;
            Ok(Series { asset: source.asset.clone(), source: source.name.clone(), candles })
        };
        self.http.get(&source.name, &source.url, read).await
    }

    async fn pool_of(&self, source: &PoolSource) -> Result<Pool, SourceError> {
        self.http.get(&source.name, &source.url, |answer, now| gecko::read(source, answer, now)).await
    }
}

fn keep<T>(results: Vec<Result<T, SourceError>>, errors: &mut Vec<SourceError>) -> Vec<T> {
    let mut kept = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(value) => kept.push(value),
            Err(error) => errors.push(error),
        }
    }
    kept
}

/// There is no list of certificate authorities.
#[derive(Debug, thiserror::Error)]
#[error("no certificate authorities to trust")]
pub struct NoTls(#[source] pub(crate) rustls::Error);
