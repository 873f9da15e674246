//! The worker file:
//!
//! ```toml
//! [[workers]]
//! id = "USDC-USDT"
//! command = ["python3", "strategy.py"]
//! environment = { EXCHANGE = "https://api.example.com" }
//! interval_sec = 900
//! enabled = true
//! ```
//!
//! Invariant: a file with a mistake is refused as a whole, and every mistake in it is named with its place. That is why the
//! tables are read by hand: serde stops at the first mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};
use worker::{WorkerId, WorkerIdError};

use super::{Mistake, Spec};

const KEYS: [&str; 5] = ["id", "command", "environment", "interval_sec", "enabled"];

/// Reads a worker file; the error holds every mistake by its place in the file.
pub(crate) fn read(path: &Path) -> Result<Vec<Spec>, Vec<Mistake>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text),
        Err(error) => Err(vec![(path.display().to_string(), format!("cannot be read: {error}"))]),
    }
}

fn parse(text: &str) -> Result<Vec<Spec>, Vec<Mistake>> {
    let table: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        vec![("file".to_owned(), error.to_string().trim_end().to_owned())]
    })?;
    let mut mistakes: Vec<Mistake> = table
        .keys()
        .filter(|key| *key != "workers")
        .map(|key| (key.clone(), "is not known; workers are listed as [[workers]]".to_owned()))
        .collect();
    let empty = Vec::new();
    let entries = match table.get("workers") {
        None => &empty,
        Some(Value::Array(entries)) => entries,
        Some(_) => {
            mistakes.push(("workers".to_owned(), "must be a list of tables, [[workers]]".to_owned()));
            &empty
        }
    };
    let (mut specs, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("workers[{index}]");
        let Value::Table(table) = entry else {
            mistakes.push((place, "must be a table".to_owned()));
            continue;
        };
        let mut reader = EntryReader { place, table, mistakes: &mut mistakes };
        let Some(spec) = reader.spec() else { continue };
        if !seen.insert(spec.id.clone()) {
            reader.note("id", format!("{} is named twice", spec.id));
        }
        specs.push(spec);
    }
    if mistakes.is_empty() { Ok(specs) } else { Err(mistakes) }
}

/// All mistakes in one line.
pub(crate) fn summary(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|(place, problem)| format!("{place}: {problem}")).collect::<Vec<_>>().join("; ")
}

/// Reads one `[[workers]]` table.
struct EntryReader<'a> {
    place: String,
    table: &'a Table,
    mistakes: &'a mut Vec<Mistake>,
}

impl EntryReader<'_> {
    fn note(&mut self, key: &str, problem: impl Into<String>) {
        self.mistakes.push((format!("{}.{key}", self.place), problem.into()));
    }

    fn spec(&mut self) -> Option<Spec> {
        for key in self.table.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            self.note(key, format!("is not known; a worker has {}", KEYS.join(", ")));
        }
        let before = self.mistakes.len();
        self.require("id");
        self.require("command");
        let id = self.value("id", "must be a text", |value| value.as_str().map(str::to_owned));
        let spec = Spec {
            command: self
                .value("command", "must be a list of texts: the program and its arguments", texts)
                .unwrap_or_default(),
            environment: self.environment(),
            interval: self.value("interval_sec", "must be a positive number of seconds", seconds),
            enabled: self.value("enabled", "must be true or false", Value::as_bool).unwrap_or(true),
            id: self.id(&id?)?,
        };
        if self.mistakes.len() == before {
            for (field, problem) in spec.mistakes() {
                self.note(if field == "interval" { "interval_sec" } else { &field }, problem);
            }
        }
        Some(spec)
    }

    fn require(&mut self, key: &str) {
        if !self.table.contains_key(key) {
            self.note(key, "is missing");
        }
    }

    /// The value under `key`; one that `read` does not accept is a mistake.
    fn value<T>(&mut self, key: &str, problem: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let read = read(self.table.get(key)?);
        if read.is_none() {
            self.note(key, problem);
        }
        read
    }

    fn id(&mut self, text: &str) -> Option<WorkerId> {
        text.parse().map_err(|error: WorkerIdError| self.note("id", error.to_string())).ok()
    }

    fn environment(&mut self) -> BTreeMap<String, String> {
        let table = self.value("environment", "must be a table of texts", |value| value.as_table().cloned());
        let mut variables = BTreeMap::new();
        for (name, value) in table.unwrap_or_default() {
            let text = match value {
                Value::String(text) => text,
                Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
                Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
                    self.note(&format!("environment.{name}"), "must be a text");
                    continue;
                }
            };
            variables.insert(name, text);
        }
        variables
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

fn seconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
        Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_file_is_read() {
        let specs = parse(
            "[[workers]]\nid = \"a\"\ncommand = [\"sleep\", \"9\"]\nenvironment = { X = \"1\", N = 2 }\n\
             interval_sec = 0.5\nenabled = false\n[[workers]]\nid = \"b\"\ncommand = [\"true\"]\n",
        )
        .unwrap();
        assert_eq!(specs.len(), 2);
        assert_eq!(specs[0].interval, Some(Duration::from_millis(500)));
        assert_eq!(specs[0].environment["N"], "2");
        assert!(!specs[0].enabled && specs[1].enabled);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn every_mistake_is_named_with_its_place() {
        let mistakes = parse(
            "wrokers = 1\n[[workers]]\nid = \"a b\"\ncommand = \"sleep\"\n[[workers]]\nid = \"c\"\n\
             command = [\"x\"]\nintervall = 3\n[[workers]]\nid = \"c\"\ncommand = [\"x\"]\ninterval_sec = -1\n\
             environment = { WORKER_PAIR_ID = \"z\" }\n[[workers]]\nid = \"d\"\ncommand = []\n",
        )
        .unwrap_err();
        let places: Vec<&str> = mistakes.iter().map(|(place, _)| place.as_str()).collect();
        let expected = [
            "wrokers",
            "workers[0].id",
            "workers[0].command",
            "workers[1].intervall",
            "workers[2].interval_sec",
            "workers[2].id",
            "workers[3].command",
        ];
        for place in expected {
            assert!(places.contains(&place), "{place} is not among {places:?}");
        }
    }
}
