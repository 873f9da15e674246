//! The names of the keys that workers and the orchestrator share, and how long each lives.
//!
//! | key | lives | holds |
//! |---|---|---|
//! | `{ns}orchestrator:lock` | 60 s | incarnation of the orchestrator that leads |
//! | `{ns}workers` | no expiry | SET of active ids |
//! | `{ns}worker:{id}:lock` | 900 s | incarnation of the process that works |
//! | `{ns}worker:{id}:heartbeat` | 45 s | Unix time in milliseconds |
//! | `{ns}worker:{id}:state` | 60 s | [`WorkerState`](crate::WorkerState) as JSON |
//! | `{ns}worker:{id}:restarting` | 60 s | a restart was requested |
//! | `{ns}control` | | channel of [`Command`](crate::Command)s |
//!
//! Beside them, for what locks alone cannot do (none of them ever expires):
//!
//! | key | holds |
//! |---|---|
//! | `{ns}orchestrator:epoch` | fencing epoch of the lock, only ever growing |
//! | `{ns}orchestrator:owner` | HASH: who leads (incarnation, host, pid, start time) |
//! | `{ns}worker:{id}:fence` | fencing token of the worker's lock, only ever growing |
//! | `{ns}worker:{id}:process` | HASH: the incarnation that the leading orchestrator admits, with host, machine, pid and start time |

use std::collections::BTreeMap;
use std::time::Duration;

use crate::WorkerId;

/// The namespace of a fleet that names none.
pub const DEFAULT_NAMESPACE: &str = "btr:";

/// Key names under one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    namespace: String,
}

impl Keys {
    /// Under `namespace`, which should end with a colon.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into() }
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn orchestrator_lock(&self) -> String {
        format!("{}orchestrator:lock", self.namespace)
    }

    pub fn orchestrator_epoch(&self) -> String {
        format!("{}orchestrator:epoch", self.namespace)
    }

    pub fn orchestrator_owner(&self) -> String {
        format!("{}orchestrator:owner", self.namespace)
    }

    pub fn workers(&self) -> String {
        format!("{}workers", self.namespace)
    }

    pub fn control(&self) -> String {
        format!("{}control", self.namespace)
    }

    pub fn lock(&self, id: &WorkerId) -> String {
        self.worker(id, "lock")
    }

    pub fn heartbeat(&self, id: &WorkerId) -> String {
        self.worker(id, "heartbeat")
    }

    pub fn state(&self, id: &WorkerId) -> String {
        self.worker(id, "state")
    }

    pub fn restarting(&self, id: &WorkerId) -> String {
        self.worker(id, "restarting")
    }

    pub fn fence(&self, id: &WorkerId) -> String {
        self.worker(id, "fence")
    }

    pub fn process(&self, id: &WorkerId) -> String {
        self.worker(id, "process")
    }

    fn worker(&self, id: &WorkerId, what: &str) -> String {
        format!("{}worker:{id}:{what}", self.namespace)
    }
}

/// How often a worker shows itself, and how long what it shows lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    pub heartbeat_interval: Duration,
    pub heartbeat_ttl: Duration,
    /// Longer than the longest operation, so that a worker cut off from Redis can finish what it holds.
    pub lock_ttl: Duration,
    pub state_ttl: Duration,
    pub restarting_ttl: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(15),
            heartbeat_ttl: Duration::from_secs(45),
            lock_ttl: Duration::from_secs(900),
            state_ttl: Duration::from_secs(60),
            restarting_ttl: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// The variables by which a worker learns them, in milliseconds.
    pub fn variables(&self) -> BTreeMap<&'static str, String> {
        self.named().into_iter().map(|(name, span)| (name, span.as_millis().to_string())).collect()
    }

    pub(crate) fn named(&self) -> [(&'static str, Duration); 5] {
        [
            ("WORKER_HEARTBEAT_INTERVAL_MS", self.heartbeat_interval),
            ("WORKER_HEARTBEAT_TTL_MS", self.heartbeat_ttl),
            ("WORKER_LOCK_TTL_MS", self.lock_ttl),
            ("WORKER_STATE_TTL_MS", self.state_ttl),
            ("WORKER_RESTARTING_TTL_MS", self.restarting_ttl),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_as_in_the_table() {
        let (keys, id) = (Keys::new(DEFAULT_NAMESPACE), "USDC-USDT".parse().unwrap());
        assert_eq!(keys.orchestrator_lock(), "btr:orchestrator:lock");
        assert_eq!(keys.workers(), "btr:workers");
        assert_eq!(keys.lock(&id), "btr:worker:USDC-USDT:lock");
        assert_eq!(keys.heartbeat(&id), "btr:worker:USDC-USDT:heartbeat");
        assert_eq!(keys.state(&id), "btr:worker:USDC-USDT:state");
        assert_eq!(keys.restarting(&id), "btr:worker:USDC-USDT:restarting");
        assert_eq!(keys.control(), "btr:control");
    }

    #[test]
    fn times_to_live_are_those_of_the_table() {
        let seconds = Timing::default().named().map(|(_, span)| span.as_secs());
        assert_eq!(seconds, [15, 45, 900, 60, 60]);
    }
}
