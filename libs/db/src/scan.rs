//! When a claim may start where the last one ended, instead of at the head of the index.
//!
//! Deleted rows stay in an index until vacuum may remove them, and while any long transaction runs it may not. A claim from
//! the head then steps over everything claimed since that transaction began, which is soon most of its time. So once claims
//! from the head become dear, most of them start at the last place, and only now and then one looks back: for rows whose
//! transaction was slow to commit, or that another claimant had locked and gave back.
//!
//! Owns that judgement and no SQL. It never lets more than a small share of time go into looking back, and never stops it.

use std::time::{Duration, Instant};

/// Cheaper than this, a claim from the head is always right.
const CHEAP: Duration = Duration::from_millis(3);
/// A dear claim from the head is made when this many times its cost has passed: at most a twentieth of all time.
const SPACING: u32 = 20;
/// Looking back is never put off for longer.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Head,
    LastPlace,
}

#[derive(Debug)]
pub(crate) struct Scan {
    /// The cheaper of the last two claims from the head: a single slow one was bad luck, not dead rows.
    head_cost: Duration,
    head_took: Duration,
    head_at: Option<Instant>,
}

impl Scan {
    pub(crate) const fn new() -> Self {
        Self { head_cost: Duration::ZERO, head_took: Duration::ZERO, head_at: None }
    }

    pub(crate) fn start(&self, now: Instant) -> Start {
        let Some(head_at) = self.head_at else { return Start::Head };
        let due = self.head_cost.saturating_mul(SPACING).min(LONGEST);
        if self.head_cost < CHEAP || now.saturating_duration_since(head_at) >= due {
            Start::Head
        } else {
            Start::LastPlace
        }
    }

    /// A claim from the head was made and took this long.
    pub(crate) fn note_head(&mut self, began: Instant, took: Duration) {
        self.head_at = Some(began);
        self.head_cost = took.min(self.head_took);
        self.head_took = took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_claims_always_start_at_the_head() {
        let mut scan = Scan::new();
        let now = Instant::now();
        assert_eq!(scan.start(now), Start::Head);
        scan.note_head(now, Duration::from_millis(1));
        assert_eq!(scan.start(now), Start::Head);
        scan.note_head(now, Duration::from_secs(1));
        assert_eq!(scan.start(now), Start::Head, "one slow claim is no pattern");
    }

    #[test]
    fn dear_ones_look_back_for_a_twentieth_of_the_time() {
        let mut scan = Scan::new();
        let now = Instant::now();
        scan.note_head(now, Duration::from_millis(10));
        scan.note_head(now, Duration::from_millis(10));
        assert_eq!(scan.start(now + Duration::from_millis(199)), Start::LastPlace);
        assert_eq!(scan.start(now + Duration::from_millis(200)), Start::Head);
        scan.note_head(now, Duration::from_secs(60));
        scan.note_head(now, Duration::from_secs(60));
        assert_eq!(scan.start(now + Duration::from_millis(4_999)), Start::LastPlace);
        assert_eq!(scan.start(now + Duration::from_secs(5)), Start::Head);
    }
}
