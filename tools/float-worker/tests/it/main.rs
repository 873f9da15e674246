//! The strategy worker against real HTTP sources, a real gRPC execution API, a real Redis and real files.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included, an error is a failed test")]

mod config;
mod cycle;
mod execution;
mod live;
mod market;
mod process;
mod sources;

use std::collections::BTreeMap;
use std::time::Duration;

use float_worker::Parts;
use float_worker::client::Execution;
use float_worker::config::{Config, NAME};
use float_worker::float::FloatBounds;
use float_worker::source::Sources;
use service::config::Reader;

const PATIENCE: Duration = Duration::from_secs(20);

/// A whole configuration: BNB with candles and a pool, bounds 10, 20, 30.
fn toml(market: &market::Server, execution: &execution::Server) -> String {
    format!(
        r#"
        quote = "USDT"
        [clients.execution]
        url = "{execution}"
        api_key = "{key}"
        [clients.execution.retry]
        max_attempts = 1
        [fetch]
        timeout_ms = 5000
        tries = 1
        [[candles]]
        asset = "BNB"
        name = "exchange"
        url = "{market}/api/v3/klines?symbol=BNBUSDT&interval=15m&limit=3"
        [[pools]]
        asset = "BNB"
        name = "pool"
        url = "{market}/api/v2/networks/bsc/pools/0x58f876857a02d6762e0101bb5c46a8c1ed44dc16"
        [[floats]]
        chain = "bsc"
        asset = "BNB"
        floor = "10"
        target = "20"
        ceiling = "30"
        [[floats]]
        chain = "bsc"
        asset = "USDT"
        floor = "1000"
        ceiling = "3000"
        "#,
        execution = execution.url(),
        key = execution.key(),
        market = market.url(),
    )
}

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, service::config::ConfigErrors> {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::load(Reader::parse(NAME, Some("float.toml"), text, variables.clone())?, &variables)
}

fn parts(config: Config) -> Parts<FloatBounds, Execution> {
    Parts {
        sources: Sources::new(config.limits, config.candles, config.pools).unwrap(),
        strategy: config.strategy,
        client: Execution::new(rpc::connect_lazy(&config.execution).unwrap()),
        max_balance_age: config.max_balance_age,
        dry_run: config.dry_run,
    }
}
