//! A worker's lock, heartbeat and state in Redis.
//!
//! Invariants: each change compares the lock's value with our incarnation in one step (Lua), so that a worker that was paused
//! and overtaken changes nothing; a fencing token is never given twice; time to live is counted by Redis, and on our side
//! by the monotonic clock from *before* the call, so that we never believe in a lock for longer than Redis does.

use std::time::Instant;

use fred::prelude::{Expiration, KeysInterface, LuaInterface};

use crate::keys::{Keys, Timing};
use crate::redis::{Redis, RedisError};
use crate::{WorkerId, WorkerState};

/// The worker's side of its keys.
#[derive(Debug, Clone)]
pub struct Claim {
    redis: Redis,
    keys: Keys,
    timing: Timing,
    id: WorkerId,
    incarnation: String,
}

/// A lock that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLock {
    /// Grows with every owner; whoever is acted upon can refuse an older one.
    pub token: u64,
    /// Until then nobody else can have it.
    pub until: Instant,
}

/// What became of an attempt to take the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockOutcome {
    Ours(HeldLock),
    /// Another incarnation has it.
    Busy(String),
    /// The orchestrator admits another incarnation.
    Refused(String),
}

impl Claim {
    #[must_use]
    pub fn new(redis: Redis, keys: Keys, timing: Timing, id: WorkerId, incarnation: String) -> Self {
        Self { redis, keys, timing, id, incarnation }
    }

    /// Takes the lock if it is free, or ours already.
    ///
    /// # Errors
    /// When Redis does not answer; then nothing is known.
    pub async fn take(&self) -> Result<LockOutcome, RedisError> {
        let began = Instant::now();
        let keys = vec![self.keys.lock(&self.id), self.keys.fence(&self.id), self.keys.process(&self.id)];
        let arguments = vec![self.incarnation.clone(), millis(self.timing.lock_ttl)];
        let script = include_str!("lua/acquire.lua");
        let (outcome, value): (String, String) = self.redis.client().eval(script, keys, arguments).await?;
        match outcome.as_str() {
            "ok" => match value.parse() {
                Ok(token) => Ok(LockOutcome::Ours(HeldLock { token, until: began + self.timing.lock_ttl })),
                Err(_) => Err(RedisError::Answer(value)),
            },
            "held" => Ok(LockOutcome::Busy(value)),
            "refused" => Ok(LockOutcome::Refused(value)),
            _ => Err(RedisError::Answer(outcome)),
        }
    }

    /// One heartbeat: renews the lock and publishes the state. Returns until when the lock is ours, or nothing when it is not.
    ///
    /// # Errors
    /// When Redis does not answer; then nothing is known.
    pub async fn beat(&self, state: &WorkerState) -> Result<Option<Instant>, RedisError> {
        let began = Instant::now();
        let keys = vec![self.keys.lock(&self.id), self.keys.heartbeat(&self.id), self.keys.state(&self.id)];
        let arguments = vec![
            self.incarnation.clone(),
            millis(self.timing.lock_ttl),
            chrono::Utc::now().timestamp_millis().to_string(),
            millis(self.timing.heartbeat_ttl),
            state.json(),
            millis(self.timing.state_ttl),
        ];
        let ours: i64 = self.redis.client().eval(include_str!("lua/beat.lua"), keys, arguments).await?;
        Ok((ours == 1).then_some(began + self.timing.lock_ttl))
    }

    /// Gives the lock back, if it is ours.
    ///
    /// # Errors
    /// When Redis does not answer; the lock then ends by itself.
    pub async fn release(&self) -> Result<(), RedisError> {
        let keys = vec![self.keys.lock(&self.id), self.keys.heartbeat(&self.id)];
        let script = include_str!("lua/release.lua");
        let _: i64 = self.redis.client().eval(script, keys, vec![self.incarnation.clone()]).await?;
        Ok(())
    }

    /// Asks to be started again at once after the end.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn ask_for_restart(&self) -> Result<(), RedisError> {
        let ttl = i64::try_from(self.timing.restarting_ttl.as_millis()).unwrap_or(i64::MAX);
        let key = self.keys.restarting(&self.id);
        let _: () = self.redis.client().set(key, "1", Some(Expiration::PX(ttl)), None, false).await?;
        Ok(())
    }
}

fn millis(span: std::time::Duration) -> String {
    span.as_millis().to_string()
}
