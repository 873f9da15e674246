//! Ranges, cursors and modes. No I/O.

use mongodb::bson::DateTime;
use serde::{Deserialize, Serialize};

/// How a source reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Historical,
    Realtime,
}

impl Mode {
    /// Changes with hysteresis: `Realtime` within one batch of the head, `Historical` again five batches behind it.
    #[must_use]
    pub(crate) fn by_lag(self, lag: u64, batch: u64) -> Self {
        match self {
            Self::Historical if lag <= batch => Self::Realtime,
            Self::Realtime if lag >= batch.saturating_mul(5) => Self::Historical,
            unchanged => unchanged,
        }
    }
}

/// A block whose events were undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoneBlock {
    pub(crate) number: u64,
    pub(crate) hash: String,
}

/// A reorganisation, from its detection until everything it undid is deleted; then it moves to the collection `reorgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Undoing {
    pub(crate) epoch: i64,
    /// The last block that both branches share; -1 when there is none.
    pub(crate) fork: i64,
    /// First block of the lowest range to be read again.
    pub(crate) from: u64,
    /// Hash of the block before `from`.
    pub(crate) parent_hash: Option<String>,
    /// Number of events before `from`.
    pub(crate) before: u64,
    /// Blocks whose events watchers may have seen, newest first.
    pub(crate) undone: Vec<UndoneBlock>,
}

/// A call that is adding addresses right now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Adding {
    pub(crate) call: i64,
}

/// How far a source is: one document in `lastBlock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cursor {
    #[serde(rename = "_id")]
    pub(crate) source: String,
    pub(crate) chain_id: u64,
    /// First block that no job has.
    pub(crate) next_block: u64,
    /// Everything before this block is stored.
    pub(crate) done_before: u64,
    /// Hash of the last block before `done_before`.
    pub(crate) done_hash: Option<String>,
    /// Grows with each reorganisation that undid something.
    pub(crate) epoch: i64,
    /// The reorganisation that is being undone.
    pub(crate) undoing: Option<Undoing>,
    /// Number of events before `done_before`.
    pub(crate) events: u64,
    /// The chain's newest block as last seen.
    pub(crate) head: u64,
    pub(crate) mode: Mode,
    /// Whether the source ever reached the head, so that the indexes for filters exist.
    #[serde(default)]
    pub(crate) indexed: bool,
    /// When and where the rate was last measured.
    pub(crate) sampled_at: DateTime,
    pub(crate) sampled_block: u64,
    /// Blocks per 1000 s.
    pub(crate) rate: u64,
    /// Version of the source's addresses that finished ranges must have been read with.
    #[serde(default)]
    pub(crate) address_version: i64,
    #[serde(default)]
    pub(crate) adding: Vec<Adding>,
}

impl Cursor {
    /// The cursor of a source that has read nothing.
    pub(crate) fn new(source: &str, chain_id: u64, start: u64) -> Self {
        Self {
            source: source.to_owned(),
            chain_id,
            next_block: start,
            done_before: start,
            done_hash: None,
            epoch: 0,
            undoing: None,
            events: 0,
            head: 0,
            mode: Mode::Historical,
            indexed: false,
            sampled_at: DateTime::now(),
            sampled_block: start,
            rate: 0,
            address_version: 0,
            adding: Vec::new(),
        }
    }

    /// Blocks between what is complete and the head.
    pub(crate) fn lag(&self) -> u64 {
        self.head.saturating_add(1).saturating_sub(self.done_before)
    }

    /// Addresses that were possibly not stored yet when the cursor was read have this version or a later one.
    pub(crate) fn address_floor(&self) -> i64 {
        let calls = self.adding.iter().map(|adding| adding.call);
        calls.min().unwrap_or(self.address_version.saturating_add(1))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Waits for a worker.
    Pending,
    /// A worker has it until its lease ends.
    Processing,
    /// An attempt failed; it is retried when it is due.
    Failed,
    /// Read, stored and in the ledger.
    Completed,
    /// Used up its attempts; an operator has to act.
    Exhausted,
}

/// A range: one document in `blockJobs`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Job {
    #[serde(rename = "_id")]
    pub(crate) id: String,
    pub(crate) source: String,
    #[serde(rename = "fromBlock")]
    pub(crate) from: u64,
    #[serde(rename = "toBlock")]
    pub(crate) to: u64,
    pub(crate) status: Status,
    pub(crate) fence: i64,
    pub(crate) attempts: u32,
    #[serde(default)]
    pub(crate) error: String,
    #[serde(default)]
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) parent_hash: String,
    #[serde(default)]
    pub(crate) to_hash: String,
    /// Hashes of the blocks that were not final when they were read, oldest first, ending with the last of the range.
    #[serde(default)]
    pub(crate) hashes: Vec<String>,
    /// Number of the source's events before this range; known once the range is part of the unbroken run.
    pub(crate) before: Option<u64>,
    #[serde(default)]
    pub(crate) address_version: i64,
    /// Whether an earlier attempt may have stored events of this range.
    #[serde(default)]
    pub(crate) reopened: bool,
    /// Whether stored events may belong to another branch, so that they must be deleted when the range is read again.
    #[serde(default)]
    pub(crate) exact: bool,
}

impl Job {
    /// Whether an earlier attempt may have stored some of its events.
    pub(crate) fn tried_before(&self) -> bool {
        self.attempts > 1 || self.reopened
    }

    /// Whether its events may be written as they arrive: all of its blocks are final, and nothing of another branch is stored.
    pub(crate) fn is_settled(&self, head: u64, finality_blocks: u64) -> bool {
        self.to.saturating_add(finality_blocks) <= head && !self.exact
    }

    /// The hash of a block of this range, if the ledger has it.
    pub(crate) fn hash_of(&self, block: u64) -> Option<&str> {
        let from_end = usize::try_from(self.to.checked_sub(block)?).ok()?;
        let place = self.hashes.len().checked_sub(from_end + 1)?;
        self.hashes.get(place).map(String::as_str)
    }
}

/// The id of a range; ids sort by source and first block.
pub(crate) fn range_id(source: &str, from: u64) -> String {
    format!("{source}/{from:020}")
}

/// What the ledger records of a finished range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
pub(crate) mod testing {
    use super::*;

    /// A range of source `s` with two events, read from a chain whose block hashes are `h` and the number.
    pub(crate) fn job(from: u64, to: u64, status: Status) -> Job {
        Job {
            id: range_id("s", from),
            source: "s".to_owned(),
            from,
            to,
            status,
            fence: 1,
            attempts: 1,
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
        assert!(range_id("a", 99) < range_id("a", 100));
        assert!(range_id("a", u64::MAX) < range_id("b", 0));
    }

    #[test]
    fn hashes_of_the_last_blocks_are_found_by_number() {
        let hashes = vec!["h13".to_owned(), "h14".to_owned()];
        let job = Job { hashes, ..testing::job(10, 14, Status::Completed) };
        assert_eq!((job.hash_of(14), job.hash_of(13), job.hash_of(12)), (Some("h14"), Some("h13"), None));
        assert_eq!(job.hash_of(15), None);
    }
}
