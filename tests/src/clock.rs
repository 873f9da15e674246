//! Processes whose clocks are wrong.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};

use crate::stack::Stack;

#[derive(Debug)]
pub struct WrongClock {
    library: String,
}

impl WrongClock {
    /// Needs `libfaketime` of Debian's package `faketime`, which `scripts/install-tools test` installs.
    pub fn new() -> Result<Self> {
        let places = std::fs::read_dir("/usr/lib").context("cannot look for libfaketime")?;
        let mut places = places.flatten().map(|place| place.path().join("faketime/libfaketime.so.1"));
        let found = places.find(|file| file.exists());
        let found =
            found.context("libfaketime is not installed; `scripts/install-tools test` installs it")?;
        Ok(Self { library: found.display().to_string() })
    }

    /// The variables of a process whose clock is off by so much, such as `+3600s`.
    pub fn environment<'a>(&'a self, offset: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut environment = vec![("LD_PRELOAD", self.library.as_str()), ("FAKETIME", offset)];
        // Only the time of day is wrong: a clock that is set back does not stop timers.
        environment.extend([("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1")]);
        environment
    }
}

/// Holds a service to being off by so many minutes, more or less.
pub fn check_off(stack: &Stack, service: &str, minutes: i64) -> Result<()> {
    let off = minutes_off(&stack.part(service)?.log)?;
    ensure!((off - minutes).abs() <= 5, "{service} is off by {off} minutes and not {minutes}");
    Ok(())
}

/// How far the last line of a service's log is from our clock.
fn minutes_off(log: &Path) -> Result<i64> {
    let text = std::fs::read_to_string(log)?;
    let line = text.lines().rev().find(|line| line.starts_with("{\"timestamp\"")).context("no log line")?;
    let line: serde_json::Value = serde_json::from_str(line)?;
    let at: DateTime<Utc> = line["timestamp"].as_str().context("a line has a time")?.parse()?;
    Ok((at - Utc::now()).num_minutes())
}
