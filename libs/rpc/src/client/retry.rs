//! When a safe call is tried again.
//!
//! Owns the closed list of codes that mean "not now": the server is away or overloaded. Every other code would come back the
//! same after a retry. A passed deadline is not among them, because no time is left for a retry.

use std::time::Duration;

use tonic::{Code, Status};

use crate::error;

/// Retries of safe calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConfig {
    /// Attempts in all; 1 means no retries.
    pub max_attempts: u32,
    /// Pause after the first try; it doubles from there.
    pub base_ms: u64,
    pub cap_ms: u64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max_attempts: 4, base_ms: 50, cap_ms: 2_000 }
    }
}

impl RetryConfig {
    /// How long to wait after try number `tries` ended with `status`; `None` to give up.
    pub(super) fn pause(&self, tries: u32, status: &Status) -> Option<Duration> {
        let requested = error::retry_after(status);
        let later = match status.code() {
            Code::Unavailable => true,
            // With a delay it is our servers' load shedding; without one it is a quota, and waiting does not help.
            Code::ResourceExhausted => requested.is_some(),
            _ => false,
        };
        if !later || tries >= self.max_attempts {
            return None;
        }
        let doubled = self.base_ms.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(self.cap_ms);
        // Half fixed, half random: many clients refused together must not come back together.
        let jittered = doubled / 2 + rand::random_range(0..=doubled / 2);
        Some(Duration::from_millis(jittered).max(requested.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_not_now_is_retried() {
        let retry = RetryConfig::default();
        let shed = error::resource_exhausted(error::reason::OVERLOADED, "full", Duration::from_millis(200));
        assert!(retry.pause(1, &shed).is_some_and(|pause| pause >= Duration::from_millis(200)));
        assert!(retry.pause(1, &Status::unavailable("away")).is_some());
        for answer in [
            Status::resource_exhausted("quota"),
            Status::internal("fault"),
            Status::deadline_exceeded("late"),
            Status::aborted("conflict"),
        ] {
            assert_eq!(retry.pause(1, &answer), None, "{answer}");
        }
    }

    #[test]
    fn pauses_grow_to_the_cap_and_tries_end() {
        let retry = RetryConfig { max_attempts: 100, base_ms: 100, cap_ms: 1000 };
        let away = Status::unavailable("away");
        assert!(retry.pause(1, &away).is_some_and(|pause| pause <= Duration::from_millis(100)));
        assert!(retry.pause(60, &away).is_some_and(|pause| pause <= Duration::from_millis(1000)));
        assert_eq!(retry.pause(100, &away), None);
    }
}
