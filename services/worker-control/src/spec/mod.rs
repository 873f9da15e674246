//! What a worker runs, and which values are accepted. No I/O apart from `file` and `repo`.

pub(crate) mod file;
pub(crate) mod repo;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use worker::{Timing, WorkerId};

const MAX_INTERVAL: Duration = Duration::from_secs(31 * 24 * 3600);
const MAX_COMMAND_WORDS: usize = 256;
const MAX_TEXT_BYTES: usize = 32 * 1024;

/// The variables that the orchestrator itself sets.
const OWN_VARIABLES: [&str; 9] = [
    "WORKER_PAIR_ID",
    "WORKER_INCARNATION",
    "WORKER_FLEET",
    "WORKER_SPEC",
    "WORKER_REDIS_URL",
    "WORKER_REDIS_TIMEOUT_MS",
    "WORKER_NAMESPACE",
    "WORKER_ORPHAN",
    "INTERVAL_SEC",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) id: WorkerId,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// The worker's own default (15 minutes) when absent.
    pub(crate) interval: Option<Duration>,
    pub(crate) enabled: bool,
}

/// Where a worker is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    File,
    Api,
}

/// A field and what is wrong with it.
pub(crate) type Mistake = (String, String);

impl Spec {
    /// Every mistake in the specification, by field.
    pub(crate) fn mistakes(&self) -> Vec<Mistake> {
        let mut found = Vec::new();
        let mut note = |field: &str, problem: String| found.push((field.to_owned(), problem));
        if self.command.first().is_none_or(|program| program.is_empty()) {
            note("command", "must name a program".to_owned());
        }
        if self.command.len() > MAX_COMMAND_WORDS {
            note("command", format!("has more than {MAX_COMMAND_WORDS} words"));
        }
        if self.command.iter().any(|word| word.contains('\0') || word.len() > MAX_TEXT_BYTES) {
            note("command", "holds a word that cannot be passed to a program".to_owned());
        }
        let timing = Timing::default().variables();
        for (name, value) in &self.environment {
            if OWN_VARIABLES.contains(&name.as_str()) || timing.contains_key(name.as_str()) {
                note("environment", format!("{name} is set by the orchestrator itself"));
            } else if name.is_empty() || name.contains(['=', '\0']) {
                note("environment", format!("`{name}` is not the name of a variable"));
            } else if value.contains('\0') || value.len() > MAX_TEXT_BYTES {
                note("environment", format!("{name} has a value that cannot be passed to a program"));
            }
        }
        if self.interval.is_some_and(|span| span < Duration::from_millis(1) || span > MAX_INTERVAL) {
            note("interval", "must be between 1 millisecond and 31 days".to_owned());
        }
        found
    }

    /// The same for the same command, environment and interval. A process with another fingerprint runs something else.
    pub(crate) fn fingerprint(&self) -> String {
        let what = (&self.command, &self.environment, self.interval.map(|span| span.as_millis()));
        // Texts and numbers always serialise.
        let text = serde_json::to_vec(&what).unwrap_or_default();
        Sha256::digest(&text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A specification as the database stores it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSpec {
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    interval_ms: Option<u64>,
    enabled: bool,
}

impl From<&Spec> for StoredSpec {
    fn from(spec: &Spec) -> Self {
        Self {
            command: spec.command.clone(),
            environment: spec.environment.clone(),
            interval_ms: spec.interval.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
            enabled: spec.enabled,
        }
    }
}

impl StoredSpec {
    fn with_id(self, id: WorkerId) -> Spec {
        let interval = self.interval_ms.map(Duration::from_millis);
        let Self { command, environment, enabled, .. } = self;
        Spec { id, command, environment, interval, enabled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec {
            id: "a".parse().unwrap(),
            command: vec!["sleep".to_owned(), "9".to_owned()],
            environment: BTreeMap::new(),
            interval: Some(Duration::from_secs(1)),
            enabled: true,
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let mut bad = spec();
        assert_eq!(bad.mistakes(), []);
        bad.command.clear();
        bad.interval = Some(Duration::ZERO);
        bad.environment =
            [("A=B", "x"), ("WORKER_PAIR_ID", "other"), ("WORKER_LOCK_TTL_MS", "1"), ("OK", "fine")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        let fields: Vec<String> = bad.mistakes().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["command", "environment", "environment", "environment", "interval"]);
    }

    #[test]
    fn a_change_of_what_runs_shows_and_a_change_of_whether_it_runs_does_not() {
        let plain = spec();
        let mut other = spec();
        other.enabled = false;
        assert_eq!(plain.fingerprint(), other.fingerprint());
        other.environment.insert("A".to_owned(), "1".to_owned());
        assert_ne!(plain.fingerprint(), other.fingerprint());
    }

    #[test]
    fn a_stored_specification_is_read_back_unchanged() {
        let text = serde_json::to_string(&StoredSpec::from(&spec())).unwrap();
        let stored: StoredSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(stored.with_id("a".parse().unwrap()), spec());
    }
}
