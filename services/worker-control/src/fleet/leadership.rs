//! The singleton lock of the orchestrator: taken, renewed and given back by compare-and-set, with an epoch that only grows.
//!
//! Invariants: we believe that we lead for no longer than Redis keeps the lock, counted by the monotonic clock from before
//! the call; every write of ours to Redis compares the lock again, so that an orchestrator that was paused and overtaken
//! changes nothing; a lock is taken from another only when its process is known to be dead on this very machine.

use std::time::{Duration, Instant};

use fred::prelude::LuaInterface;
use worker::Keys;
use worker::redis::{Redis, RedisError};

use super::process::{self, Identity};

/// Who we are.
#[derive(Debug, Clone)]
pub(crate) struct Me {
    pub(crate) incarnation: String,
    pub(crate) host: String,
    /// See [`process::machine`].
    pub(crate) machine: String,
    pub(crate) process: Identity,
}

impl Me {
    pub(crate) fn new() -> Self {
        let pid = std::process::id();
        // We are alive, so /proc knows us; without /proc a start time of 0 makes us look dead to nobody on this machine.
        let process = Identity::of(pid).unwrap_or(Identity { pid, started: 0 });
        let incarnation = uuid::Uuid::now_v7().to_string();
        Self { incarnation, host: process::host(), machine: process::machine(), process }
    }
}

/// What became of a try to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tried {
    /// We lead.
    Leading {
        /// Nobody else has led since we did last.
        alone_since: bool,
        /// Redis knew of no orchestrator at all, though there has been one: it has lost its data.
        data_lost: bool,
    },
    /// Another does.
    Held(String),
}

#[derive(Debug)]
pub(crate) struct Leadership {
    redis: Redis,
    keys: Keys,
    ttl: Duration,
    me: Me,
    epoch: u64,
    until: Option<Instant>,
    /// Another was seen to lead.
    rival: bool,
}

impl Leadership {
    pub(crate) fn new(redis: Redis, keys: Keys, ttl: Duration, me: Me) -> Self {
        Self { redis, keys, ttl, me, epoch: 0, until: None, rival: false }
    }

    pub(crate) fn me(&self) -> &Me {
        &self.me
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether we lead now, as far as anybody can know without asking.
    pub(crate) fn leads(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes the lock if it is free, or its owner is a dead process of this machine.
    pub(crate) async fn take(&mut self) -> Result<Tried, RedisError> {
        match self.try_take("").await? {
            Answer::Ours(tried) => Ok(tried),
            Answer::Held { holder, owner } => {
                let dead = owner
                    .is_some_and(|owner| owner.0 == holder && owner.1 == self.me.host && !owner.2.is_alive());
                if !dead {
                    return Ok(Tried::Held(holder));
                }
                tracing::warn!(incarnation = holder, "the orchestrator before us is dead; taking its lock");
                match self.try_take(&holder).await? {
                    Answer::Ours(tried) => Ok(tried),
                    Answer::Held { holder, .. } => Ok(Tried::Held(holder)),
                }
            }
        }
    }

    async fn try_take(&mut self, dead: &str) -> Result<Answer, RedisError> {
        let began = Instant::now();
        let keys = vec![
            self.keys.orchestrator_lock(),
            self.keys.orchestrator_epoch(),
            self.keys.orchestrator_owner(),
        ];
        let arguments = vec![
            self.me.incarnation.clone(),
            self.ttl.as_millis().to_string(),
            self.me.host.clone(),
            self.me.process.pid.to_string(),
            self.me.process.started.to_string(),
            dead.to_owned(),
        ];
        let answer: Vec<String> =
            self.redis.client().eval(include_str!("lua/lead.lua"), keys, arguments).await?;
        match answer.as_slice() {
            [ok, epoch, last, ..] if ok == "ok" => {
                let number = |text: &String| text.parse().map_err(|_| RedisError::Answer(text.clone()));
                let (epoch, last): (u64, u64) = (number(epoch)?, number(last)?);
                // Without the last epoch nobody can know who led meanwhile.
                let alone_since = self.epoch != 0 && last == self.epoch;
                let data_lost = last == 0 && (self.epoch != 0 || self.rival);
                (self.epoch, self.until) = (epoch, Some(began + self.ttl));
                Ok(Answer::Ours(Tried::Leading { alone_since, data_lost }))
            }
            [_, holder, incarnation, host, pid, started] => {
                let process = pid.parse().ok().zip(started.parse().ok());
                let process = process.map(|(pid, started)| Identity { pid, started });
                let owner = process.map(|process| (incarnation.clone(), host.clone(), process));
                self.rival = true;
                Ok(Answer::Held { holder: holder.clone(), owner })
            }
            other => Err(RedisError::Answer(other.join(" "))),
        }
    }

    /// Prolongs the lock. `None`: it is ours. Otherwise who has it; empty when nobody does.
    pub(crate) async fn renew(&mut self) -> Result<Option<String>, RedisError> {
        let began = Instant::now();
        let arguments = vec![self.me.incarnation.clone(), self.ttl.as_millis().to_string()];
        let script = include_str!("lua/renew.lua");
        let holder: String =
            self.redis.client().eval(script, vec![self.keys.orchestrator_lock()], arguments).await?;
        if holder == self.me.incarnation {
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
        let arguments = vec![self.me.incarnation.clone()];
        let _: i64 = self.redis.client().eval(include_str!("lua/resign.lua"), keys, arguments).await?;
        Ok(())
    }
}

enum Answer {
    Ours(Tried),
    /// The owner's incarnation, machine and process.
    Held {
        holder: String,
        owner: Option<(String, String, Identity)>,
    },
}
