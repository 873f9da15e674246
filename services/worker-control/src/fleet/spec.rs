//! What a worker runs, and the rules for it. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use worker::{Timing, WorkerId};

/// Longest interval: beyond it a worker is a calendar entry.
const LONGEST_INTERVAL: Duration = Duration::from_secs(31 * 24 * 3600);
const LONGEST_COMMAND: usize = 256;
const LONGEST_TEXT: usize = 32 * 1024;

/// The variables that the orchestrator itself sets.
pub const OWN_VARIABLES: [&str; 9] = [
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

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub id: WorkerId,
    /// Program and arguments.
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// The worker's own default (15 minutes) when absent.
    pub interval: Option<Duration>,
    pub enabled: bool,
}

/// Where a worker is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    File,
    Api,
}

/// A field and what is wrong with it.
pub type Mistake = (String, String);

impl Spec {
    /// What is wrong with it, field by field.
    #[must_use]
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut found = Vec::new();
        let mut note = |field: &str, problem: String| found.push((field.to_owned(), problem));
        if self.command.first().is_none_or(|program| program.is_empty()) {
            note("command", "must name a program".to_owned());
        }
        if self.command.len() > LONGEST_COMMAND {
            note("command", format!("has more than {LONGEST_COMMAND} words"));
        }
        if self.command.iter().any(|word| word.contains('\0') || word.len() > LONGEST_TEXT) {
            note("command", "holds a word that no program can be given".to_owned());
        }
        for (name, value) in &self.environment {
            let own = OWN_VARIABLES.contains(&name.as_str()) || is_rhythm(name);
            if own {
                note("environment", format!("{name} is set by the orchestrator itself"));
            } else if name.is_empty() || name.contains(['=', '\0']) {
                note("environment", format!("`{name}` is no name of a variable"));
            } else if value.contains('\0') || value.len() > LONGEST_TEXT {
                note("environment", format!("{name} has a value that no program can be given"));
            }
        }
        match self.interval {
            Some(interval) if interval < Duration::from_millis(1) || interval > LONGEST_INTERVAL => {
                note("interval", "must be between 1 millisecond and 31 days".to_owned());
            }
            Some(_) | None => {}
        }
        found
    }

    /// The same for the same command, environment and interval: a process with another one runs something else.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let what = (&self.command, &self.environment, self.interval.map(|span| span.as_millis()));
        // Texts and numbers always serialise.
        let text = serde_json::to_vec(&what).unwrap_or_default();
        Sha256::digest(&text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn is_rhythm(name: &str) -> bool {
    Timing::default().variables().contains_key(name)
}

/// A specification as it is kept in the database.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    interval_ms: Option<u64>,
    enabled: bool,
}

impl From<&Spec> for Kept {
    fn from(spec: &Spec) -> Self {
        Self {
            command: spec.command.clone(),
            environment: spec.environment.clone(),
            interval_ms: spec.interval.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
            enabled: spec.enabled,
        }
    }
}

impl Kept {
    pub(crate) fn with_id(self, id: WorkerId) -> Spec {
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
    fn a_kept_specification_comes_back_as_it_was() {
        let text = serde_json::to_string(&Kept::from(&spec())).unwrap();
        let kept: Kept = serde_json::from_str(&text).unwrap();
        assert_eq!(kept.with_id("a".parse().unwrap()), spec());
    }
}
