//! What the orchestrator writes to Redis about workers, and reads from there.
//!
//! Invariant: each write to locks and records is one script that first compares the orchestrator's lock. Without the lock it
//! writes nothing and says so. Only the restart flag and messages on the control channel need no lock: anybody may send them.

pub(crate) mod leadership;

use fred::prelude::{Expiration, FromValue, HashesInterface, KeysInterface, LuaInterface, PubsubInterface};
use futures::future::try_join_all;
use worker::redis::{Redis, RedisError};
use worker::{Command, Keys, Timing, WorkerId};

use crate::member::Running;
use crate::process::Identity;
use leadership::Instance;

/// Workers per MGET; few enough that Redis serves other clients in between.
const CHUNK: usize = 250;

/// The incarnation of a worker that was admitted last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) incarnation: String,
    pub(crate) host: String,
    /// Empty when unknown.
    pub(crate) machine: String,
    pub(crate) fingerprint: String,
    /// Absent when its start was never recorded.
    pub(crate) process: Option<Identity>,
}

impl Record {
    /// Whether it was admitted on this machine before its last reboot.
    pub(crate) fn is_of_earlier_boot(&self, instance: &Instance) -> bool {
        !instance.machine.is_empty() && self.machine == instance.machine && self.host != instance.host
    }
}

/// What a worker publishes about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Liveness {
    /// Unix milliseconds, as the worker wrote them.
    pub(crate) heartbeat: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) restarting: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdmissionOutcome {
    Admitted,
    /// Another incarnation, not known to be dead, has the worker's lock.
    Held(String),
    /// This orchestrator does not lead.
    Fenced,
}

/// The orchestrator on whose behalf something is written.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) instance: Instance,
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
    /// Dead, unless it has a heartbeat.
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

    /// Runs a script that begins by comparing the orchestrator's lock with the writer.
    async fn fenced<T: FromValue>(
        &self,
        script: &'static str,
        writer: &Writer,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Result<T, RedisError> {
        let keys: Vec<String> = [self.keys.orchestrator_lock()].into_iter().chain(keys).collect();
        let first = writer.instance.incarnation.clone();
        let arguments: Vec<String> = [first].into_iter().chain(arguments).collect();
        Ok(self.redis.client().eval(script, keys, arguments).await?)
    }

    /// Admits a new incarnation, and frees what the dead ones left behind.
    pub(crate) async fn admit(
        &self,
        writer: &Writer,
        admission: &Admission,
    ) -> Result<AdmissionOutcome, RedisError> {
        let id = &admission.id;
        let keys = vec![
            self.keys.lock(id),
            self.keys.heartbeat(id),
            self.keys.state(id),
            self.keys.restarting(id),
            self.keys.process(id),
            self.keys.workers(),
        ];
        let mut arguments = vec![
            id.to_string(),
            admission.incarnation.clone(),
            writer.instance.host.clone(),
            writer.instance.machine.clone(),
            writer.epoch.to_string(),
            admission.fingerprint.clone(),
            admission.dead_if_silent.clone().unwrap_or_default(),
        ];
        arguments.extend(admission.dead.iter().cloned());
        let script = include_str!("lua/admit.lua");
        let (outcome, holder): (String, String) = self.fenced(script, writer, keys, arguments).await?;
        match outcome.as_str() {
            "ok" => Ok(AdmissionOutcome::Admitted),
            "held" => Ok(AdmissionOutcome::Held(holder)),
            "fenced" => Ok(AdmissionOutcome::Fenced),
            _ => Err(RedisError::Answer(outcome)),
        }
    }

    /// Records which process an incarnation is. False when this orchestrator does not lead.
    pub(crate) async fn record(
        &self,
        writer: &Writer,
        id: &WorkerId,
        running: &Running,
    ) -> Result<bool, RedisError> {
        let arguments = vec![
            running.incarnation.clone(),
            writer.instance.host.clone(),
            writer.instance.machine.clone(),
            writer.epoch.to_string(),
            running.fingerprint.clone(),
            running.identity.pid.to_string(),
            running.identity.started.to_string(),
        ];
        let script = include_str!("lua/record.lua");
        self.fenced(script, writer, vec![self.keys.process(id)], arguments).await
    }

    /// Frees the lock of a dead incarnation. With `forget` it also deletes the worker's record (any record when
    /// `incarnation` is empty) and takes the worker out of the active set. False when this orchestrator does not lead.
    pub(crate) async fn free(
        &self,
        writer: &Writer,
        id: &WorkerId,
        incarnation: &str,
        forget: bool,
    ) -> Result<bool, RedisError> {
        let keys = vec![
            self.keys.lock(id),
            self.keys.heartbeat(id),
            self.keys.state(id),
            self.keys.process(id),
            self.keys.workers(),
        ];
        let forget = if forget { "1" } else { "0" };
        let arguments = vec![id.to_string(), incarnation.to_owned(), forget.to_owned()];
        self.fenced(include_str!("lua/free.lua"), writer, keys, arguments).await
    }

    /// Replaces the set of active workers. False when this orchestrator does not lead.
    pub(crate) async fn set_active(&self, writer: &Writer, ids: &[WorkerId]) -> Result<bool, RedisError> {
        let arguments = ids.iter().map(ToString::to_string).collect();
        self.fenced(include_str!("lua/active.lua"), writer, vec![self.keys.workers()], arguments).await
    }

    /// Heartbeats, states and restart flags, in the order of the ids. All commands are sent before the first reply is read.
    pub(crate) async fn liveness(&self, ids: &[WorkerId]) -> Result<Vec<Liveness>, RedisError> {
        let chunks = try_join_all(ids.chunks(CHUNK).map(|chunk| self.liveness_of(chunk))).await?;
        Ok(chunks.into_iter().flatten().collect())
    }

    async fn liveness_of(&self, ids: &[WorkerId]) -> Result<Vec<Liveness>, RedisError> {
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
        let liveness = || Liveness { heartbeat: next(), state: next(), restarting: next().is_some() };
        Ok(std::iter::repeat_with(liveness).take(ids.len()).collect())
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
        let (key, expiry) = (self.keys.restarting(id), Some(Expiration::PX(ttl)));
        Ok(self.redis.client().set(key, "1", expiry, None, false).await?)
    }

    /// Publishes a message on the control channel.
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
        let instance = |machine: &str| Instance {
            incarnation: "o-1".to_owned(),
            host: "boot 2".to_owned(),
            machine: machine.to_owned(),
            process,
        };
        assert!(record("boot 1", "m").is_of_earlier_boot(&instance("m")));
        assert!(!record("boot 2", "m").is_of_earlier_boot(&instance("m")), "this boot");
        assert!(!record("boot 1", "n").is_of_earlier_boot(&instance("m")), "another machine");
        // Two unknown machines do not count as the same one.
        assert!(!record("boot 1", "").is_of_earlier_boot(&instance("")));
    }
}
