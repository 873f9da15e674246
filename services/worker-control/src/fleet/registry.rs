//! What the orchestrator writes and reads about workers in Redis.
//!
//! Invariant: each write to locks and records is one script that first compares the orchestrator's lock; without it nothing
//! is written, and the answer says so. A restart flag and a word on the control channel are requests that anybody may make.

use fred::prelude::{Expiration, HashesInterface, KeysInterface, LuaInterface, PubsubInterface};
use futures::future::try_join_all;
use worker::redis::{Redis, RedisError};
use worker::{Command, Keys, Timing, WorkerId};

use super::member::Running;
use super::process::Identity;

/// Workers asked about in one command: few enough that Redis serves others in between.
const CHUNK: usize = 250;

/// An incarnation as the record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) incarnation: String,
    pub(crate) host: String,
    pub(crate) fingerprint: String,
    /// Absent when its start was never written down.
    pub(crate) process: Option<Identity>,
}

/// What a worker shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Unix milliseconds, as the worker wrote them.
    pub(crate) heartbeat: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) restarting: bool,
}

/// What became of asking to admit an incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admitted {
    Yes,
    /// Another incarnation, not known to be dead, has the worker's lock.
    Held(String),
    /// We do not lead.
    Fenced,
}

/// Who writes: the orchestrator's incarnation, machine and epoch.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) incarnation: String,
    pub(crate) host: String,
    pub(crate) epoch: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Registry {
    redis: Redis,
    keys: Keys,
    timing: Timing,
}

impl Registry {
    pub(crate) fn new(redis: Redis, keys: Keys, timing: Timing) -> Self {
        Self { redis, keys, timing }
    }

    /// Admits a new incarnation, and frees what the dead ones left behind.
    pub(crate) async fn admit(
        &self,
        writer: &Writer,
        id: &WorkerId,
        record: &Record,
        dead: &[String],
    ) -> Result<Admitted, RedisError> {
        let keys = vec![
            self.keys.orchestrator_lock(),
            self.keys.lock(id),
            self.keys.heartbeat(id),
            self.keys.state(id),
            self.keys.restarting(id),
            self.keys.process(id),
            self.keys.workers(),
        ];
        let mut arguments = vec![
            writer.incarnation.clone(),
            id.to_string(),
            record.incarnation.clone(),
            writer.host.clone(),
            writer.epoch.to_string(),
            record.fingerprint.clone(),
        ];
        arguments.extend(dead.iter().cloned());
        let script = include_str!("lua/admit.lua");
        let (answer, holder): (String, String) = self.redis.client().eval(script, keys, arguments).await?;
        match answer.as_str() {
            "ok" => Ok(Admitted::Yes),
            "held" => Ok(Admitted::Held(holder)),
            "fenced" => Ok(Admitted::Fenced),
            _ => Err(RedisError::Answer(answer)),
        }
    }

    /// Writes down which process an incarnation is. False when we do not lead.
    pub(crate) async fn record(
        &self,
        writer: &Writer,
        id: &WorkerId,
        running: &Running,
    ) -> Result<bool, RedisError> {
        let keys = vec![self.keys.orchestrator_lock(), self.keys.process(id)];
        let arguments = vec![
            writer.incarnation.clone(),
            running.incarnation.clone(),
            writer.host.clone(),
            writer.epoch.to_string(),
            running.fingerprint.clone(),
            running.identity.pid.to_string(),
            running.identity.started.to_string(),
        ];
        let done: i64 = self.redis.client().eval(include_str!("lua/record.lua"), keys, arguments).await?;
        Ok(done == 1)
    }

    /// Frees the lock of a dead incarnation; with `forget` also the worker's record, whichever it is when no incarnation
    /// is named, and its place among the active ones. False when we do not lead.
    pub(crate) async fn free(
        &self,
        writer: &Writer,
        id: &WorkerId,
        incarnation: &str,
        forget: bool,
    ) -> Result<bool, RedisError> {
        let keys = vec![
            self.keys.orchestrator_lock(),
            self.keys.lock(id),
            self.keys.heartbeat(id),
            self.keys.state(id),
            self.keys.process(id),
            self.keys.workers(),
        ];
        let arguments = vec![
            writer.incarnation.clone(),
            id.to_string(),
            incarnation.to_owned(),
            if forget { "1" } else { "0" }.to_owned(),
        ];
        let done: i64 = self.redis.client().eval(include_str!("lua/free.lua"), keys, arguments).await?;
        Ok(done == 1)
    }

    /// Replaces the set of active workers. False when we do not lead.
    pub(crate) async fn set_active(&self, writer: &Writer, ids: &[WorkerId]) -> Result<bool, RedisError> {
        let keys = vec![self.keys.orchestrator_lock(), self.keys.workers()];
        let mut arguments = vec![writer.incarnation.clone()];
        arguments.extend(ids.iter().map(ToString::to_string));
        let done: i64 = self.redis.client().eval(include_str!("lua/active.lua"), keys, arguments).await?;
        Ok(done == 1)
    }

    /// Heartbeats, states and restart flags, in the order of the ids. All commands are sent before the first answer is
    /// waited for.
    pub(crate) async fn signs(&self, ids: &[WorkerId]) -> Result<Vec<Signs>, RedisError> {
        let answers = try_join_all(ids.chunks(CHUNK).map(|chunk| self.signs_of(chunk))).await?;
        Ok(answers.into_iter().flatten().collect())
    }

    async fn signs_of(&self, ids: &[WorkerId]) -> Result<Vec<Signs>, RedisError> {
        let keys: Vec<String> = ids
            .iter()
            .flat_map(|id| [self.keys.heartbeat(id), self.keys.state(id), self.keys.restarting(id)])
            .collect();
        let values: Vec<Option<String>> = self.redis.client().mget(keys).await?;
        if values.len() != ids.len() * 3 {
            return Err(RedisError::Answer(format!("{} values", values.len())));
        }
        let mut values = values.into_iter();
        let mut next = || values.next().flatten();
        let signs = || Signs { heartbeat: next(), state: next(), restarting: next().is_some() };
        Ok(std::iter::repeat_with(signs).take(ids.len()).collect())
    }

    /// The incarnation that was admitted last, by whichever orchestrator.
    pub(crate) async fn recorded(&self, id: &WorkerId) -> Result<Option<Record>, RedisError> {
        let fields = vec!["incarnation", "host", "spec", "pid", "started"];
        let values: Vec<Option<String>> = self.redis.client().hmget(self.keys.process(id), fields).await?;
        let mut values = values.into_iter();
        let mut next = || values.next().flatten();
        let (incarnation, host, fingerprint) = (next(), next(), next());
        let process = next().and_then(|pid| pid.parse().ok()).zip(next().and_then(|at| at.parse().ok()));
        Ok(incarnation.map(|incarnation| Record {
            incarnation,
            host: host.unwrap_or_default(),
            fingerprint: fingerprint.unwrap_or_default(),
            process: process.map(|(pid, started)| Identity { pid, started }),
        }))
    }

    /// Sets the flag that lets a worker start again without backoff.
    pub(crate) async fn flag_restart(&self, id: &WorkerId) -> Result<(), RedisError> {
        let ttl = i64::try_from(self.timing.restarting_ttl.as_millis()).unwrap_or(i64::MAX);
        let _: () = self
            .redis
            .client()
            .set(self.keys.restarting(id), "1", Some(Expiration::PX(ttl)), None, false)
            .await?;
        Ok(())
    }

    /// Speaks on the control channel.
    pub(crate) async fn publish(&self, command: &Command) -> Result<(), RedisError> {
        let _: i64 = self.redis.client().publish(self.keys.control(), command.message()).await?;
        Ok(())
    }
}
