//! The configuration: defaults, variables, and every mistake at once.

use std::time::Duration;

use float_worker::decimal::Decimal;
use float_worker::float::Unit;

use crate::load;

const GOOD: &str = r#"
    quote = "USDT"
    [clients.execution]
    url = "http://127.0.0.1:1"
    [[candles]]
    asset = "BNB"
    url = "https://api.binance.com/api/v3/klines?symbol=BNBUSDT&interval=15m&limit=96"
    [[floats]]
    chain = "bsc"
    asset = "BNB"
    floor = "10"
    ceiling = "30"
"#;

#[test]
fn little_is_needed_and_the_worker_runs_dry() {
    let config = load(GOOD, &[]).unwrap();
    assert!(config.dry_run);
    assert_eq!(config.settings.id.as_str(), "float");
    assert_eq!(config.settings.interval, Duration::from_secs(900));
    assert_eq!(config.candles[0].name, "api.binance.com");
    let bounds = &config.strategy.bounds[0];
    assert_eq!((bounds.unit, bounds.target), (Unit::Asset, "20".parse::<Decimal>().unwrap()));
}

#[test]
fn variables_win_over_the_file() {
    let text = format!("{GOOD}\n[worker]\nid = \"from-file\"\ninterval_sec = 60\ndata_dir = \"data\"");
    let config = load(&text, &[]).unwrap();
    assert_eq!((config.settings.id.as_str(), config.settings.interval.as_secs()), ("from-file", 60));
    assert_eq!(config.settings.data_dir.as_deref(), Some("data".as_ref()));
    let variables = [
        ("WORKER_PAIR_ID", "BNB-USDT"),
        ("INTERVAL_SEC", "0.5"),
        ("BURSAR_FLOAT_WORKER__TRUST__MAX_DEVIATION_BP", "7"),
        ("BURSAR_FLOAT_WORKER__FLOATS__0__UNIT", "quote"),
    ];
    let config = load(&text, &variables).unwrap();
    assert_eq!(config.settings.id.as_str(), "BNB-USDT");
    assert_eq!(config.settings.interval, Duration::from_millis(500));
    assert_eq!(config.strategy.trust.max_deviation_bp, 7);
    assert_eq!(config.strategy.bounds[0].unit, Unit::Quote);
}

#[test]
fn every_mistake_is_named_at_once() {
    let text = r#"
        quotes = "USDT"
        dry_run = false
        [clients.execution]
        url = "ftp://x"
        [fetch]
        tries = 0
        [[candles]]
        asset = "DOGE"
        url = "binance"
        [[candles]]
        asset = "TRX"
        url = "https://a.example/1"
        [[candles]]
        asset = "TRX"
        url = "https://a.example/2"
        [[floats]]
        chain = "BSC"
        asset = "BNB"
        floor = 10
        ceiling = "30"
        [[floats]]
        chain = "bsc"
        asset = "BNB"
        floor = "10"
        target = "40"
        ceiling = "30"
        [[floats]]
        chain = "bsc"
        asset = "BNB"
        unit = "coins"
        floor = "31"
        ceiling = "30"
        [[floats]]
        chain = "tron"
        asset = "USDD"
        floor = "0"
        ceiling = "1"
    "#;
    let errors = load(text, &[("INTERVAL_SEC", "often"), ("WORKER_PAIR_ID", "a b")]).unwrap_err().to_string();
    for expected in [
        "quote: is missing",
        "quotes: is not a known setting; did you mean `quote`?",
        "dry_run: must be true: this client cannot carry out a refill, sweep, rebalance",
        "clients.execution.url: `ftp://x` must start with http",
        "fetch.tries: 0 is not between 1 and 20",
        "candles[0].url: must be an http:// or https:// address",
        "candles: two sources of TRX are named a.example; give each a name",
        "candles: a.example tells of TRX, which has no float",
        "candles: none of USDD, which has a float and is not the quote",
        "floats[0].chain: `BSC` cannot be used",
        "floats[0].floor: must be a text, not the integer 10",
        "floats[1].target: 40 is not between floor and ceiling",
        "floats[2].unit: `coins` cannot be used",
        "floats[2].floor: 31 is above the ceiling",
        "worker: INTERVAL_SEC: `often` cannot be used",
        "worker: WORKER_PAIR_ID: `a b` cannot be used",
    ] {
        assert!(errors.contains(expected), "{errors}\n does not say: {expected}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let text = GOOD.replace("limit=96", "limit=96&key=hunter2");
    let variables = [("WORKER_REDIS_URL", "redis://:hunter2@127.0.0.1:1")];
    let config = load(&text, &variables).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}
