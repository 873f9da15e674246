//! How far sources are, and new attempts for parked ranges.

use std::collections::HashMap;

use proto::indexer::v1 as pb;

use crate::range::{Cursor, Mode, RangeRepo};
use crate::source::Source;
use crate::store::{Store, StoreError};

/// A rate that was measured longer ago than this does not count: the source is not moving.
const STALE_MS: i64 = 180_000;
/// Parked ranges shown for one source.
const MAX_EXHAUSTED: i64 = 100;
/// Retried ranges shown for one source; the lowest hold up the rest.
const MAX_RETRIED: i64 = 5;

#[derive(Debug, Clone)]
pub(crate) struct ProgressReader {
    ranges: RangeRepo,
}

impl ProgressReader {
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
            let (exhausted, retried) = (exhausted.collect(), retried.collect());
            all.push(pb::Progress { exhausted, retried, ..progress(cursor, now_ms) });
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
    // A source that does not move has no estimate of the time left.
    let stalled = lag > 0 && now_ms.saturating_sub(cursor.sampled_at.timestamp_millis()) > STALE_MS;
    let rate = if stalled { 0 } else { cursor.rate };
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
    fn a_source_that_does_not_move_has_no_estimate() {
        let sampled_at = mongodb::bson::DateTime::from_millis(1_000_000);
        let cursor = Cursor { head: 1_099, sampled_at, rate: 50_000, ..Cursor::new("s", 1, 100) };
        let moving = progress(&cursor, 1_002_000);
        assert_eq!((moving.blocks_per_second, moving.time_left.map(|left| left.seconds)), (50, Some(20)));
        let stalled = progress(&cursor, 1_000_000 + STALE_MS + 1);
        assert_eq!((stalled.blocks_per_second, stalled.time_left), (0, None));
        let there = progress(&Cursor { head: 99, ..cursor }, i64::MAX);
        assert_eq!((there.lag_blocks, there.time_left.map(|left| left.seconds)), (0, Some(0)));
    }
}
