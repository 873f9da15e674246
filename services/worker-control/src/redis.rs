//! The connection to Redis: made at start, mended by the client ever after.

use std::time::Duration;

use fred::prelude::{Builder, Client, ClientLike, ReconnectPolicy};
use fred::types::config::Config as FredConfig;

use crate::config::RedisConfig;

/// Why Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RedisError {
    /// The connection string is wrong.
    #[error("redis.url is not a Redis connection string")]
    Url(#[source] fred::error::Error),
    /// Nobody answers.
    #[error("Redis does not answer")]
    Unreachable(#[source] fred::error::Error),
}

/// A handle to Redis; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Redis {
    client: Client,
}

impl Redis {
    /// Connects and makes sure that somebody answers.
    pub(crate) async fn connect(config: &RedisConfig) -> Result<Self, RedisError> {
        let settings = FredConfig::from_url(config.url.expose()).map_err(RedisError::Url)?;
        let timeout = Duration::from_millis(config.timeout_ms);
        let client = Builder::from_config(FredConfig { fail_fast: true, ..settings })
            .with_connection_config(|c| {
                c.connection_timeout = timeout;
                c.internal_command_timeout = timeout;
                // A command that was sent when the connection broke has an unknown outcome; only its caller may repeat it.
                c.max_command_attempts = 1;
            })
            .with_performance_config(|p| p.default_command_timeout = timeout)
            // Without end: an outage of any length mends itself.
            .set_policy(ReconnectPolicy::new_exponential(0, 100, 5_000, 2))
            .build()
            .map_err(RedisError::Url)?;
        client.init().await.map_err(RedisError::Unreachable)?;
        let redis = Self { client };
        redis.ping().await?;
        Ok(redis)
    }

    /// Asks for a sign of life.
    pub(crate) async fn ping(&self) -> Result<(), RedisError> {
        self.client.ping::<String>(None).await.map(|_| ()).map_err(RedisError::Unreachable)
    }
}
