//! The unbroken run of finished ranges: how far a source is complete.
//!
//! Invariants: the run moves only over finished ranges that begin where it ends and whose first block's parent is its last block;
//! it moves by compare-and-set, so that any number of workers may push it at once; it never moves while something is undone.

use mongodb::bson::{DateTime, Document, doc};

use super::domain::{Cursor, Job, Status};
use super::repo::RangeRepo;
use crate::source::Source;
use crate::store::{Store, StoreError, Tx, number};

/// Ranges looked at in one step.
const STEP: i64 = 64;
/// Steps in one call: the rest is done by the next.
const MAX_STEPS: u32 = 1_000;
/// The rate is measured over at least this long.
const SAMPLE_MS: i64 = 2_000;

/// What pushing the run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Advance {
    Unmoved,
    /// Complete before this block now.
    To(u64),
    /// The next finished range does not continue the last one: one of the two is of a dead branch.
    Broken(Box<Job>),
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    store: Store,
    ranges: RangeRepo,
}

/// How far a walk over finished ranges got.
struct Walk {
    end: u64,
    hash: Option<String>,
    events: u64,
    /// Updates that note how many events lie before each range.
    notes: Vec<Document>,
    broken: Option<Job>,
    stale: Option<Job>,
}

impl Ledger {
    pub(crate) fn new(store: Store) -> Self {
        Self { ranges: RangeRepo::new(store.clone()), store }
    }

    /// Pushes the run as far as it goes.
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
                self.read_again(&stale).await?;
            }
            if walk.end == cursor.done_before {
                return Ok(walk.broken.map_or(outcome, |job| Advance::Broken(Box::new(job))));
            }
            if !walk.notes.is_empty() {
                let noted = i32::try_from(walk.notes.len()).unwrap_or(i32::MAX);
                let notes = doc! { "update": "blockJobs", "updates": walk.notes, "ordered": false };
                // A range that was opened again since it was looked at ends the run here.
                if self.store.command(notes).await?.get_i32("n") != Ok(noted) {
                    continue;
                }
            }
            if self.push(&cursor, walk.end, walk.hash, walk.events).await? {
                outcome = Advance::To(walk.end);
            }
        }
        Ok(outcome)
    }

    /// Addresses came after this range was read and before it counted: it is read once more.
    async fn read_again(&self, job: &Job) -> Result<(), StoreError> {
        let same = doc! { "_id": &job.id, "fence": job.fence, "status": "completed" };
        self.ranges.reopen_in(&mut Tx::alone(), same).await?;
        Ok(())
    }

    pub(super) async fn push(
        &self,
        cursor: &Cursor,
        end: u64,
        hash: Option<String>,
        events: u64,
    ) -> Result<bool, StoreError> {
        let now = DateTime::now();
        let passed = now.timestamp_millis().saturating_sub(cursor.sampled_at_ms);
        let mut set = doc! { "doneBefore": number(end), "doneHash": hash, "events": number(events) };
        if passed >= SAMPLE_MS {
            let blocks = number(end.saturating_sub(cursor.sampled_block));
            set.insert("sampledAt", now);
            set.insert("sampledBlock", number(end));
            set.insert("rate", blocks.saturating_mul(1_000_000) / passed);
        }
        let unmoved = doc! {
            "_id": &cursor.source,
            "doneBefore": number(cursor.done_before),
            "epoch": cursor.epoch,
            "undoing": mongodb::bson::Bson::Null,
            // Addresses that came meanwhile: the ranges were judged by an older version. Missing where none ever came.
            "addressVersion": { "$not": { "$gt": cursor.address_version } },
        };
        let moved = self.store.cursors().update_one(unmoved, doc! { "$set": set }).await?;
        Ok(moved.matched_count == 1)
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
        notes: Vec::new(),
        broken: None,
        stale: None,
    };
    for job in jobs {
        // The rest of a range that was cut, and then read whole by another: nothing that the run needs.
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
        if job.before != Some(walk.events) {
            let note = doc! { "$set": { "before": number(walk.events) } };
            // Not of a range that was opened again meanwhile: it will be counted anew.
            let same = doc! { "_id": &job.id, "fence": job.fence, "status": "completed" };
            walk.notes.push(doc! { "q": same, "u": note });
        }
        walk.end = job.to.saturating_add(1);
        walk.events = walk.events.saturating_add(job.count);
        walk.hash = Some(job.to_hash);
    }
    walk
}

#[cfg(test)]
pub(super) fn notes(cursor: &Cursor, jobs: Vec<Job>) -> Vec<Document> {
    walk(cursor, jobs, 0).notes
}

#[cfg(test)]
mod tests {
    use super::super::domain::{Mode, job_id};
    use super::*;

    fn cursor(done_before: u64, hash: Option<&str>) -> Cursor {
        Cursor {
            source: "s".to_owned(),
            next_block: 1000,
            done_before,
            done_hash: hash.map(str::to_owned),
            epoch: 0,
            undoing: None,
            events: 5,
            head: 1000,
            mode: Mode::Historical,
            indexed: false,
            sampled_at_ms: 0,
            sampled_block: 0,
            rate: 0,
            address_version: 0,
            address_floor: 1,
        }
    }

    fn job(from: u64, to: u64, status: Status) -> Job {
        Job {
            id: job_id("s", from),
            source: "s".to_owned(),
            from,
            to,
            status,
            fence: 1,
            attempts: 1,
            worker: String::new(),
            error: String::new(),
            count: 2,
            parent_hash: format!("h{}", from.wrapping_sub(1)),
            to_hash: format!("h{to}"),
            hashes: Vec::new(),
            before: None,
            address_version: 0,
            reopened: false,
            exact: false,
        }
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
        assert_eq!(walked.notes.len(), 2);
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
