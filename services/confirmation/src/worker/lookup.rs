//! Watches that were just added may already be in a block, and ones that wait for long may have been missed: each is
//! looked up once, then again after every stuck interval. What is still waiting then is reported as stuck, or says itself that
//! nothing can ever be done about it.
//!
//! A look-up that finds nothing changes nothing but its own due time.

use std::collections::HashMap;
use std::time::Duration;

use chain::Seen;
use chrono::TimeDelta;
use payment::BlockRef;
use sqlx::Row as _;
use types::{JobId, TxHash};

use super::chain_loop::{ChainLoop, Held, LoopError};
use super::follow::place_in;
use crate::watch::evidence::{self, Evidence};
use crate::watch::{Event, WatchError, repo};

/// Watches looked up in one tick.
const BATCH: i64 = 500;
/// When not every node answered, or one is ahead of our own view.
const SOON: Duration = Duration::from_secs(2);
/// On chains where nothing is ever reported as stuck.
const WITHOUT_LIMIT: Duration = Duration::from_secs(300);
/// Said of what another system sent, once it is overdue: nobody can offer more for it, and nothing will ever rule it out.
const UNBOUND: &str =
    "neither its nonce nor an expiration is known here: nothing can show that it will never land";

struct Due {
    job: JobId,
    version: i64,
    waited: TimeDelta,
    /// Of the present round, oldest first.
    hashes: Vec<TxHash>,
    /// Whether its nonce or its end is known.
    is_bound: bool,
}

/// What looking up found for one watch.
enum Found {
    Included(TxHash, BlockRef),
    Nothing { complete: bool },
}

impl ChainLoop {
    /// Whether there is more to look up at once.
    pub(super) async fn look_up(&self, held: &mut Held) -> Result<bool, LoopError> {
        let due = self.due().await?;
        if due.is_empty() {
            return Ok(false);
        }
        let all: Vec<TxHash> = due.iter().flat_map(|due| due.hashes.iter().copied()).collect();
        let sightings = self.while_asking(held, self.edge.lookup(&all)).await??;
        let seen: HashMap<TxHash, (Seen, bool)> = sightings
            .into_iter()
            .map(|sighting| (sighting.hash, (sighting.seen, sighting.answered == sighting.asked)))
            .collect();
        let (mut events, mut places, mut next) = (Vec::new(), Vec::new(), Vec::with_capacity(due.len()));
        let mut delayed = Vec::new();
        let stuck_after = self.settings.stuck_after;
        for Due { job, version, waited, hashes, is_bound } in &due {
            let complete = match found(hashes, &seen, held) {
                Found::Included(tx, block) => {
                    events.push(Evidence { job: *job, event: Event::Seen { tx, block } });
                    places.push((tx, block, *job));
                    continue;
                }
                Found::Nothing { complete } => complete,
            };
            let overdue =
                stuck_after.is_some_and(|after| waited.to_std().is_ok_and(|waited| waited >= after));
            if overdue && !is_bound {
                delayed.push((*job, UNBOUND.to_owned()));
            } else if overdue
                && !held.halted
                && let Some(newest) = hashes.last()
            {
                let event = Event::Overdue { newest: *newest, waited: *waited };
                events.push(Evidence { job: *job, event });
            }
            let interval = stuck_after.unwrap_or(WITHOUT_LIMIT);
            next.push((*job, *version, if complete || overdue { interval } else { SOON.min(interval) }));
        }
        let chain = &self.settings.name;
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        place_in(&mut tx, chain, &places).await?;
        sqlx::query(include_str!("../../queries/lookup_next.sql"))
            .bind(next.iter().map(|(job, ..)| job.as_uuid()).collect::<Vec<_>>())
            .bind(next.iter().map(|(_, version, _)| *version).collect::<Vec<_>>())
            .bind(
                next.iter()
                    .map(|(.., after)| i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
                    .collect::<Vec<_>>(),
            )
            .execute(&mut *tx)
            .await?;
        evidence::record_in(&mut tx, &self.parts.key, fence.now, events).await?;
        repo::set_delayed_in(&mut tx, chain, &delayed).await?;
        tx.commit().await?;
        held.note(fence);
        // Something may be below the final block already.
        if !places.is_empty() {
            held.settle_at = std::time::Instant::now();
        }
        Ok(i64::try_from(due.len()).is_ok_and(|count| count >= BATCH))
    }

    async fn due(&self) -> Result<Vec<Due>, WatchError> {
        let rows = sqlx::query(include_str!("../../queries/lookup_due.sql"))
            .bind(self.settings.name.as_str())
            .bind(BATCH)
            .fetch_all(&self.parts.pool)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Due {
                    job: JobId::from_uuid(row.try_get("job_id")?),
                    version: row.try_get("version")?,
                    waited: TimeDelta::milliseconds(row.try_get("waited_ms")?),
                    hashes: row.try_get::<Vec<[u8; 32]>, _>("hashes")?.into_iter().map(TxHash).collect(),
                    is_bound: row.try_get("is_bound")?,
                })
            })
            .collect()
    }
}

fn found(hashes: &[TxHash], seen: &HashMap<TxHash, (Seen, bool)>, held: &Held) -> Found {
    let mut complete = true;
    for hash in hashes {
        match seen.get(hash) {
            Some((Seen::Included(block), _)) => {
                let above = held.ring.tip().is_none_or(|tip| block.number > tip.number);
                let elsewhere = held.ring.is_canonical(block.number, &block.hash) == Some(false);
                if !above && !elsewhere {
                    return Found::Included(*hash, *block);
                }
                // A block we have not read yet will be read; one on another branch proves nothing.
                complete = false;
            }
            Some((Seen::Nowhere | Seen::Pending, whole)) => complete &= whole,
            None => complete = false,
        }
    }
    Found::Nothing { complete }
}
