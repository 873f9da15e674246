//! Workers and the orchestrator as the API shows them. A view is read without waiting for the orchestrator's loop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use worker::WorkerId;

use crate::spec::Spec;

/// The time of the next start is computed anew for each view; a smaller difference than this is not a change.
const ROUNDING: chrono::TimeDelta = chrono::TimeDelta::milliseconds(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Status {
    /// Started, no heartbeat yet.
    Starting,
    /// Its heartbeat is fresh.
    Running,
    /// Its heartbeat is missing.
    Silent,
    /// Not running; waits until its next start is due.
    BackingOff,
    /// Failed too often in a row; an operator has to act.
    GivenUp,
    /// Stopped on purpose.
    Stopped,
    /// Asked to stop or to restart; its process has not ended yet.
    Stopping,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerView {
    pub(crate) spec: Arc<Spec>,
    /// Whether it should run.
    pub(crate) wanted: bool,
    pub(crate) status: Status,
    /// 0 when none.
    pub(crate) pid: u32,
    pub(crate) incarnation: String,
    pub(crate) starts: u64,
    pub(crate) failures: u32,
    pub(crate) heartbeat_at: Option<DateTime<Utc>>,
    pub(crate) next_start_at: Option<DateTime<Utc>>,
    /// JSON, as the worker published it.
    pub(crate) state: String,
    pub(crate) last_error: String,
}

/// Everything at one moment. Views share the workers that did not change between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) workers: BTreeMap<WorkerId, Arc<WorkerView>>,
    pub(crate) orchestrator: OrchestratorView,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OrchestratorView {
    pub(crate) incarnation: String,
    pub(crate) leading: bool,
    pub(crate) epoch: u64,
    pub(crate) started_at: DateTime<Utc>,
    pub(crate) last_round: Duration,
    /// The worker file in effect.
    pub(crate) workers_file: Option<PathBuf>,
}

impl WorkerView {
    /// Equal apart from the rounding of the next start.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let next_start_at = match (self.next_start_at, other.next_start_at) {
            (Some(one), Some(two)) if (one - two).abs() < ROUNDING => Some(two),
            (one, _) => one,
        };
        Self { next_start_at, ..self.clone() } == *other
    }
}

impl View {
    /// Number of workers that have a process.
    pub(crate) fn running(&self) -> usize {
        self.workers.values().filter(|worker| worker.pid != 0).count()
    }
}
