//! How far sources are, and fresh attempts for ranges that used theirs up.

use std::collections::HashMap;

use proto::indexer::v1 as pb;

use crate::range::{Cursor, Mode, RangeRepo};
use crate::source::Source;
use crate::store::{Store, StoreError};

/// Exhausted ranges shown for one source.
const MAX_EXHAUSTED: i64 = 100;

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
            all.push(progress(cursor, exhausted.collect()));
        }
        Ok(all)
    }

    pub(crate) async fn requeue(&self, source: &Source, from_block: u64) -> Result<u32, StoreError> {
        let requeued = self.ranges.requeue(source.name(), from_block).await?;
        Ok(u32::try_from(requeued).unwrap_or(u32::MAX))
    }
}

fn progress(cursor: &Cursor, exhausted: Vec<pb::ExhaustedRange>) -> pb::Progress {
    let lag = cursor.lag();
    // Blocks per 1000 s; a source at the head has no time left, and one that stands still has no end in sight.
    let left = if lag == 0 || cursor.rate == 0 {
        None
    } else {
        Some(lag.saturating_mul(1000).div_ceil(cursor.rate))
    };
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
        blocks_per_second: cursor.rate / 1000,
        events: cursor.events,
        time_left: match (lag, seconds) {
            (0, _) => Some(prost_types::Duration { seconds: 0, nanos: 0 }),
            (_, Some(seconds)) => Some(prost_types::Duration { seconds, nanos: 0 }),
            (_, None) => None,
        },
        exhausted,
    }
}
