//! How far sources are, and fresh attempts for ranges that used theirs up.

use std::collections::HashMap;

use proto::indexer::v1 as pb;

use crate::range::{Cursor, Mode, RangeRepo};
use crate::source::Source;
use crate::store::{Store, StoreError};

/// A rate that was measured longer ago than this says nothing: the source stands still.
const STALE_MS: i64 = 180_000;
/// Exhausted ranges shown for one source.
const MAX_EXHAUSTED: i64 = 100;
/// Ranges that are tried again, shown for one source: the lowest hold up the rest.
const MAX_RETRIED: i64 = 5;

#[derive(Debug, Clone)]
pub(crate) struct Progressing {
    ranges: RangeRepo,
}

impl Progressing {
    pub(crate) fn new(store: Store) -> Self {
        Self { ranges: RangeRepo::new(store) }
    }

    /// The progress of these sources, in their order.
    pub(crate) async fn of(&self, sources: &[Source]) -> Result<Vec<pb::Progress>, StoreError> {
        let cursors = self.ranges.cursors().await?;
        let cursors: HashMap<String, Cursor> = cursors.into_iter().map(|c| (c.source.clone(), c)).collect();
        let now_ms = chrono::Utc::now().timestamp_millis();
        let mut all = Vec::with_capacity(sources.len());
        for source in sources {
            let Some(cursor) = cursors.get(source.name()) else { continue };
            let exhausted = self.ranges.exhausted(source.name(), MAX_EXHAUSTED).await?;
            let exhausted = exhausted.into_iter().map(|job| pb::ExhaustedRange {
                from_block: job.from,
                to_block: job.to,
                attempts: job.attempts,
                error: job.error,
            });
            let retried = self.ranges.retried(source.name(), MAX_RETRIED).await?;
            let retried = retried.into_iter().map(|job| pb::RetriedRange {
                from_block: job.from,
                to_block: job.to,
                attempts: job.attempts,
                error: job.error,
            });
            let told = progress(cursor, now_ms);
            all.push(pb::Progress { exhausted: exhausted.collect(), retried: retried.collect(), ..told });
        }
        Ok(all)
    }

    pub(crate) async fn requeue(&self, source: &Source, from_block: u64) -> Result<u32, StoreError> {
        let requeued = self.ranges.requeue(source.name(), from_block).await?;
        Ok(u32::try_from(requeued).unwrap_or(u32::MAX))
    }
}

fn progress(cursor: &Cursor, now_ms: i64) -> pb::Progress {
    let lag = cursor.lag();
    // Blocks per 1000 s; a source at the head has no time left, and one that stands still has no end in sight.
    let stands = lag > 0 && now_ms.saturating_sub(cursor.sampled_at_ms) > STALE_MS;
    let rate = if stands { 0 } else { cursor.rate };
    let left = if lag == 0 || rate == 0 { None } else { Some(lag.saturating_mul(1000).div_ceil(rate)) };
    let seconds = left.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
    let mode = match cursor.mode {
        Mode::Historical => pb::Mode::Historical,
        Mode::Realtime => pb::Mode::Realtime,
    };
    pb::Progress {
        source: cursor.source.clone(),
        complete_to_block: cursor.done_before.saturating_sub(1),
        head_block: cursor.head,
        lag_blocks: lag,
        mode: mode.into(),
        blocks_per_second: rate / 1000,
        events: cursor.events,
        time_left: match (lag, seconds) {
            (0, _) => Some(prost_types::Duration { seconds: 0, nanos: 0 }),
            (_, Some(seconds)) => Some(prost_types::Duration { seconds, nanos: 0 }),
            (_, None) => None,
        },
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_stands_still_has_no_end_in_sight() {
        let cursor = Cursor {
            source: "s".to_owned(),
            next_block: 200,
            done_before: 100,
            done_hash: None,
            epoch: 0,
            undoing: None,
            events: 5,
            head: 1_099,
            mode: Mode::Historical,
            indexed: false,
            sampled_at_ms: 1_000_000,
            sampled_block: 100,
            rate: 50_000,
            address_version: 0,
            address_floor: 1,
        };
        let moving = progress(&cursor, 1_002_000);
        assert_eq!((moving.blocks_per_second, moving.time_left.map(|left| left.seconds)), (50, Some(20)));
        let standing = progress(&cursor, 1_000_000 + STALE_MS + 1);
        assert_eq!((standing.blocks_per_second, standing.time_left), (0, None));
        let there = progress(&Cursor { head: 99, ..cursor }, i64::MAX);
        assert_eq!((there.lag_blocks, there.time_left.map(|left| left.seconds)), (0, Some(0)));
    }
}
