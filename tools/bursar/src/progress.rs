//! What `bursar up` and `bursar down` say while they work, on standard error: one line when a part is ready or gone.

use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Step {
    name: String,
    began: Instant,
}

impl Step {
    pub fn new(name: impl Into<String>) -> Step {
        Step { name: name.into(), began: Instant::now() }
    }

    pub fn done(&self, what: impl Display) {
        say(format_args!("{:<15} {what} ({})", self.name, seconds(self.began.elapsed())));
    }
}

/// One line; a standard error that is closed must not stop the work.
pub fn say(line: impl Display) {
    writeln!(std::io::stderr(), "{line}").ok();
}

pub fn seconds(time: Duration) -> String {
    let tenths = time.as_millis() / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_tenths_of_a_second() {
        assert_eq!(seconds(Duration::from_millis(1_890)), "1.8 s");
        assert_eq!(seconds(Duration::ZERO), "0.0 s");
    }
}
