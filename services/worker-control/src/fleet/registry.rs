//! What the orchestrator writes and reads about workers in Redis.
//!
//! Invariant: each write to locks and records is one script that first compares the orchestrator's lock; without it nothing
//! is written, and the answer says so. A restart flag and a word on the control channel are requests that anybody may make.

use fred::prelude::{Expiration, HashesInterface, KeysInterface, LuaInterface, PubsubInterface};
use futures::future::try_join_all;
use worker::redis::{Redis, RedisError};
use worker::{Command, Keys, Timing, WorkerId};

use super::leadership::Me;
use super::member::Running;
use super::process::Identity;

/// Workers asked about in one command: few enough that Redis serves others in between.
const CHUNK: usize = 250;

/// An incarnation as the record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) incarnation: String,
    pub(crate) host: String,
    /// Empty when nobody could tell.
    pub(crate) machine: String,
    pub(crate) fingerprint: String,
    /// Absent when its start was never written down.
    pub(crate) process: Option<Identity>,
}

impl Record {
    /// Whether it was admitted on the same machine before that started anew.
    pub(crate) fn is_of_earlier_boot(&self, me: &Me) -> bool {
        !me.machine.is_empty() && self.machine == me.machine && self.host != me.host
    }
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

/// Who writes.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) me: Me,
    pub(crate) epoch: u64,
}

/// An incarnation to be admitted, and what is known of those before it.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) id: WorkerId,
    pub(crate) incarnation: String,
    pub(crate) fingerprint: String,
    /// Known to be dead.
    pub(crate) dead: Vec<String>,
    /// Dead, unless its heart beats.
    pub(crate) dead_if_silent: Option<String>,
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
    pub(crate) async fn admit(&self, writer: &Writer, asked: &Admission) -> Result<Admitted, RedisError> {
        let id = &asked.id;
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
            writer.me.incarnation.clone(),
            id.to_string(),
            asked.incarnation.clone(),
            writer.me.host.clone(),
            writer.me.machine.clone(),
            writer.epoch.to_string(),
            asked.fingerprint.clone(),
            asked.dead_if_silent.clone().unwrap_or_default(),
        ];
        arguments.extend(asked.dead.iter().cloned());
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
            writer.me.incarnation.clone(),
            running.incarnation.clone(),
            writer.me.host.clone(),
            writer.me.machine.clone(),
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
            writer.me.incarnation.clone(),
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
        let mut arguments = vec![writer.me.incarnation.clone()];
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
        let fields = vec!["incarnation", "host", "machine", "spec", "pid", "started"];
        let values: Vec<Option<String>> = self.redis.client().hmget(self.keys.process(id), fields).await?;
        let mut values = values.into_iter();
        let mut next = || values.next().flatten();
        let (incarnation, host, machine, fingerprint) = (next(), next(), next(), next());
        let process = next().and_then(|pid| pid.parse().ok()).zip(next().and_then(|at| at.parse().ok()));
        Ok(incarnation.map(|incarnation| Record {
            incarnation,
            host: host.unwrap_or_default(),
            machine: machine.unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_machine_can_have_had_an_earlier_boot() {
        let process = Identity { pid: 1, started: 1 };
        let record = |host: &str, machine: &str| Record {
            incarnation: "i-1".to_owned(),
            host: host.to_owned(),
            machine: machine.to_owned(),
            fingerprint: String::new(),
            process: None,
        };
        let me = |machine: &str| Me {
            incarnation: "o-1".to_owned(),
            host: "boot 2".to_owned(),
            machine: machine.to_owned(),
            process,
        };
        assert!(record("boot 1", "m").is_of_earlier_boot(&me("m")));
        assert!(!record("boot 2", "m").is_of_earlier_boot(&me("m")), "this boot");
        assert!(!record("boot 1", "n").is_of_earlier_boot(&me("m")), "another machine");
        // Where it cannot be told, two that cannot be told apart are not the same.
        assert!(!record("boot 1", "").is_of_earlier_boot(&me("")));
    }
}
