//! The connection to Redis (or Dragonfly): made once, and repaired by the client.
//!
//! Owns connections, never keys. No command is retried automatically: a command that was running when the connection broke
//! has an unknown outcome, and only its caller knows whether to repeat it. A command that waited too long is not sent later.

use std::fmt;
use std::time::Duration;

use fred::prelude::{
    Builder, Client, ClientLike, Config, EventInterface, FredResult, PubsubInterface, ReconnectPolicy,
};
use fred::types::Message;
use fred::types::config::UnresponsiveConfig;
use tokio::sync::broadcast;

/// Why Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The connection string is wrong.
    #[error("the address is not a Redis connection string")]
    Url(#[source] fred::error::Error),
    #[error("Redis does not answer")]
    Unreachable(#[source] fred::error::Error),
    #[error("Redis answered {0:?}, which makes no sense here")]
    Answer(String),
}

impl From<fred::error::Error> for RedisError {
    fn from(error: fred::error::Error) -> Self {
        Self::Unreachable(error)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Connection string; may hold a password, so it is not in `Debug`.
    pub url: String,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A handle to Redis; cheap to clone.
#[derive(Debug, Clone)]
pub struct Redis {
    client: Client,
    config: RedisConfig,
}

impl Redis {
    /// Begins to connect, and retries for as long as it takes.
    pub fn open(config: &RedisConfig) -> Result<Self, RedisError> {
        let client = builder(config)?.build().map_err(RedisError::Url)?;
        client.connect();
        Ok(Self { client, config: config.clone() })
    }

    /// Connects, and checks that Redis answers.
    pub async fn connect(config: &RedisConfig) -> Result<Self, RedisError> {
        let redis = Self::open(config)?;
        redis.ping().await?;
        Ok(redis)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Checks that Redis answers.
    pub async fn ping(&self) -> Result<(), RedisError> {
        self.client.ping::<String>(None).await?;
        Ok(())
    }

    /// Listens to a channel on a connection of its own, which subscribes again by itself after an outage.
    pub fn subscribe(&self, channel: String) -> Result<Subscription, RedisError> {
        let client = builder(&self.config)?.build_subscriber_client().map_err(RedisError::Url)?;
        let messages = client.message_rx();
        let managed = client.manage_subscriptions();
        client.connect();
        let first = client.clone();
        let begun = tokio::spawn(async move {
            // Until the first success; from then on the client subscribes again by itself.
            while first.subscribe(channel.clone()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(Subscription { messages, tasks: [managed.abort_handle(), begun.abort_handle()], client })
    }
}

/// Messages of a channel. Dropping it ends the connection.
#[derive(Debug)]
pub struct Subscription {
    messages: broadcast::Receiver<Message>,
    tasks: [tokio::task::AbortHandle; 2],
    client: fred::clients::SubscriberClient,
}

impl Subscription {
    /// The next message as text.
    pub async fn next(&mut self) -> String {
        loop {
            match self.messages.recv().await {
                Ok(message) => match message.value.as_string() {
                    Some(text) => return text,
                    None => continue,
                },
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                // The client lives in this struct, so its sender does too.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        let client = self.client.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _: FredResult<()> = client.quit().await;
            });
        }
    }
}

fn builder(config: &RedisConfig) -> Result<Builder, RedisError> {
    let settings = Config::from_url(&config.url).map_err(RedisError::Url)?;
    let timeout = config.timeout;
    let mut builder = Builder::from_config(Config { fail_fast: false, ..settings });
    builder
        .with_connection_config(|c| {
            c.connection_timeout = timeout;
            c.internal_command_timeout = timeout;
            c.max_command_attempts = 1;
            // A server that vanished is noticed because it stops answering.
            c.unresponsive = UnresponsiveConfig {
                max_timeout: Some(timeout * 3),
                interval: timeout.max(Duration::from_millis(500)),
            };
        })
        .with_performance_config(|p| p.default_command_timeout = timeout)
        // Without a limit, so that an outage may have any length. The cap keeps recovery quick.
        .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2));
    Ok(builder)
}
