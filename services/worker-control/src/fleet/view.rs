//! How workers and the orchestrator look from outside: what the API tells, taken without asking the orchestrator's loop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use worker::WorkerId;

use super::spec::Spec;

/// A difference between two computed times that is none.
const ROUNDING: chrono::TimeDelta = chrono::TimeDelta::milliseconds(500);

/// How a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Started, no heartbeat yet.
    Starting,
    /// Its heartbeat is fresh.
    Running,
    /// Its heartbeat is missing.
    Silent,
    /// Not running; waits until its next start is due.
    BackingOff,
    /// Failed too often in a row; needs a person.
    GivenUp,
    /// Stopped on purpose.
    Stopped,
    /// Told to stop or to start anew; its process has not ended yet.
    Stopping,
}

/// A worker and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub spec: Arc<Spec>,
    /// Whether it should run.
    pub wanted: bool,
    pub status: Status,
    /// 0 when none.
    pub pid: u32,
    pub incarnation: String,
    pub starts: u64,
    pub failures: u32,
    pub heartbeat_at: Option<DateTime<Utc>>,
    pub next_start_at: Option<DateTime<Utc>>,
    /// JSON, as the worker published it.
    pub state: String,
    pub last_error: String,
}

/// Everything at one moment. Workers that did not change are shared between moments.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub workers: BTreeMap<WorkerId, Arc<WorkerView>>,
    pub orchestrator: OrchestratorView,
}

/// How the orchestrator itself is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrchestratorView {
    pub incarnation: String,
    pub leading: bool,
    pub epoch: u64,
    pub started_at: DateTime<Utc>,
    pub last_round: Duration,
    /// The worker file that is followed now.
    pub workers_file: Option<PathBuf>,
}

impl WorkerView {
    /// The same as `other`, as far as anybody cares: the time of the next start is computed anew for each view.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let same_start = match (self.next_start_at, other.next_start_at) {
            (Some(one), Some(two)) => (one - two).abs() < ROUNDING,
            (one, two) => one == two,
        };
        let Self {
            spec,
            wanted,
            status,
            pid,
            incarnation,
            starts,
            failures,
            heartbeat_at,
            state,
            last_error,
            ..
        } = self;
        same_start
            && (status, pid, starts, failures, wanted)
                == (&other.status, &other.pid, &other.starts, &other.failures, &other.wanted)
            && (heartbeat_at, incarnation) == (&other.heartbeat_at, &other.incarnation)
            && (state, last_error) == (&other.state, &other.last_error)
            && (Arc::ptr_eq(spec, &other.spec) || *spec == other.spec)
    }
}

impl View {
    /// Workers that run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.workers.values().filter(|worker| worker.pid != 0).count()
    }
}
