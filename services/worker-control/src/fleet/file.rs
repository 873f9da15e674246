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
//! Invariant: a file with a mistake is refused as a whole, and every mistake in it is named with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use super::spec::{Mistake, Spec};

const KEYS: [&str; 5] = ["id", "command", "environment", "interval_sec", "enabled"];

/// Reads a worker file.
///
/// # Errors
/// Every mistake, by its place in the file.
pub fn read(path: &Path) -> Result<Vec<Spec>, Vec<Mistake>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text),
        Err(error) => Err(vec![(path.display().to_string(), format!("cannot be read: {error}"))]),
    }
}

/// The same for a text in hand.
///
/// # Errors
/// Every mistake, by its place in the text.
pub fn parse(text: &str) -> Result<Vec<Spec>, Vec<Mistake>> {
    let table: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        vec![("file".to_owned(), error.to_string().trim_end().to_owned())]
    })?;
    let mut mistakes: Vec<Mistake> = table
        .keys()
        .filter(|key| *key != "workers")
        .map(|key| (key.clone(), "is not known; workers are listed as [[workers]]".to_owned()))
        .collect();
    let entries = match table.get("workers") {
        None => Vec::new(),
        Some(Value::Array(entries)) => entries.clone(),
        Some(_) => {
            mistakes.push(("workers".to_owned(), "must be a list of tables, [[workers]]".to_owned()));
            Vec::new()
        }
    };
    let (mut specs, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let mut read = Entry { place: format!("workers[{index}]"), mistakes: &mut mistakes };
        let Some(spec) = read.spec(entry) else { continue };
        if !seen.insert(spec.id.clone()) {
            read.note("id", format!("{} is named twice", spec.id));
        }
        specs.push(spec);
    }
    if mistakes.is_empty() { Ok(specs) } else { Err(mistakes) }
}

/// Mistakes in one line.
pub(crate) fn tell(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|(place, problem)| format!("{place}: {problem}")).collect::<Vec<_>>().join("; ")
}

struct Entry<'a> {
    place: String,
    mistakes: &'a mut Vec<Mistake>,
}

impl Entry<'_> {
    fn note(&mut self, key: &str, problem: impl Into<String>) {
        self.mistakes.push((format!("{}.{key}", self.place), problem.into()));
    }

    fn spec(&mut self, value: &Value) -> Option<Spec> {
        let Value::Table(table) = value else {
            self.mistakes.push((self.place.clone(), "must be a table".to_owned()));
            return None;
        };
        for key in table.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            self.note(key, format!("is not known; a worker has {}", KEYS.join(", ")));
        }
        let before = self.mistakes.len();
        let id = self.id(table.get("id"));
        let spec = Spec {
            command: self.command(table.get("command")),
            environment: self.environment(table.get("environment")),
            interval: self.interval(table.get("interval_sec")),
            enabled: self.enabled(table.get("enabled")),
            id: id?,
        };
        if self.mistakes.len() == before {
            for (field, problem) in spec.mistakes() {
                let field = if field == "interval" { "interval_sec".to_owned() } else { field };
                self.note(&field, problem);
            }
        }
        Some(spec)
    }

    fn id(&mut self, value: Option<&Value>) -> Option<worker::WorkerId> {
        match value {
            Some(Value::String(text)) => {
                text.parse().map_err(|error: worker::WorkerIdError| self.note("id", error.to_string())).ok()
            }
            Some(_) => {
                self.note("id", "must be a text");
                None
            }
            None => {
                self.note("id", "is missing");
                None
            }
        }
    }

    fn command(&mut self, value: Option<&Value>) -> Vec<String> {
        match value {
            Some(Value::Array(words)) => {
                let texts: Vec<String> = words.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                if texts.len() != words.len() {
                    self.note("command", "must be a list of texts");
                }
                texts
            }
            Some(_) => {
                self.note("command", "must be a list: the program and its arguments");
                Vec::new()
            }
            None => {
                self.note("command", "is missing");
                Vec::new()
            }
        }
    }

    fn environment(&mut self, value: Option<&Value>) -> BTreeMap<String, String> {
        let Some(value) = value else { return BTreeMap::new() };
        let Value::Table(table) = value else {
            self.note("environment", "must be a table of texts");
            return BTreeMap::new();
        };
        let mut variables = BTreeMap::new();
        for (name, value) in table {
            match value {
                Value::String(text) => {
                    variables.insert(name.clone(), text.clone());
                }
                Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => {
                    variables.insert(name.clone(), value.to_string());
                }
                Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
                    self.note(&format!("environment.{name}"), "must be a text");
                }
            }
        }
        variables
    }

    fn interval(&mut self, value: Option<&Value>) -> Option<Duration> {
        let seconds = match value? {
            Value::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            _ => None,
        };
        if seconds.is_none() {
            self.note("interval_sec", "must be a positive number of seconds");
        }
        seconds
    }

    fn enabled(&mut self, value: Option<&Value>) -> bool {
        match value {
            None => true,
            Some(Value::Boolean(enabled)) => *enabled,
            Some(_) => {
                self.note("enabled", "must be true or false");
                true
            }
        }
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
