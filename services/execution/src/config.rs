//! The settings of execution. Unknown ones are refused, and every mistake is reported at once.

use std::time::Duration;

use rpc::ClientConfig;
use service::config::Reader;
use types::{Backoff, ChainName};

use crate::job::{Schedule, Schedules};
use crate::queue::JobQueue;
use crate::worker::WorkerConfig;
use crate::worker::supervisor::Scope;

#[derive(Debug, Clone)]
pub struct Config {
    pub signer: ClientConfig,
    pub confirmation: ClientConfig,
    pub intent: ClientConfig,
    /// Longest wait for one signature.
    pub sign_timeout: Duration,
    /// Longest wait for one answer of a node.
    pub node_timeout: Duration,
    /// How long a signed transaction may be included, on chains where that ends.
    pub window: Duration,
    /// Whether the workers run in this process, and on which queues and chains.
    pub workers: Option<Scope>,
    pub worker: WorkerConfig,
    pub gap_patience: Duration,
}

impl Config {
    pub fn read(r: &Reader) -> Option<Self> {
        let signer = service::config::client(r, "signer-gateway");
        let confirmation = service::config::client(r, "confirmation");
        let intent = service::config::client(r, "intent");
        let workers = r.section("workers");
        let enabled = workers.or("enabled", true);
        let chains = |queue: JobQueue| (queue, workers.values::<ChainName>(queue.name()));
        let scope = Scope(JobQueue::worked().map(|(queue, _)| chains(queue)).collect());
        let worker = read_worker(&workers, read_schedules(&r.section("retry")));
        let gap_patience = millis(&workers, "gap_patience_ms", 10_000, 0..=3_600_000);
        let sign_timeout = millis(r, "sign_timeout_ms", 5_000, 10..=60_000);
        let node_timeout = millis(r, "node_timeout_ms", 10_000, 10..=120_000);
        let window = millis(r, "window_ms", 300_000, 5_000..=43_200_000);
        Some(Self {
            signer: signer?,
            confirmation: confirmation?,
            intent: intent?,
            sign_timeout,
            node_timeout,
            window,
            workers: enabled.then_some(scope),
            worker,
            gap_patience,
        })
    }
}

fn read_worker(r: &Reader, schedules: Schedules) -> WorkerConfig {
    WorkerConfig {
        batch: r.within("batch", 100, 1..=1_000),
        lease: millis(r, "lease_ms", 15_000, 100..=600_000),
        concurrency: r.within("concurrency", 2, 1..=64),
        sign_concurrency: r.within("sign_concurrency", 64, 1..=1_024),
        max_unmined: r.within("max_unmined", 5_000, 1..=1_000_000),
        resend_after: millis(r, "resend_after_ms", 15_000, 100..=3_600_000),
        balances_every: millis(r, "balances_every_ms", 10_000, 100..=3_600_000),
        halt_on_foreign: r.or("halt_on_foreign", true),
        max_lapses: r.within("max_lapses", 50, 1..=1_000_000),
        max_replacements: r.within("max_replacements", 2, 0..=16),
        schedules,
    }
}

fn read_schedules(r: &Reader) -> Schedules {
    let short = Backoff {
        base: Duration::from_secs(1),
        cap: Some(Duration::from_secs(30)),
        // Waiting for a node, the signer or liquidity is never given up by itself.
        max_tries: u32::MAX,
    };
    let waits = read_backoff(&r.section("wait"), short);
    Schedules::of(|queue, default| Schedule { tries: read_backoff(&r.section(queue.name()), default), waits })
}

fn read_backoff(r: &Reader, default: Backoff) -> Backoff {
    let base = millis(r, "base_ms", whole_ms(default.base), 1..=3_600_000);
    let cap = r.opt::<u64>("cap_ms").map(Duration::from_millis).or(default.cap);
    let max_tries = r.within("max_tries", default.max_tries, 1..=u32::MAX);
    Backoff { base, cap, max_tries }
}

fn millis(r: &Reader, key: &str, default: u64, bounds: std::ops::RangeInclusive<u64>) -> Duration {
    Duration::from_millis(r.within(key, default, bounds))
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
