//! What a range, a cursor and a mode are. No I/O.

use mongodb::bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::store::block;

/// How a source reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Historical,
    Realtime,
}

impl Mode {
    /// With hysteresis: at the head within one range, behind again at five.
    #[must_use]
    pub(crate) fn by_lag(self, lag: u64, batch: u64) -> Self {
        match self {
            Self::Historical if lag <= batch => Self::Realtime,
            Self::Realtime if lag >= batch.saturating_mul(5) => Self::Historical,
            unchanged => unchanged,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Historical => "historical",
            Self::Realtime => "realtime",
        }
    }
}

/// A block whose events were undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoneBlock {
    pub(crate) number: i64,
    pub(crate) hash: String,
}

/// A reorganisation, from when it is noticed until everything it undid is gone; then it moves to `reorgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Undoing {
    pub(crate) epoch: i64,
    /// The last block that both branches share; -1 when there is none.
    pub(crate) fork: i64,
    /// First block of the lowest range to be read again, the hash before it, and the events before it.
    pub(crate) from: i64,
    pub(crate) parent_hash: Option<String>,
    pub(crate) before: i64,
    /// Blocks whose events watchers may have seen, newest first.
    pub(crate) undone: Vec<UndoneBlock>,
}

/// A call that is adding addresses right now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Adding {
    pub(crate) call: i64,
}

/// Where a source stands: one document in `lastBlock`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CursorDoc {
    #[serde(rename = "_id")]
    pub(crate) source: String,
    pub(crate) chain_id: i64,
    /// First block that no job has.
    pub(crate) next_block: i64,
    /// Everything before this block is stored.
    pub(crate) done_before: i64,
    /// Hash of the last block of that.
    pub(crate) done_hash: Option<String>,
    /// Grows with each reorganisation that undid something.
    pub(crate) epoch: i64,
    /// The reorganisation that is being undone.
    pub(crate) undoing: Option<Undoing>,
    /// Events before `done_before`.
    pub(crate) events: i64,
    /// The chain's newest block as last seen.
    pub(crate) head: i64,
    pub(crate) mode: Mode,
    /// Whether it ever was at the head; then the indexes for filters are there.
    #[serde(default)]
    pub(crate) indexed: bool,
    /// When and where the rate was last measured, and what it was in blocks per 1000 s.
    pub(crate) sampled_at: DateTime,
    pub(crate) sampled_block: i64,
    pub(crate) rate: i64,
    /// Version of the source's addresses under which a finished range counts.
    #[serde(default)]
    pub(crate) address_version: i64,
    #[serde(default)]
    pub(crate) adding: Vec<Adding>,
}

/// Where a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) source: String,
    pub(crate) next_block: u64,
    pub(crate) done_before: u64,
    pub(crate) done_hash: Option<String>,
    pub(crate) epoch: i64,
    pub(crate) undoing: Option<Undoing>,
    pub(crate) events: u64,
    pub(crate) head: u64,
    pub(crate) mode: Mode,
    pub(crate) indexed: bool,
    pub(crate) sampled_at_ms: i64,
    pub(crate) sampled_block: u64,
    /// Blocks per 1000 s.
    pub(crate) rate: u64,
    pub(crate) address_version: i64,
    /// Addresses that may not have been there yet when this was read bear this version or a later one.
    pub(crate) address_floor: i64,
}

impl From<CursorDoc> for Cursor {
    fn from(doc: CursorDoc) -> Self {
        Self {
            source: doc.source,
            next_block: block(doc.next_block),
            done_before: block(doc.done_before),
            done_hash: doc.done_hash,
            epoch: doc.epoch,
            undoing: doc.undoing,
            events: block(doc.events),
            head: block(doc.head),
            mode: doc.mode,
            indexed: doc.indexed,
            sampled_at_ms: doc.sampled_at.timestamp_millis(),
            sampled_block: block(doc.sampled_block),
            rate: block(doc.rate),
            address_version: doc.address_version,
            address_floor: doc
                .adding
                .iter()
                .map(|adding| adding.call)
                .min()
                .unwrap_or(doc.address_version.saturating_add(1)),
        }
    }
}

impl Cursor {
    /// Blocks between what is complete and the head.
    pub(crate) fn lag(&self) -> u64 {
        self.head.saturating_add(1).saturating_sub(self.done_before)
    }
}

/// What becomes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Waits for a worker.
    Pending,
    /// A worker has it until its lease ends.
    Processing,
    /// An attempt failed; it is tried again when it is due.
    Failed,
    /// Read, stored and in the ledger.
    Completed,
    /// Used up its attempts; needs a person.
    Exhausted,
}

/// A range: one document in `blockJobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobDoc {
    #[serde(rename = "_id")]
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) from_block: i64,
    pub(crate) to_block: i64,
    pub(crate) status: Status,
    pub(crate) fence: i64,
    pub(crate) attempts: i64,
    #[serde(default)]
    pub(crate) worker: String,
    #[serde(default)]
    pub(crate) error: String,
    #[serde(default)]
    pub(crate) count: i64,
    #[serde(default)]
    pub(crate) parent_hash: String,
    #[serde(default)]
    pub(crate) to_hash: String,
    /// Hashes of the blocks that were not final when they were read, oldest first, ending with the last of the range.
    #[serde(default)]
    pub(crate) hashes: Vec<String>,
    /// Events of the source before this range; known once the range is part of the unbroken run.
    pub(crate) before: Option<i64>,
    #[serde(default)]
    pub(crate) address_version: i64,
    /// Whether anything was ever written for this range: then events of an earlier attempt may be there.
    #[serde(default)]
    pub(crate) reopened: bool,
    /// Whether what is stored for it may be of another branch and must go when it is read again.
    #[serde(default)]
    pub(crate) exact: bool,
}

/// A range in somebody's hands, or in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) status: Status,
    pub(crate) fence: i64,
    pub(crate) attempts: u32,
    pub(crate) worker: String,
    pub(crate) error: String,
    pub(crate) count: u64,
    pub(crate) parent_hash: String,
    pub(crate) to_hash: String,
    pub(crate) hashes: Vec<String>,
    pub(crate) before: Option<u64>,
    pub(crate) address_version: i64,
    pub(crate) reopened: bool,
    pub(crate) exact: bool,
}

impl From<JobDoc> for Job {
    fn from(doc: JobDoc) -> Self {
        Self {
            id: doc.id,
            source: doc.source,
            from: block(doc.from_block),
            to: block(doc.to_block),
            status: doc.status,
            fence: doc.fence,
            attempts: u32::try_from(doc.attempts).unwrap_or(0),
            worker: doc.worker,
            error: doc.error,
            count: block(doc.count),
            parent_hash: doc.parent_hash,
            to_hash: doc.to_hash,
            hashes: doc.hashes,
            before: doc.before.map(block),
            address_version: doc.address_version,
            reopened: doc.reopened,
            exact: doc.exact,
        }
    }
}

impl Job {
    /// Whether an earlier attempt may have stored some of its events.
    pub(crate) fn tried_before(&self) -> bool {
        self.attempts > 1 || self.reopened
    }

    /// Whether its events may be written as they come: all of its blocks are final, and nothing of another branch is stored.
    pub(crate) fn is_settled(&self, head: u64, finality_blocks: u64) -> bool {
        self.to.saturating_add(finality_blocks) <= head && !self.exact
    }

    /// The hash of a block of this range, where the ledger has it.
    pub(crate) fn hash_of(&self, block: u64) -> Option<&str> {
        let from_end = usize::try_from(self.to.checked_sub(block)?).ok()?;
        let place = self.hashes.len().checked_sub(from_end + 1)?;
        self.hashes.get(place).map(String::as_str)
    }
}

/// The id of a range: sorts by source and first block.
pub(crate) fn job_id(source: &str, from: u64) -> String {
    format!("{source}/{from:020}")
}

/// What the ledger records of a finished range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) parent_hash: String,
    pub(crate) from_hash: String,
    pub(crate) to_hash: String,
    /// Seconds.
    pub(crate) from_time: u64,
    pub(crate) to_time: u64,
    pub(crate) count: u64,
    /// Hashes of blocks that are not final yet.
    pub(crate) hashes: Vec<String>,
    pub(crate) address_version: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_changes_with_hysteresis() {
        use Mode::{Historical, Realtime};
        let table = [
            (Historical, 0, Realtime),
            (Historical, 100, Realtime),
            (Historical, 101, Historical),
            (Historical, 10_000, Historical),
            (Realtime, 0, Realtime),
            (Realtime, 101, Realtime),
            (Realtime, 499, Realtime),
            (Realtime, 500, Historical),
            (Realtime, 10_000, Historical),
        ];
        for (mode, lag, expected) in table {
            assert_eq!(mode.by_lag(lag, 100), expected, "{mode:?} at lag {lag}");
        }
    }

    #[test]
    fn ids_of_ranges_sort_by_block() {
        assert!(job_id("a", 99) < job_id("a", 100));
        assert!(job_id("a", u64::MAX) < job_id("b", 0));
    }

    #[test]
    fn hashes_of_the_last_blocks_are_found_by_number() {
        let doc = JobDoc {
            id: job_id("a", 10),
            source: "a".to_owned(),
            from_block: 10,
            to_block: 14,
            status: Status::Completed,
            fence: 1,
            attempts: 1,
            worker: String::new(),
            error: String::new(),
            count: 0,
            parent_hash: String::new(),
            to_hash: "h14".to_owned(),
            hashes: vec!["h13".to_owned(), "h14".to_owned()],
            before: None,
            address_version: 0,
            reopened: false,
            exact: false,
        };
        let job = Job::from(doc);
        assert_eq!((job.hash_of(14), job.hash_of(13), job.hash_of(12)), (Some("h14"), Some("h13"), None));
        assert_eq!(job.hash_of(15), None);
    }
}
