//! The singleton lock of the orchestrator: taken, renewed and given back by compare-and-set, with an epoch that only grows.
//!
//! Invariants: an orchestrator believes that it leads for no longer than Redis keeps the lock, counted by the monotonic clock
//! from before the call; every write to Redis compares the lock again, so that one that was paused and replaced changes
//! nothing; a lock is taken from another orchestrator only when that process is known to be dead on this very machine.

use std::time::{Duration, Instant};

use fred::prelude::LuaInterface;
use worker::Keys;
use worker::redis::{Redis, RedisError};

use crate::process::{self, Identity};

/// This process of the orchestrator.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) incarnation: String,
    pub(crate) host: String,
    /// See [`process::machine`].
    pub(crate) machine: String,
    pub(crate) process: Identity,
}

impl Instance {
    pub(crate) fn new() -> Self {
        let pid = std::process::id();
        // /proc has an entry for this process. Without /proc, no successor on this machine could find out that it is dead.
        let process = Identity::of(pid).unwrap_or(Identity { pid, started: 0 });
        let incarnation = uuid::Uuid::now_v7().to_string();
        Self { incarnation, host: process::host(), machine: process::machine(), process }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    Leading {
        /// No other orchestrator has led since this one did last.
        alone_since: bool,
        /// Redis knew of no orchestrator at all although there has been one: it has lost its data.
        data_lost: bool,
    },
    /// Another orchestrator leads.
    Held(String),
}

#[derive(Debug)]
pub(crate) struct Leadership {
    redis: Redis,
    keys: Keys,
    ttl: Duration,
    instance: Instance,
    epoch: u64,
    until: Option<Instant>,
    /// Another orchestrator was seen to lead.
    other_seen: bool,
}

impl Leadership {
    pub(crate) fn new(redis: Redis, keys: Keys, ttl: Duration, instance: Instance) -> Self {
        Self { redis, keys, ttl, instance, epoch: 0, until: None, other_seen: false }
    }

    pub(crate) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether this orchestrator leads now, as far as can be known without asking Redis.
    pub(crate) fn leads(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes the lock if it is free, or its owner is a dead process of this machine.
    pub(crate) async fn take(&mut self) -> Result<LockOutcome, RedisError> {
        match self.try_take("").await? {
            LockReply::Ours(tried) => Ok(tried),
            LockReply::Held { holder, owner } => {
                let dead = owner.is_some_and(|owner| {
                    owner.0 == holder && owner.1 == self.instance.host && !owner.2.is_alive()
                });
                if !dead {
                    return Ok(LockOutcome::Held(holder));
                }
                tracing::warn!(
                    incarnation = holder,
                    "the orchestrator before this one is dead; taking its lock"
                );
                match self.try_take(&holder).await? {
                    LockReply::Ours(tried) => Ok(tried),
                    LockReply::Held { holder, .. } => Ok(LockOutcome::Held(holder)),
                }
            }
        }
    }

    async fn try_take(&mut self, dead: &str) -> Result<LockReply, RedisError> {
        let began = Instant::now();
        let keys = vec![
            self.keys.orchestrator_lock(),
            self.keys.orchestrator_epoch(),
            self.keys.orchestrator_owner(),
        ];
        let arguments = vec![
            self.instance.incarnation.clone(),
            self.ttl.as_millis().to_string(),
            self.instance.host.clone(),
            self.instance.process.pid.to_string(),
            self.instance.process.started.to_string(),
            dead.to_owned(),
        ];
        let reply: Vec<String> =
            self.redis.client().eval(include_str!("lua/lead.lua"), keys, arguments).await?;
        match reply.as_slice() {
            [ok, epoch, last, ..] if ok == "ok" => {
                let number = |text: &String| text.parse().map_err(|_| RedisError::Answer(text.clone()));
                let (epoch, last): (u64, u64) = (number(epoch)?, number(last)?);
                // Without the last epoch it is unknown who led meanwhile.
                let alone_since = self.epoch != 0 && last == self.epoch;
                let data_lost = last == 0 && (self.epoch != 0 || self.other_seen);
                (self.epoch, self.until) = (epoch, Some(began + self.ttl));
                Ok(LockReply::Ours(LockOutcome::Leading { alone_since, data_lost }))
            }
            [_, holder, incarnation, host, pid, started] => {
                let process = pid.parse().ok().zip(started.parse().ok());
                let process = process.map(|(pid, started)| Identity { pid, started });
                let owner = process.map(|process| (incarnation.clone(), host.clone(), process));
                self.other_seen = true;
                Ok(LockReply::Held { holder: holder.clone(), owner })
            }
            other => Err(RedisError::Answer(other.join(" "))),
        }
    }

    /// Extends the lock. `None` means that it is ours; otherwise who has it, empty when nobody does.
    pub(crate) async fn renew(&mut self) -> Result<Option<String>, RedisError> {
        let began = Instant::now();
        let arguments = vec![self.instance.incarnation.clone(), self.ttl.as_millis().to_string()];
        let script = include_str!("lua/renew.lua");
        let holder: String =
            self.redis.client().eval(script, vec![self.keys.orchestrator_lock()], arguments).await?;
        if holder == self.instance.incarnation {
            self.until = Some(began + self.ttl);
            return Ok(None);
        }
        self.until = None;
        Ok(Some(holder))
    }

    /// Gives the lock back, if it is ours.
    pub(crate) async fn resign(&mut self) -> Result<(), RedisError> {
        self.until = None;
        let keys = vec![self.keys.orchestrator_lock(), self.keys.orchestrator_owner(), self.keys.workers()];
        let arguments = vec![self.instance.incarnation.clone()];
        let _: i64 = self.redis.client().eval(include_str!("lua/resign.lua"), keys, arguments).await?;
        Ok(())
    }
}

enum LockReply {
    Ours(LockOutcome),
    /// The owner's incarnation, machine and process.
    Held {
        holder: String,
        owner: Option<(String, String, Identity)>,
    },
}
