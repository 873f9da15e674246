//! The program's settings: a TOML file, overridden by `BURSAR_FLOAT_WORKER__*` variables; and the worker's own variables
//! (`WORKER_PAIR_ID`, `INTERVAL_SEC`, ..), which win over the file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Uri;
use rpc::ClientConfig;
use service::config::{ConfigErrors, Reader};
use telemetry::TelemetryConfig;
use types::{AssetSymbol, Backoff};
use worker::Settings;

use crate::client::Execution;
use crate::decimal::Decimal;
use crate::float::{Bounds, FloatBounds, Trust, Unit};
use crate::source::{CandleSource, Limits, PoolSource, Side};

/// Name of the program and of its variables' prefix.
pub const NAME: &str = "float-worker";
const DAY_MS: u64 = 86_400_000;
/// All are asked at once.
const MAX_SOURCES: usize = 64;

/// Everything the program needs.
#[derive(Debug, Clone)]
pub struct Config {
    pub telemetry: TelemetryConfig,
    pub settings: Settings,
    pub execution: ClientConfig,
    pub limits: Limits,
    pub candles: Vec<CandleSource>,
    pub pools: Vec<PoolSource>,
    pub strategy: FloatBounds,
    /// Balances that nobody has read for this long decide nothing.
    pub max_balance_age: Duration,
    pub dry_run: bool,
}

/// What keeps the real client from doing more than propose.
#[must_use]
pub fn why_not_live(kinds: &str) -> String {
    format!(
        "must be true: this client cannot carry out a {kinds} (execution's API has no call that moves funds between operation \
         wallets). Run dry and carry the proposals out by hand, or write a client that can"
    )
}

impl Config {
    /// Reads the whole configuration.
    ///
    /// # Errors
    /// Every mistake in it, those in the worker's variables among them.
    pub fn load(reader: Reader, variables: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let config = Self::read(&reader, variables);
        reader.finish(config)
    }

    fn read(reader: &Reader, variables: &BTreeMap<String, String>) -> Option<Self> {
        let telemetry = service::config::telemetry(reader, NAME);
        let settings = settings(reader, variables);
        let execution = service::config::client(reader, "execution");
        let limits = limits(&reader.section("fetch"));
        let quote = reader.req::<AssetSymbol>("quote");
        let trust = trust(&reader.section("trust"));
        let candles = reader.list("candles", candle_source);
        let pools = reader.list("pools", pool_source);
        let bounds = reader.list("floats", bounds);
        let max_balance_age = millis(reader, "max_balance_age_ms", 600_000);
        let dry_run = reader.or("dry_run", true);
        check(reader, quote.as_ref(), &bounds, (&candles, &pools));
        let cannot = FloatBounds::KINDS.iter().filter(|kind| !Execution::OFFERS.contains(kind));
        let cannot: Vec<String> = cannot.map(ToString::to_string).collect();
        if !dry_run && !cannot.is_empty() {
            reader.wrong("dry_run", why_not_live(&cannot.join(", ")));
        }
        Some(Self {
            telemetry,
            settings: settings?,
            execution: execution?,
            limits,
            candles,
            pools,
            strategy: FloatBounds { quote: quote?, bounds, trust },
            max_balance_age,
            dry_run,
        })
    }
}

/// The file's `[worker]` section is what the variables say when nobody sets them.
fn settings(reader: &Reader, variables: &BTreeMap<String, String>) -> Option<Settings> {
    let section = reader.section("worker");
    let file = [
        ("WORKER_PAIR_ID", section.opt::<String>("id")),
        ("INTERVAL_SEC", section.opt::<u64>("interval_sec").map(|seconds| seconds.to_string())),
        ("WORKER_DATA_DIR", section.opt::<String>("data_dir")),
    ];
    let file = file.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let set = variables.iter().map(|(name, value)| (name.clone(), value.clone()));
    let default = "float".parse().ok()?;
    match Settings::from_variables(&default, file.chain(set)) {
        Ok(settings) => Some(settings),
        Err(error) => {
            for mistake in error.0 {
                reader.wrong("worker", mistake);
            }
            None
        }
    }
}

fn millis(reader: &Reader, key: &str, default: u64) -> Duration {
    Duration::from_millis(reader.within(key, default, 1..=DAY_MS))
}

fn limits(section: &Reader) -> Limits {
    let timeout = millis(section, "timeout_ms", 10_000);
    let max_bytes = section.within("max_bytes", 2 << 20, 1024..=64 << 20);
    let base = millis(section, "backoff_ms", 500);
    let cap = millis(section, "backoff_cap_ms", 10_000);
    let max_tries = section.within("tries", 3, 1..=20);
    Limits { timeout, max_bytes, backoff: Backoff { base, cap: Some(cap), max_tries } }
}

fn trust(section: &Reader) -> Trust {
    Trust {
        max_deviation_bp: section.within("max_deviation_bp", 200, 0..=1_000_000),
        max_volatility_bp: section.within("max_volatility_bp", 2_000, 0..=1_000_000),
        min_reserve: section.opt("min_reserve_usd").unwrap_or(Decimal::ZERO),
    }
}

/// What every source has: its asset, its address and its name, which is the host when none is given.
fn source(section: &Reader) -> Option<(AssetSymbol, Uri, String)> {
    let asset = section.req::<AssetSymbol>("asset");
    let url = section.req::<String>("url");
    let name = section.opt::<String>("name");
    // The address may hold a key, so it is not repeated in the message.
    let uri = url?.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let Some(uri) = uri.filter(|uri| uri.host().is_some()) else {
        section.wrong("url", "must be an http:// or https:// address");
        return None;
    };
    let name = name.or_else(|| uri.host().map(str::to_owned))?;
    Some((asset?, uri, name))
}

fn candle_source(section: &Reader) -> Option<CandleSource> {
    let max_age = millis(section, "max_age_ms", 1_800_000);
    let (asset, url, name) = source(section)?;
    Some(CandleSource { name, asset, url, max_age })
}

fn pool_source(section: &Reader) -> Option<PoolSource> {
    let max_age = millis(section, "max_age_ms", 300_000);
    let side = section.or("side", Side::default());
    let (asset, url, name) = source(section)?;
    Some(PoolSource { name, asset, url, side, max_age })
}

fn bounds(section: &Reader) -> Option<Bounds> {
    let chain = section.req("chain");
    let asset = section.req("asset");
    let unit = section.or("unit", Unit::default());
    let floor = section.req::<Decimal>("floor");
    let target = section.opt::<Decimal>("target");
    let ceiling = section.req::<Decimal>("ceiling");
    let (floor, ceiling) = (floor?, ceiling?);
    let target = target.unwrap_or_else(|| floor.midpoint(ceiling));
    if floor > ceiling {
        section.wrong("floor", format!("{floor} is above the ceiling, {ceiling}"));
        return None;
    }
    if target < floor || target > ceiling {
        section.wrong("target", format!("{target} is not between floor and ceiling, {floor} and {ceiling}"));
        return None;
    }
    Some(Bounds { chain: chain?, asset: asset?, unit, floor, target, ceiling })
}

/// What does not fit together.
fn check(
    reader: &Reader,
    quote: Option<&AssetSymbol>,
    floats: &[Bounds],
    (candles, pools): (&[CandleSource], &[PoolSource]),
) {
    if floats.is_empty() {
        reader.wrong("floats", "at least one is needed; without bounds there is nothing to keep");
    }
    if candles.len() + pools.len() > MAX_SOURCES {
        reader.wrong("candles", format!("at most {MAX_SOURCES} sources, pools included"));
    }
    let mut seen = BTreeSet::new();
    for bounds in floats {
        if !seen.insert((&bounds.chain, &bounds.asset)) {
            reader.wrong("floats", format!("{} on {} has bounds twice", bounds.asset, bounds.chain));
        }
    }
    let assets: BTreeSet<&AssetSymbol> = floats.iter().map(|bounds| &bounds.asset).collect();
    for asset in &assets {
        if Some(*asset) != quote && !candles.iter().any(|source| source.asset == **asset) {
            reader.wrong("candles", format!("none of {asset}, which has a float and is not the quote"));
        }
    }
    let mut named = BTreeSet::new();
    let candles = candles.iter().map(|source| ("candles", &source.asset, &source.name));
    for (list, asset, name) in
        candles.chain(pools.iter().map(|source| ("pools", &source.asset, &source.name)))
    {
        if !assets.contains(asset) {
            reader.wrong(list, format!("{name} tells of {asset}, which has no float"));
        }
        if !named.insert((list, asset, name)) {
            reader.wrong(list, format!("two sources of {asset} are named {name}; give each a name"));
        }
    }
}
