//! What a worker publishes about itself.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::WorkerId;

/// How a worker feels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerStatus {
    /// Nothing has run yet.
    Starting,
    /// A cycle is under way, or a long-running worker runs.
    Working,
    /// Sleeps until the next cycle.
    Idle,
    /// May start nothing new: Redis is away.
    Waiting,
    /// The last cycle failed.
    Error,
    Stopping,
}

/// The value of the state key. What is the worker's own (decision, forces, regime, ..) lies beside these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerState {
    pub pair_id: String,
    pub status: WorkerStatus,
    /// Cycles begun since the process started.
    pub epoch: u64,
    pub incarnation: String,
    pub pid: u32,
    /// Absent for a worker that runs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    #[serde(with = "chrono::serde::ts_milliseconds")]
    pub started_at: DateTime<Utc>,
    #[serde(default, with = "chrono::serde::ts_milliseconds_option")]
    pub last_cycle_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub last_cycle_ms: Option<u64>,
    /// Why the last cycle failed.
    #[serde(default)]
    pub error: Option<String>,
    #[serde(flatten)]
    pub own: Map<String, Value>,
}

impl WorkerState {
    #[must_use]
    pub fn new(id: &WorkerId, incarnation: &str) -> Self {
        Self {
            pair_id: id.to_string(),
            status: WorkerStatus::Starting,
            epoch: 0,
            incarnation: incarnation.to_owned(),
            pid: std::process::id(),
            fencing_token: None,
            started_at: Utc::now(),
            last_cycle_at: None,
            last_cycle_ms: None,
            error: None,
            own: Map::new(),
        }
    }

    /// As it is published.
    #[must_use]
    pub fn json(&self) -> String {
        // Maps with text keys and plain values always serialise.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_own_fields_lie_beside_ours() {
        let mut state = WorkerState::new(&"a".parse().unwrap(), "i-1");
        state.own.insert("regime".to_owned(), "calm".into());
        let value: Value = serde_json::from_str(&state.json()).unwrap();
        assert_eq!(value["pairId"], "a");
        assert_eq!(value["status"], "starting");
        assert_eq!(value["epoch"], 0);
        assert_eq!(value["regime"], "calm");
        let back: WorkerState = serde_json::from_value(value).unwrap();
        assert_eq!(back.own, state.own);
    }
}
