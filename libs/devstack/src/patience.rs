//! A time limit that grows with how busy the machine is.
//!
//! A fixed limit that is generous on a quiet machine is too short on one that compiles three other projects. The time that
//! counts against a limit therefore passes more slowly while more processes want to run than there are cores: with ten
//! runnable processes for each core, ten seconds count as one.

use std::time::{Duration, Instant};

/// A machine that looks slower than this is broken, and waiting longer would only hide it.
const MOST: u32 = 20;
/// How long one reading of the load is used.
const REREAD: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    spent: Duration,
    looked: Instant,
    slowness: u32,
    read: Instant,
}

impl Patience {
    /// `limit` is what a quiet machine is given.
    pub fn of(limit: Duration) -> Self {
        let now = Instant::now();
        Self { limit, spent: Duration::ZERO, looked: now, slowness: slowness(), read: now }
    }

    /// What is left, in time of a quiet machine.
    pub fn left(&mut self) -> Duration {
        let now = Instant::now();
        if now - self.read > REREAD {
            (self.slowness, self.read) = (slowness(), now);
        }
        self.spent += (now - self.looked) / self.slowness;
        self.looked = now;
        self.limit.saturating_sub(self.spent)
    }

    pub fn is_over(&mut self) -> bool {
        self.left().is_zero()
    }

    /// What is left as time of the wall clock, if the machine stays as busy as it is.
    pub fn left_here(&mut self) -> Duration {
        self.left() * self.slowness
    }
}

/// How many processes want each core, at least one. Of the last minute's average and this instant, the larger one counts.
fn slowness() -> u32 {
    let cores =
        std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    (runnable(&text).div_ceil(cores)).clamp(1, MOST)
}

/// Reads `5.22 3.24 2.17 8/143 4630`: 5.22 on average over the last minute, 8 now.
fn runnable(loadavg: &str) -> u32 {
    let mut fields = loadavg.split(' ');
    let minute = fields.next().and_then(|text| text.split('.').next()).and_then(|whole| whole.parse().ok());
    let now = fields.nth(2).and_then(|text| text.split('/').next()).and_then(|text| text.parse().ok());
    minute.unwrap_or(0).max(now.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_the_average_and_the_present_counts() {
        assert_eq!(runnable("5.22 3.24 2.17 8/143 4630"), 8);
        assert_eq!(runnable("21.90 3.24 2.17 2/143 4630"), 21);
        assert_eq!(runnable(""), 0);
        assert_eq!(runnable("no load here"), 0);
    }

    #[test]
    fn time_counts_less_on_a_busy_machine() {
        let long_ago = Instant::now() - Duration::from_secs(50);
        let waited = |slowness| Patience {
            limit: Duration::from_secs(60),
            spent: Duration::ZERO,
            looked: long_ago,
            slowness,
            read: Instant::now() + Duration::from_secs(60),
        };
        assert!(waited(1).left() < Duration::from_secs(11));
        assert!(waited(10).left() > Duration::from_secs(54));
        assert!(!waited(1).is_over());
        assert!(waited(10).left_here() > Duration::from_secs(540));
    }
}
