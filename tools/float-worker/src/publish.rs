//! Telling others what came of a cycle, over Redis pub/sub.
//!
//! The channel has the name of the worker's state key (`btr:worker:{id}:state`): the key holds the latest state for whoever looks, the
//! channel brings each cycle's result to whoever listens. Nothing depends on it: a message that cannot be sent is a log line.

use std::error::Error;

use fred::prelude::PubsubInterface as _;
use serde_json::Value;
use worker::Settings;
use worker::redis::{Redis, RedisError};

/// One worker's channel.
#[derive(Debug)]
pub(crate) struct Publisher {
    redis: Option<Redis>,
    channel: String,
}

impl Publisher {
    /// Without Redis it says nothing.
    ///
    /// # Errors
    /// When the address is none.
    pub(crate) fn new(settings: &Settings) -> Result<Self, RedisError> {
        let redis = settings.redis.as_ref().map(Redis::open).transpose()?;
        Ok(Self { redis, channel: settings.keys.state(&settings.id) })
    }

    pub(crate) async fn publish(&self, message: &Value) {
        let Some(redis) = &self.redis else { return };
        let sent = redis.client().publish::<i64, _, _>(self.channel.as_str(), message.to_string()).await;
        if let Err(error) = sent {
            tracing::warn!(
                channel = self.channel,
                error = &error as &dyn Error,
                "the result was not published"
            );
        }
    }
}
