//! The unbroken run of finished ranges: how far a source is complete.
//!
//! Invariants: the run moves only over finished ranges that begin where it ends and whose first block's parent is its last block;
//! it moves by compare-and-set, so that any number of workers may move it at once; it never moves during an undo.

use super::domain::{Cursor, Job, Status};
use super::repo::RangeRepo;
use crate::source::Source;
use crate::store::{Store, StoreError, Tx};

/// Ranges read in one step.
const STEP: i64 = 64;
/// Steps in one call; the next call does the rest.
const MAX_STEPS: u32 = 1_000;

/// The result of advancing the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Advance {
    Unmoved,
    /// Complete before this block now.
    To(u64),
    /// The next finished range does not continue the last one: one of the two belongs to a dead branch.
    Broken(Box<Job>),
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    ranges: RangeRepo,
}

/// How far a walk over finished ranges got.
struct Walk {
    end: u64,
    hash: Option<String>,
    events: u64,
    /// Ranges for which the number of events before them is not recorded yet, with that number.
    unrecorded: Vec<(Job, u64)>,
    broken: Option<Job>,
    stale: Option<Job>,
}

impl Ledger {
    pub(crate) fn new(store: Store) -> Self {
        Self { ranges: RangeRepo::new(store) }
    }

    /// Moves the run as far as it goes.
    pub(crate) async fn advance(&self, source: &Source) -> Result<Advance, StoreError> {
        let mut outcome = Advance::Unmoved;
        for _ in 0..MAX_STEPS {
            let Some(cursor) = self.ranges.cursor(source.name()).await? else { return Ok(outcome) };
            if cursor.undoing.is_some() {
                return Ok(outcome);
            }
            let jobs = self.ranges.jobs_from(source.name(), cursor.done_before, STEP).await?;
            let walk = walk(&cursor, jobs, address_version(source, &cursor));
            if let Some(stale) = walk.stale {
                // Addresses were added after this range was read and before it counted, so it is read again.
                self.ranges.reopen_in(&mut Tx::alone(), &stale).await?;
            }
            if walk.end == cursor.done_before {
                return Ok(walk.broken.map_or(outcome, |job| Advance::Broken(Box::new(job))));
            }
            // A range that was reopened meanwhile ends the run; the next step finds out where.
            if !walk.unrecorded.is_empty() && !self.ranges.record_events_before(&walk.unrecorded).await? {
                continue;
            }
            if self.ranges.move_run(&cursor, walk.end, walk.hash, walk.events).await? {
                outcome = Advance::To(walk.end);
            }
        }
        Ok(outcome)
    }
}

/// The version of the source's addresses that finished ranges must have been read with.
fn address_version(source: &Source, cursor: &Cursor) -> i64 {
    if source.keeps_own_only() { cursor.address_version } else { 0 }
}

fn walk(cursor: &Cursor, jobs: Vec<Job>, address_version: i64) -> Walk {
    let mut walk = Walk {
        end: cursor.done_before,
        hash: cursor.done_hash.clone(),
        events: cursor.events,
        unrecorded: Vec::new(),
        broken: None,
        stale: None,
    };
    for job in jobs {
        // The rest of a range that was shortened, which another worker then read whole. The run does not need it.
        if job.from < walk.end {
            continue;
        }
        if job.from != walk.end || job.status != Status::Completed {
            break;
        }
        if job.address_version < address_version {
            walk.stale = Some(job);
            break;
        }
        if walk.hash.as_ref().is_some_and(|hash| *hash != job.parent_hash) {
            walk.broken = Some(job);
            break;
        }
        let before = walk.events;
        walk.end = job.to.saturating_add(1);
        walk.events = walk.events.saturating_add(job.count);
        walk.hash = Some(job.to_hash.clone());
        if job.before != Some(before) {
            walk.unrecorded.push((job, before));
        }
    }
    walk
}

#[cfg(test)]
mod tests {
    use super::super::domain::testing::job;
    use super::*;

    fn cursor(done_before: u64, hash: Option<&str>) -> Cursor {
        let new = Cursor::new("s", 1, done_before);
        Cursor { done_hash: hash.map(str::to_owned), events: 5, head: 1000, ..new }
    }

    #[test]
    fn the_run_ends_at_the_first_gap() {
        let jobs = vec![
            job(10, 19, Status::Completed),
            job(20, 29, Status::Completed),
            job(30, 39, Status::Processing),
            job(40, 49, Status::Completed),
        ];
        let walked = walk(&cursor(10, Some("h9")), jobs, 0);
        assert_eq!((walked.end, walked.hash.as_deref(), walked.events), (30, Some("h29"), 9));
        let unrecorded: Vec<_> = walked.unrecorded.iter().map(|(job, before)| (job.from, *before)).collect();
        assert_eq!(unrecorded, [(10, 5), (20, 7)]);
        let walked = walk(&cursor(10, Some("h9")), vec![job(20, 29, Status::Completed)], 0);
        assert_eq!(walked.end, 10);
    }

    #[test]
    fn a_range_that_does_not_link_breaks_the_run() {
        let walked = walk(&cursor(10, Some("another")), vec![job(10, 19, Status::Completed)], 0);
        assert_eq!((walked.end, walked.broken.map(|job| job.from)), (10, Some(10)));
        let walked = walk(&cursor(10, None), vec![job(10, 19, Status::Completed)], 0);
        assert_eq!(walked.end, 20, "the first range links to nothing");
    }

    #[test]
    fn a_range_inside_the_run_is_passed_over_and_a_stale_one_is_named() {
        let jobs = vec![job(15, 19, Status::Pending), job(20, 29, Status::Completed)];
        assert_eq!(walk(&cursor(20, Some("h19")), jobs.clone(), 0).end, 30);
        let stale = walk(&cursor(20, Some("h19")), jobs, 3);
        assert_eq!((stale.end, stale.stale.map(|job| job.from)), (20, Some(20)));
    }
}
