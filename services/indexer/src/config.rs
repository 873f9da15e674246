//! The indexer's own settings.

use rpc::Secret;
use service::config::Reader;

/// Everything under the shared sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[mongo]`
    pub mongo: MongoConfig,
}

/// Where events are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MongoConfig {
    /// Connection string; may hold a password.
    pub url: Secret,
    /// Name of the database.
    pub database: String,
    /// Longest wait for a server that can take the call.
    pub timeout_ms: u64,
}

impl Config {
    /// Reads them, noting every mistake.
    pub fn read(reader: &Reader) -> Option<Self> {
        let mongo = reader.section("mongo");
        let url = mongo.secret("url");
        let database = mongo.or("database", "indexer".to_owned());
        let timeout_ms = mongo.within("timeout_ms", 5_000_u64, 100..=60_000);
        Some(Self { mongo: MongoConfig { url: url?, database, timeout_ms } })
    }
}
