//! What a person sets for a run, and what the run reports even when it passes.

use std::io::Write;

/// Shown also when the test passes: the harness captures `println!`, not what is written to the handle.
pub fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// A setting of the run, such as the seed that repeats it.
pub fn from_environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}
