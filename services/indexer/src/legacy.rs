//! The variables of the LiFi fee collector that this service replaces, so that its configuration starts an indexer unchanged.
//!
//! Owns the translation of names and defaults. A setting given under Bursar's own name wins. Nothing is translated unless one of
//! the four variables that describe a chain is set: they show that the configuration is the fee collector's.

use std::collections::BTreeMap;

use crate::config::{DAY_MS, FeeCollector, LEAST_LEASE_MS};
use crate::event::FEES_COLLECTED;
use crate::source::{MAX_BATCH, SourceSpec};

const PREFIX: &str = "BURSAR_INDEXER__";
const DEFAULT_PORT: u16 = 9999;
const DEFAULT_MONGO: &str = "mongodb://localhost:27017/lf-fee-collector";
const CHAIN_VARIABLES: [&str; 4] = ["ACTIVE_CHAIN", "RPC_URL", "CONTRACT_ADDRESS", "START_POINT"];

/// The process's variables, with the fee collector's added under their names here.
pub(crate) fn translate(mut variables: Vec<(String, String)>) -> Vec<(String, String)> {
    let given: BTreeMap<String, String> = variables.iter().cloned().collect();
    if !CHAIN_VARIABLES.iter().any(|name| given.contains_key(*name)) {
        return variables;
    }
    let value = |name: &str| given.get(name).cloned().filter(|text| !text.is_empty());
    let mut wrong = Vec::new();
    let port = value("API_PORT").map_or(Ok(DEFAULT_PORT), |text| text.trim().parse().map_err(|_| text));
    let port = port.unwrap_or_else(|text| {
        let problem = format!("must be the number of a port, not `{text}`");
        wrong.push(LegacyError::Wrong { name: "API_PORT", problem }.to_string());
        DEFAULT_PORT
    });
    // Numbers are clamped to the bounds here: the fee collector accepted a pause of 0.
    let mut number = |name: &'static str, least: u64, most: u64| {
        let text = value(name)?;
        match text.trim().parse::<u64>() {
            Ok(number) => Some(number.clamp(least, most).to_string()),
            Err(_) => {
                wrong.push(LegacyError::NotANumber { name, text }.to_string());
                None
            }
        }
    };
    let mongo = value("MONGO_URI").unwrap_or_else(|| DEFAULT_MONGO.to_owned());
    let batch = number("BATCH_SIZE", 1, u64::from(MAX_BATCH));
    let lease = number("JOB_LEASE_TTL_MS", LEAST_LEASE_MS, DAY_MS);
    let historical = number("HISTORICAL_POLL_INTERVAL_MS", 1, DAY_MS);
    let realtime = number("REALTIME_POLL_INTERVAL_MS", 1, DAY_MS);
    let mut known = vec![
        ("SERVER__LISTEN", Some(format!("0.0.0.0:{port}"))),
        ("MONGO__DATABASE", Some(database_of(&mongo))),
        ("MONGO__URL", Some(mongo)),
        ("TELEMETRY__FILTER", Some(filter(value("LOG_LEVEL").as_deref()))),
        ("TELEMETRY__LOG_FORMAT", value("APP_ENV").map(|env| log_format(&env))),
        ("COLLECT__BATCH_SIZE", batch),
        ("COLLECT__LEASE_MS", lease),
        ("COLLECT__HISTORICAL_POLL_MS", historical),
        ("COLLECT__REALTIME_POLL_MS", realtime),
        ("FEE_COLLECTOR__WRONG", (!wrong.is_empty()).then(|| wrong.join("; "))),
        ("COLLECT__CONCURRENCY", value("DEV_MULTIPLE_WORKERS").map(|many| workers(&many))),
    ];
    let chain = ["CHAIN", "RPC_URL", "CONTRACT", "START_POINT"];
    let chain = chain.map(|key| format!("FEE_COLLECTOR__{key}"));
    known.extend(chain.iter().map(String::as_str).zip(CHAIN_VARIABLES.map(value)));
    for (key, text) in known {
        let name = format!("{PREFIX}{key}");
        if let Some(text) = text.filter(|_| !given.contains_key(&name)) {
            variables.push((name, text));
        }
    }
    variables
}

/// The database in the path of a connection string; without one the fee collector's default.
fn database_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let name = path.split('?').next().unwrap_or("");
    if name.is_empty() { "lf-fee-collector".to_owned() } else { name.to_owned() }
}

/// The level applies to this program only; libraries at `debug` would log too much.
fn filter(level: Option<&str>) -> String {
    let level = match level.map(str::to_ascii_lowercase).as_deref() {
        None | Some("debug") => "debug",
        Some("trace" | "silly" | "verbose") => "trace",
        Some("info" | "http") => "info",
        Some("warn" | "warning") => "warn",
        Some("silent" | "off") => "off",
        Some(_) => "error",
    };
    match level {
        "debug" | "trace" => format!("info,indexer={level}"),
        other => other.to_owned(),
    }
}

fn log_format(env: &str) -> String {
    if env.eq_ignore_ascii_case("production") { "json" } else { "pretty" }.to_owned()
}

fn workers(many: &str) -> String {
    if many.eq_ignore_ascii_case("true") || many == "1" { "2" } else { "1" }.to_owned()
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum LegacyError {
    #[error("invalid chain config: {} must be set", .0.join(", "))]
    Missing(Vec<&'static str>),
    #[error("{name} must be a number, not `{text}`")]
    NotANumber { name: &'static str, text: String },
    #[error("{name}: {problem}")]
    Wrong { name: &'static str, problem: String },
    #[error("{0}")]
    Numbers(String),
}

/// Checks the variables that every process of the fee collector needs.
pub(crate) fn check(given: &FeeCollector) -> Result<(), LegacyError> {
    given.wrong.clone().map_or(Ok(()), |wrong| Err(LegacyError::Numbers(wrong)))
}

/// The source that the variables describe.
pub(crate) fn source(given: &FeeCollector) -> Result<SourceSpec, LegacyError> {
    check(given)?;
    let fields = [&given.chain, &given.rpc_url, &given.contract, &given.start_point];
    let missing: Vec<_> = CHAIN_VARIABLES
        .into_iter()
        .zip(fields)
        .filter(|(_, value)| value.is_none())
        .map(|(n, _)| n)
        .collect();
    let [Some(chain), Some(url), Some(contract), Some(start)] = fields.map(Option::as_ref) else {
        return Err(LegacyError::Missing(missing));
    };
    let number = |name, text: &str| {
        text.trim().parse::<u64>().map_err(|_| LegacyError::NotANumber { name, text: text.to_owned() })
    };
    let chain_id = number("ACTIVE_CHAIN", chain)?;
    let spec = SourceSpec {
        name: format!("lifi-{chain_id}"),
        chain_id,
        contract_address: contract.trim().to_owned(),
        event_signature: FEES_COLLECTED.to_owned(),
        start_block: number("START_POINT", start)?,
        // Several nodes are separated by commas.
        nodes: url.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect(),
        ..SourceSpec::default()
    };
    match spec.mistakes().into_iter().next() {
        None => Ok(spec),
        Some((field, problem)) => {
            let name = match field {
                "contract_address" => "CONTRACT_ADDRESS",
                "nodes" => "RPC_URL",
                "chain_id" => "ACTIVE_CHAIN",
                _ => "START_POINT",
            };
            Err(LegacyError::Wrong { name, problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn get<'a>(variables: &'a [(String, String)], key: &str) -> Option<&'a str> {
        let name = format!("{PREFIX}{key}");
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn the_smallest_configuration_takes_the_documented_defaults() {
        let env = translate(pairs(&[("ACTIVE_CHAIN", "137"), ("RPC_URL", "http://node")]));
        assert_eq!(get(&env, "SERVER__LISTEN"), Some("0.0.0.0:9999"));
        assert_eq!(get(&env, "MONGO__URL"), Some(DEFAULT_MONGO));
        assert_eq!(get(&env, "MONGO__DATABASE"), Some("lf-fee-collector"));
        assert_eq!(get(&env, "TELEMETRY__FILTER"), Some("info,indexer=debug"));
        assert_eq!(get(&env, "COLLECT__BATCH_SIZE"), None, "the default is the same here");
        assert_eq!(get(&env, "FEE_COLLECTOR__CHAIN"), Some("137"));
    }

    #[test]
    fn numbers_are_brought_into_bounds_and_what_is_none_is_named() {
        let chain = ("ACTIVE_CHAIN", "137");
        let env = translate(pairs(&[
            chain,
            ("HISTORICAL_POLL_INTERVAL_MS", "0"),
            ("JOB_LEASE_TTL_MS", "5"),
            ("BATCH_SIZE", " 250 "),
        ]));
        assert_eq!(get(&env, "COLLECT__HISTORICAL_POLL_MS"), Some("1"));
        assert_eq!(get(&env, "COLLECT__LEASE_MS"), Some("500"));
        assert_eq!(get(&env, "COLLECT__BATCH_SIZE"), Some("250"));
        assert_eq!(get(&env, "FEE_COLLECTOR__WRONG"), None);
        let env = translate(pairs(&[chain, ("BATCH_SIZE", "many"), ("API_PORT", "http")]));
        assert_eq!(get(&env, "COLLECT__BATCH_SIZE"), None);
        let wrong =
            "API_PORT: must be the number of a port, not `http`; BATCH_SIZE must be a number, not `many`";
        assert_eq!(get(&env, "FEE_COLLECTOR__WRONG"), Some(wrong));
    }

    #[test]
    fn bursars_own_names_win_and_nothing_happens_without_a_chain() {
        let own = ("BURSAR_INDEXER__SERVER__LISTEN", "127.0.0.1:1");
        let env = translate(pairs(&[("START_POINT", "5"), ("API_PORT", "80"), own]));
        assert_eq!(get(&env, "SERVER__LISTEN"), Some("127.0.0.1:1"));
        let env = pairs(&[("API_PORT", "80"), ("MONGO_URI", "mongodb://x/y")]);
        assert_eq!(translate(env.clone()), env);
    }

    #[test]
    fn every_missing_variable_is_named_and_numbers_must_be_numbers() {
        let full = FeeCollector {
            chain: Some("137".to_owned()),
            rpc_url: Some("http://a, http://b".to_owned()),
            contract: Some("0xbD6C7B0d2f68c2b7805d88388319cfB6EcB50eA9".to_owned()),
            start_point: Some("78600000".to_owned()),
            wrong: None,
        };
        let spec = source(&full).unwrap();
        assert_eq!((spec.chain_id, spec.start_block, spec.nodes.len()), (137, 78_600_000, 2));
        let error = source(&FeeCollector { rpc_url: None, start_point: None, ..full.clone() }).unwrap_err();
        assert_eq!(error.to_string(), "invalid chain config: RPC_URL, START_POINT must be set");
        let error = source(&FeeCollector { start_point: Some("latest".to_owned()), ..full }).unwrap_err();
        assert_eq!(error.to_string(), "START_POINT must be a number, not `latest`");
    }
}
