//! Worker control's own settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rpc::Secret;
use service::config::Reader;
use types::Backoff;
use worker::keys::DEFAULT_NAMESPACE;
use worker::{Keys, Timing};

use crate::spec::{Spec, file};

/// Everything beside the shared sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[redis]`
    pub redis: RedisConfig,
    /// `[http]`
    pub http: HttpConfig,
    /// `[orchestrator]`; absent when this process orchestrates nothing.
    pub orchestrator: Option<OrchestratorConfig>,
}

/// Where locks, heartbeats and control live. Redis or Dragonfly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Connection string; may hold a password.
    pub url: Secret,
    /// Longest wait for an answer.
    pub timeout_ms: u64,
}

impl RedisConfig {
    #[must_use]
    pub fn client(&self) -> worker::redis::RedisConfig {
        let timeout = Duration::from_millis(self.timeout_ms);
        worker::redis::RedisConfig { url: self.url.expose().to_owned(), timeout }
    }
}

/// The same API as JSON over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    pub listen: SocketAddr,
}

/// What happens to workers when the orchestrator dies without stopping them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Orphans {
    /// They go on, and a successor adopts them.
    Stay,
    /// They stop: their standard input ends with the orchestrator.
    Exit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrchestratorConfig {
    pub keys: Keys,
    pub timing: Timing,
    /// Time to live of the singleton lock.
    pub lock_ttl: Duration,
    /// Pause between two rounds; the lock is renewed in each.
    pub health_interval: Duration,
    /// A worker that is older than this and has no heartbeat is ended.
    pub heartbeat_timeout: Duration,
    pub backoff: Backoff,
    /// A worker that has a heartbeat and is older than this has recovered: its failures are forgotten.
    pub settled_after: Duration,
    /// How long a worker may take to stop before it is killed with its group.
    pub shutdown_grace: Duration,
    /// Waits for the lock instead of exiting when another orchestrator has it.
    pub standby: bool,
    pub orphans: Orphans,
    /// Where workers keep their history, and where their output is written (`logs/`).
    pub data_dir: PathBuf,
    /// How often output is forwarded and adopted processes are checked.
    pub look_interval: Duration,
    pub workers_file: Option<PathBuf>,
    /// The contents of that file when the configuration was read.
    pub(crate) workers: Vec<Spec>,
}

impl Config {
    pub(crate) fn read(reader: &Reader) -> Option<Self> {
        let redis = reader.section("redis");
        let url = redis.secret("url");
        let timeout_ms = redis.within("timeout_ms", 2_000_u64, 100..=60_000);
        let listen = reader.section("http").or("listen", SocketAddr::from(([0, 0, 0, 0], 3001)));
        let section = reader.section("orchestrator");
        let enabled = section.or("enabled", true);
        let orchestrator = orchestrator(&section, reader);
        Some(Self {
            redis: RedisConfig { url: url?, timeout_ms },
            http: HttpConfig { listen },
            orchestrator: enabled.then_some(orchestrator),
        })
    }
}

fn orchestrator(section: &Reader, root: &Reader) -> OrchestratorConfig {
    let span = |key: &str, default_ms: u64| span(section, key, default_ms);
    let workers_file: Option<PathBuf> = section.opt("workers_file");
    let config = OrchestratorConfig {
        keys: Keys::new(section.or("namespace", DEFAULT_NAMESPACE.to_owned())),
        timing: timing(&root.section("worker")),
        lock_ttl: span("lock_ttl_ms", 60_000),
        health_interval: span("health_interval_ms", 10_000),
        heartbeat_timeout: span("heartbeat_timeout_ms", 60_000),
        backoff: Backoff {
            base: span("backoff_base_ms", 20_000),
            cap: Some(span("backoff_cap_ms", 300_000)),
            max_tries: section.within("give_up_after", 20_u32, 1..=1_000_000),
        },
        settled_after: span("settled_after_ms", 10_000),
        shutdown_grace: span("shutdown_grace_ms", 30_000),
        standby: section.or("standby", false),
        orphans: orphans(section),
        data_dir: section.or("data_dir", PathBuf::from(".data")),
        look_interval: span("look_interval_ms", 250),
        workers: workers(section, workers_file.as_ref()),
        workers_file,
    };
    if config.health_interval * 3 > config.lock_ttl {
        section.wrong(
            "lock_ttl_ms",
            "must be at least three times health_interval_ms, or the lock is lost between two rounds",
        );
    }
    if config.heartbeat_timeout < config.timing.heartbeat_interval * 2 {
        section.wrong(
            "heartbeat_timeout_ms",
            "must be at least twice worker.heartbeat_interval_ms, or a worker is ended between two heartbeats",
        );
    }
    config
}

fn timing(section: &Reader) -> Timing {
    let default = Timing::default();
    let span = |key: &str, default: Duration| span(section, key, millis(default));
    let timing = Timing {
        heartbeat_interval: span("heartbeat_interval_ms", default.heartbeat_interval),
        heartbeat_ttl: span("heartbeat_ttl_ms", default.heartbeat_ttl),
        lock_ttl: span("lock_ttl_ms", default.lock_ttl),
        state_ttl: span("state_ttl_ms", default.state_ttl),
        restarting_ttl: span("restarting_ttl_ms", default.restarting_ttl),
    };
    for (key, ttl) in [("heartbeat_ttl_ms", timing.heartbeat_ttl), ("lock_ttl_ms", timing.lock_ttl)] {
        if ttl < timing.heartbeat_interval * 2 {
            section.wrong(
                key,
                "must be at least twice heartbeat_interval_ms, or it ends between two heartbeats",
            );
        }
    }
    timing
}

fn orphans(section: &Reader) -> Orphans {
    let text = section.or("orphans", "stay".to_owned());
    text.parse().unwrap_or_else(|_| {
        section.wrong("orphans", format!("`{text}` is neither `stay` nor `exit`"));
        Orphans::Stay
    })
}

/// A bad worker file makes the whole configuration bad, so that a reload refuses both together.
fn workers(section: &Reader, path: Option<&PathBuf>) -> Vec<Spec> {
    let Some(path) = path else { return Vec::new() };
    match file::read(path) {
        Ok(specs) => specs,
        Err(mistakes) => {
            for (place, problem) in mistakes {
                section.wrong("workers_file", format!("{place}: {problem}"));
            }
            Vec::new()
        }
    }
}

fn span(section: &Reader, key: &str, default_ms: u64) -> Duration {
    Duration::from_millis(section.within(key, default_ms, 1..=86_400_000))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let reader = Reader::parse("worker-control", None, text, []).map_err(|error| error.to_string())?;
        let config = Config::read(&reader);
        reader.finish(config).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_is_the_usual_rhythm() {
        let config = read("[redis]\nurl = \"redis://127.0.0.1\"\n").unwrap();
        assert_eq!(config.http.listen.port(), 3001);
        let orchestrator = config.orchestrator.unwrap();
        assert_eq!(orchestrator.keys.control(), "btr:control");
        assert_eq!((orchestrator.lock_ttl.as_secs(), orchestrator.health_interval.as_secs()), (60, 10));
        assert_eq!(
            (orchestrator.heartbeat_timeout.as_secs(), orchestrator.shutdown_grace.as_secs()),
            (60, 30)
        );
        let delays: Vec<u64> = (0..6).map(|n| orchestrator.backoff.delay(n).as_secs()).collect();
        assert_eq!(delays, [20, 40, 80, 160, 300, 300]);
        assert_eq!(orchestrator.backoff.max_tries, 20);
    }

    #[test]
    fn every_mistake_is_named_also_those_in_the_worker_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("workers.toml");
        std::fs::write(&file, "[[workers]]\nid = \"a b\"\ncommand = [\"x\"]\n[[workers]]\nid = \"c\"\n")
            .unwrap();
        let text = format!(
            "[redis]\nurl = \"redis://127.0.0.1\"\n[orchestrator]\nworkers_file = \"{}\"\nlock_ttl_ms = 10\n\
             heartbeat_timeout_ms = 29999\norphans = \"run\"\n[worker]\nheartbeat_ttl_ms = 3\n",
            file.display()
        );
        let error = read(&text).unwrap_err();
        for part in [
            "orchestrator.lock_ttl_ms",
            "orchestrator.orphans",
            "orchestrator.heartbeat_timeout_ms",
            "worker.heartbeat_ttl_ms",
            "workers[0].id",
            "workers[1].command",
        ] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}
