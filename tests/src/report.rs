//! What a run has done, for whoever reads the output of a passing test.

use std::io::Write;

/// Shown also when the test passes: the harness captures `println!`, not what is written to the handle.
pub fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
