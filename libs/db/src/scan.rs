//! When a claim may start where the last one ended, instead of at the head of the index.
//!
//! Deleted rows stay in an index until vacuum has removed them, and while any long transaction runs it may not. A claim from
//! the head steps over everything claimed since: after a few seconds of full load that is most of its time. So while there is
//! plenty to do, claims start at the last place; now and then, and whenever they find too little, one looks back from the
//! head: for rows whose transaction was slow to commit, or that another claimant had locked and gave back.
//!
//! Owns that decision and no SQL. Looking back never takes more than a small part of the time, and never stops.

use std::time::{Duration, Instant};

/// The pause between two looks back under full load: how long a row that was skipped may have to wait.
const GAP: Duration = Duration::from_millis(50);
/// Cheaper than this, a look back is always right when there was too little to do.
const CHEAP: Duration = Duration::from_millis(3);
/// An expensive look back is made when this many times its cost has passed: at most a twentieth of all time.
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
    /// Whether the last claim found less than it had room for.
    short: bool,
}

impl Scan {
    pub(crate) const fn new() -> Self {
        Self { head_cost: Duration::ZERO, head_took: Duration::ZERO, head_at: None, short: true }
    }

    /// Where the claim that begins now starts. A look back counts from here on, so that of many claims at once one makes it.
    pub(crate) fn start(&mut self, now: Instant) -> Start {
        let gap = self.head_cost.saturating_mul(SPACING).clamp(GAP, LONGEST);
        let is_time = self.head_at.is_none_or(|at| now.saturating_duration_since(at) >= gap);
        if is_time || (self.short && self.head_cost < CHEAP) {
            self.head_at = Some(now);
            Start::Head
        } else {
            Start::LastPlace
        }
    }

    /// A claim was made: from where, since when, and whether it found less than it had room for.
    pub(crate) fn note(&mut self, start: Start, began: Instant, short: bool) {
        self.short = short;
        if start == Start::Head {
            let took = began.elapsed();
            self.head_cost = took.min(self.head_took);
            self.head_took = took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(head_at: Instant, head_cost: Duration, short: bool) -> Scan {
        Scan { head_cost, head_took: head_cost, head_at: Some(head_at), short }
    }

    #[test]
    fn the_first_claim_and_those_with_little_to_do_start_at_the_head() {
        let now = Instant::now();
        assert_eq!(Scan::new().start(now), Start::Head);
        assert_eq!(scan(now, Duration::from_millis(1), true).start(now), Start::Head);
    }

    #[test]
    fn under_load_a_look_back_is_made_after_the_gap() {
        let now = Instant::now();
        let mut busy = scan(now, Duration::from_millis(1), false);
        assert_eq!(busy.start(now + Duration::from_millis(49)), Start::LastPlace);
        let later = now + Duration::from_millis(50);
        assert_eq!(busy.start(later), Start::Head);
        assert_eq!(busy.start(later), Start::LastPlace, "one of many at once looks back");
    }

    #[test]
    fn expensive_ones_take_a_twentieth_of_the_time_even_with_little_to_do() {
        let now = Instant::now();
        for short in [false, true] {
            let mut expensive = scan(now, Duration::from_millis(10), short);
            assert_eq!(expensive.start(now + Duration::from_millis(199)), Start::LastPlace);
            assert_eq!(expensive.start(now + Duration::from_millis(200)), Start::Head);
            let mut hopeless = scan(now, Duration::from_secs(60), short);
            assert_eq!(hopeless.start(now + Duration::from_millis(4_999)), Start::LastPlace);
            assert_eq!(hopeless.start(now + Duration::from_secs(5)), Start::Head);
        }
    }

    #[test]
    fn one_slow_claim_is_no_pattern() {
        let now = Instant::now();
        let mut scan = scan(now, Duration::from_millis(1), false);
        let long_ago = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        scan.note(Start::Head, long_ago, true);
        assert_eq!(scan.head_cost, Duration::from_millis(1));
    }
}
