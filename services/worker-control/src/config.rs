//! Worker control's own settings.

use rpc::Secret;
use service::config::Reader;

/// Everything under the shared sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[redis]`
    pub redis: RedisConfig,
}

/// Where locks, heartbeats and control live. Redis or Dragonfly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Connection string; may hold a password.
    pub url: Secret,
    /// Longest wait for an answer.
    pub timeout_ms: u64,
}

impl Config {
    /// Reads them, noting every mistake.
    pub fn read(reader: &Reader) -> Option<Self> {
        let redis = reader.section("redis");
        let url = redis.secret("url");
        let timeout_ms = redis.within("timeout_ms", 2_000_u64, 100..=60_000);
        Some(Self { redis: RedisConfig { url: url?, timeout_ms } })
    }
}
