//! Retry schedules: `2^n x base`, capped, for a number of tries.
//!
//! Delays have no jitter, so that an operator can compute the next try from the row. There is no clock here: callers add the
//! delay to the time of the database. Delays saturate instead of overflowing, so that a wrong counter can delay a job but never
//! panics the worker or makes the job due at once.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub base: Duration,
    /// No single delay is longer than this.
    pub cap: Option<Duration>,
    /// After this many tries the job is not retried.
    pub max_tries: u32,
}

impl Backoff {
    /// Withdrawals: `2^n x 30 s`, 5 tries.
    pub const WITHDRAWAL: Self = Self { base: Duration::from_secs(30), cap: None, max_tries: 5 };

    /// Consolidations: `min(2^n x 30 s, 15 min)`, 8 tries.
    pub const CONSOLIDATION: Self =
        Self { base: Duration::from_secs(30), cap: Some(Duration::from_secs(15 * 60)), max_tries: 8 };

    /// The delay after `n` retries: `2^n x base`, at most the cap.
    pub fn delay(&self, n: u32) -> Duration {
        let grown = times_power_of_two(self.base, n);
        self.cap.map_or(grown, |cap| grown.min(cap))
    }

    /// Whether a job that was tried this often is given up.
    pub const fn exhausted(&self, tries: u32) -> bool {
        tries >= self.max_tries
    }
}

fn times_power_of_two(base: Duration, n: u32) -> Duration {
    const NANOS_PER_SEC: u128 = 1_000_000_000;
    if base.is_zero() {
        return base;
    }
    let Some(nanos) = 1u128.checked_shl(n).and_then(|factor| base.as_nanos().checked_mul(factor)) else {
        return Duration::MAX;
    };
    match u64::try_from(nanos / NANOS_PER_SEC) {
        // The remainder is below 10^9 and fits.
        Ok(secs) => Duration::new(secs, (nanos % NANOS_PER_SEC) as u32),
        Err(_) => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawals_double_from_thirty_seconds_five_times() {
        let delays: Vec<u64> = (0..5).map(|n| Backoff::WITHDRAWAL.delay(n).as_secs()).collect();
        assert_eq!(delays, [30, 60, 120, 240, 480]);
        assert!(!Backoff::WITHDRAWAL.exhausted(4));
        assert!(Backoff::WITHDRAWAL.exhausted(5));
        assert!(Backoff::WITHDRAWAL.exhausted(6));
    }

    #[test]
    fn consolidations_stop_growing_at_fifteen_minutes() {
        let delays: Vec<u64> = (0..8).map(|n| Backoff::CONSOLIDATION.delay(n).as_secs()).collect();
        assert_eq!(delays, [30, 60, 120, 240, 480, 900, 900, 900]);
        assert!(!Backoff::CONSOLIDATION.exhausted(7));
        assert!(Backoff::CONSOLIDATION.exhausted(8));
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(Backoff::WITHDRAWAL.delay(u32::MAX), Duration::MAX);
        assert_eq!(Backoff::CONSOLIDATION.delay(u32::MAX), Duration::from_secs(900));
        let never = Backoff { base: Duration::ZERO, cap: None, max_tries: 0 };
        assert_eq!(never.delay(u32::MAX), Duration::ZERO);
        assert!(never.exhausted(0));
        let exact = Backoff { base: Duration::new(1, 500_000_001), cap: None, max_tries: 1 };
        assert_eq!(exact.delay(1), Duration::new(3, 2));
        let largest = Backoff { base: Duration::MAX, cap: None, max_tries: 1 };
        assert_eq!(largest.delay(0), Duration::MAX);
        assert_eq!(largest.delay(1), Duration::MAX);
    }
}
