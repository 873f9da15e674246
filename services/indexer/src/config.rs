//! The indexer's own settings.
//!
//! Sources come from three places: `[[sources]]` here, `AddSource`, and the variables of the LiFi fee collector that this
//! service replaces (`fee_collector`, see `legacy`). Those variables are parsed at the start, not here, because that program
//! ended with exit code 1 for a wrong one, and a wrong configuration ends with 2.

use std::fmt;
use std::time::Duration;

use rpc::Secret;
use service::config::Reader;

use crate::source::{MAX_BATCH, MAX_CONCURRENCY, SourceSpec};

pub(crate) const DAY_MS: u64 = 86_400_000;
pub(crate) const LEAST_LEASE_MS: u64 = 500;

/// Everything beside the shared sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[mongo]`
    pub mongo: MongoConfig,
    /// `[collect]`
    pub collect: CollectConfig,
    /// `[[sources]]`
    pub(crate) sources: Vec<SourceSpec>,
    /// `[fee_collector]`: set by the variables of the fee collector.
    pub(crate) fee_collector: Option<FeeCollector>,
}

/// Where events are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MongoConfig {
    /// Connection string; may hold a password.
    pub url: Secret,
    pub database: String,
    /// Longest wait for a server that accepts the call.
    pub timeout_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectConfig {
    /// Whether this process reads events at all; if not, it only answers calls.
    pub enabled: bool,
    /// Blocks per range, for sources that do not set it.
    pub batch_size: u32,
    /// Ranges read at once, for sources that do not set it.
    pub concurrency: u32,
    /// How long a range belongs to a worker that does not renew its lease.
    pub lease_ms: u64,
    /// Pause without work while catching up.
    pub historical_poll_ms: u64,
    /// Pause without work at the head.
    pub realtime_poll_ms: u64,
    /// Blocks this deep are final: they are no longer checked for reorganisations.
    pub finality_blocks: u64,
    /// After this many attempts a range is parked.
    pub max_attempts: u32,
    /// How responses of nodes are checked for completeness.
    pub verify: Verify,
    /// Longest wait for a node's response.
    pub node_timeout_ms: u64,
    /// Name of this worker; host and process id when missing.
    pub worker_id: Option<String>,
}

impl CollectConfig {
    pub(crate) fn node_timeout(&self) -> Duration {
        Duration::from_millis(self.node_timeout_ms)
    }

    /// Blocks per range of this source.
    pub(crate) fn batch_of(&self, source: &SourceSpec) -> u64 {
        u64::from(if source.batch_size == 0 { self.batch_size } else { source.batch_size })
    }

    /// How many ranges of this source are read at once.
    pub(crate) fn slots_of(&self, source: &SourceSpec) -> u32 {
        if source.concurrency == 0 { self.concurrency } else { source.concurrency }
    }
}

/// How a node's response is checked for completeness. Linked headers, block hashes and blooms are always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::EnumString)]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownVerify, parse_err_fn = unknown_verify)]
pub enum Verify {
    /// Blocks whose bloom announces events that are missing, and the last block of a response that looks cut off, are read again
    /// from receipts. If there is a second node, its response must be the same.
    #[default]
    Auto,
    /// Like `Auto`, without a second node.
    Bloom,
    /// Every block whose bloom announces events is compared with its receipts.
    Receipts,
}

#[derive(Debug, thiserror::Error)]
#[error("expected auto, bloom or receipts")]
pub struct UnknownVerify;

fn unknown_verify(_: &str) -> UnknownVerify {
    UnknownVerify
}

/// The fee collector's variables, unchecked.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FeeCollector {
    pub(crate) chain: Option<String>,
    pub(crate) rpc_url: Option<String>,
    pub(crate) contract: Option<String>,
    pub(crate) start_point: Option<String>,
    /// Mistakes in its other variables.
    pub(crate) wrong: Option<String>,
}

// The node's URL contains an API key, so it is not shown.
impl fmt::Debug for FeeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeeCollector")
            .field("chain", &self.chain)
            .field("contract", &self.contract)
            .field("start_point", &self.start_point)
            .finish_non_exhaustive()
    }
}

impl Config {
    pub(crate) fn read(reader: &Reader) -> Option<Self> {
        let mongo = reader.section("mongo");
        let url = mongo.secret("url");
        let database = mongo.or("database", "indexer".to_owned());
        let timeout_ms = mongo.within("timeout_ms", 5_000_u64, 100..=60_000);
        let collect = collect(&reader.section("collect"));
        let sources = reader.list("sources", source);
        let fee_collector = reader.section_opt("fee_collector").map(|section| FeeCollector {
            chain: section.opt("chain"),
            rpc_url: section.opt("rpc_url"),
            contract: section.opt("contract"),
            start_point: section.opt("start_point"),
            wrong: section.opt("wrong"),
        });
        let mongo = MongoConfig { url: url?, database, timeout_ms };
        Some(Self { mongo, collect, sources, fee_collector })
    }
}

fn collect(section: &Reader) -> CollectConfig {
    CollectConfig {
        enabled: section.or("enabled", true),
        batch_size: section.within("batch_size", 100, 1..=MAX_BATCH),
        concurrency: section.within("concurrency", 2, 1..=MAX_CONCURRENCY),
        lease_ms: section.within("lease_ms", 120_000, LEAST_LEASE_MS..=DAY_MS),
        historical_poll_ms: section.within("historical_poll_ms", 5_000, 1..=DAY_MS),
        realtime_poll_ms: section.within("realtime_poll_ms", 60_000, 1..=DAY_MS),
        finality_blocks: section.within("finality_blocks", 64, 1..=100_000),
        max_attempts: section.within("max_attempts", 10, 1..=1_000),
        verify: section.or("verify", Verify::Auto),
        node_timeout_ms: section.within("node_timeout_ms", 20_000, 100..=600_000),
        worker_id: section.opt("worker_id"),
    }
}

fn source(section: &Reader) -> Option<SourceSpec> {
    let name = section.req("name");
    let chain_id = section.req("chain_id");
    let contract_address = section.or("contract_address", String::new());
    let event_signature = section.or("event_signature", crate::event::FEES_COLLECTED.to_owned());
    let start_block = section.req("start_block");
    let batch_size = section.or("batch_size", 0);
    let concurrency = section.or("concurrency", 0);
    let nodes: Vec<String> = section.values("nodes");
    let address_parameters = section.values("address_parameters");
    let spec = SourceSpec {
        name: name?,
        chain_id: chain_id?,
        contract_address,
        event_signature,
        start_block: start_block?,
        batch_size,
        concurrency,
        nodes,
        address_parameters,
        paused: section.or("paused", false),
    };
    for (field, problem) in spec.mistakes() {
        section.wrong(field, problem);
    }
    Some(spec)
}
