//! New heads: which watched transactions they hold, and what a reorg undid.
//!
//! Cost: one read per new block, and one look-up of its hashes in the table of watched transactions. How many watches
//! there are does not matter.

use std::collections::{BTreeMap, BTreeSet};

use chain::follow::{Step, follow};
use chain::{Agreement, Detail, HeadRing};
use payment::BlockRef;
use sqlx::{PgConnection, Row as _};
use telemetry::crash_point;
use types::{ChainName, JobId, TxHash};

use super::chain_loop::{ChainLoop, Held, LoopError};
use crate::heads::repo as heads;
use crate::heads::repo::signed;
use crate::watch::evidence::{self, Evidence};
use crate::watch::{Event, WatchError};

/// An empty ring begins this far below the final block, so that a reorg of what is final is recognised as one.
const BEGIN_BELOW: u64 = 64;

/// What following found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// The canonical chain changed.
    pub(super) moved: bool,
    pub(super) caught_up: bool,
}

/// Changes of the canonical chain, put together: an undone block that came in the same look is in neither.
#[derive(Debug, Default)]
struct Changes {
    undone: BTreeMap<TxHash, u64>,
    appended: Vec<(BlockRef, Vec<TxHash>)>,
    /// Everything stored below this is as it was.
    from: u64,
}

impl ChainLoop {
    pub(super) async fn follow(&self, held: &mut Held) -> Result<Followed, LoopError> {
        let start = self.start(held).await?;
        let mut ring = held.ring.clone();
        let batch = self.parts.follow.batch_blocks;
        let reading = follow(&*self.edge, &mut ring, start, Detail::Hashes, batch);
        let followed = self.while_asking(held, reading).await??;
        let chain = &self.settings.name;
        if let Some(lowest) = followed.lost {
            return self.lost(held, lowest.number).await;
        }
        let behind = ring.tip().map_or(0, |tip| followed.tip.number.saturating_sub(tip.number));
        if behind > self.parts.follow.max_gap_blocks {
            tracing::warn!(%chain, behind, "too far behind to read every block; looking open watches up instead");
            self.restart(held, None).await?;
            return Ok(Followed { moved: true, caught_up: false });
        }
        if followed.steps.is_empty() {
            return Ok(Followed { moved: false, caught_up: followed.caught_up });
        }
        let changes = changes(followed.steps, &ring);
        self.write(held, &ring, changes).await?;
        held.ring = ring;
        if let Some(tip) = held.ring.tip() {
            metrics::gauge!("bursar_confirmation_head_number", "chain" => chain.to_string())
                .set(as_gauge(tip.number));
        }
        Ok(Followed { moved: true, caught_up: followed.caught_up })
    }

    /// A node has another chain than everything that is remembered. Only what the nodes agree on is a reorganisation; one node
    /// alone may be on a branch of its own, or lie, and then its word is passed over.
    async fn lost(&self, held: &mut Held, lowest: u64) -> Result<Followed, LoopError> {
        let agreed = match self.while_asking(held, self.edge.finalized()).await?? {
            Agreement::Agreed { value, .. } => {
                held.ring.is_canonical(value.number, &value.hash) != Some(true)
            }
            Agreement::Disagreed { .. } | Agreement::TooFew { .. } => false,
        };
        if agreed {
            let reason = format!(
                "the chain differs from everything remembered, down to block {lowest}: a reorganisation deeper than {} blocks",
                held.ring.len()
            );
            self.restart(held, Some(&reason)).await?;
            return Ok(Followed { moved: true, caught_up: false });
        }
        let chain = &self.settings.name;
        tracing::error!(%chain, lowest, "a node differs from everything remembered, and the nodes do not agree with it");
        metrics::counter!("bursar_confirmation_disagreements_total", "chain" => chain.to_string())
            .increment(1);
        self.delay_all(held, "a node is on another chain than the one followed").await?;
        Ok(Followed { moved: false, caught_up: true })
    }

    /// Where an empty ring begins: a little below the final block if one is agreed, otherwise below the tip. Older
    /// transactions are found by looking watches up.
    async fn start(&self, held: &mut Held) -> Result<u64, LoopError> {
        if held.ring.tip().is_some() {
            return Ok(0);
        }
        let begin = match self.while_asking(held, self.edge.finalized()).await?? {
            Agreement::Agreed { value, .. } => value.number,
            Agreement::Disagreed { .. } | Agreement::TooFew { .. } => {
                self.while_asking(held, self.edge.head()).await??.number
            }
        };
        Ok(begin.saturating_sub(BEGIN_BELOW))
    }

    /// Forgets the ring; everything open is looked up anew. With a reason, verdicts stop until a person has looked.
    async fn restart(&self, held: &mut Held, halt: Option<&str>) -> Result<(), LoopError> {
        let chain = &self.settings.name;
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        if let Some(reason) = halt {
            tracing::error!(%chain, reason, "chain halted");
            heads::halt_in(&mut tx, chain, reason).await?;
        }
        heads::clear_ring_in(&mut tx, chain).await?;
        sqlx::query("UPDATE watches SET check_due_at = now() WHERE chain = $1 AND status = 'waiting'")
            .bind(chain.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        held.note(fence);
        held.halted |= halt.is_some();
        held.ring = HeadRing::new(self.ring_capacity());
        Ok(())
    }

    async fn write(&self, held: &mut Held, ring: &HeadRing, changes: Changes) -> Result<(), LoopError> {
        let chain = &self.settings.name;
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        let mut events = undo_in(&mut tx, chain, &changes.undone).await?;
        events.extend(sight_in(&mut tx, chain, &changes.appended).await?);
        let sighted = !events.is_empty();
        let recorded = evidence::record_in(&mut tx, &self.parts.key, fence.now, events).await?;
        heads::save_ring_in(&mut tx, chain, ring, changes.from).await?;
        if sighted {
            crash_point("confirmation.before_sighting");
        }
        tx.commit().await?;
        if sighted {
            crash_point("confirmation.after_sighting");
        }
        held.note(fence);
        if !changes.undone.is_empty() {
            let (blocks, reopened) = (changes.undone.len(), recorded.count("reopened"));
            tracing::warn!(%chain, blocks, reopened, "reorganisation");
            metrics::counter!("bursar_confirmation_reorgs_total", "chain" => chain.to_string()).increment(1);
            metrics::histogram!("bursar_confirmation_reorg_blocks", "chain" => chain.to_string())
                .record(f64::from(u32::try_from(blocks).unwrap_or(u32::MAX)));
        }
        Ok(())
    }
}

fn changes(steps: Vec<Step>, ring: &HeadRing) -> Changes {
    let mut changes = Changes { from: u64::MAX, ..Changes::default() };
    let mut new: BTreeSet<TxHash> = BTreeSet::new();
    for step in steps {
        match step {
            Step::Undone(reorg) => {
                changes.from = changes.from.min(reorg.fork.number + 1);
                for head in reorg.undone {
                    // A block that came and went within this look was never stored.
                    if !new.contains(&head.hash) {
                        changes.undone.insert(head.hash, head.number);
                    }
                }
            }
            Step::Appended(block) => {
                changes.from = changes.from.min(block.head.number);
                new.insert(block.head.hash);
                // One that was undone and came back is as it was.
                changes.undone.remove(&block.head.hash);
                let hashes = block.transactions.iter().map(|tx| tx.hash).collect();
                changes.appended.push((block.head.into(), hashes));
            }
        }
    }
    changes.appended.retain(|(block, _)| ring.is_canonical(block.number, &block.hash) != Some(false));
    changes
}

/// Clears the sightings in undone blocks. What was final keeps its block: only agreement may contradict that.
async fn undo_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    undone: &BTreeMap<TxHash, u64>,
) -> Result<Vec<Evidence>, WatchError> {
    if undone.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(include_str!("../../queries/sightings_undo.sql"))
        .bind(chain.as_str())
        .bind(undone.values().map(|number| signed(*number)).collect::<Vec<_>>())
        .bind(undone.keys().map(|hash| hash.0.to_vec()).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    rows.iter()
        .map(|row| {
            let hash = TxHash(row.try_get("block_hash")?);
            let block = BlockRef { number: undone.get(&hash).copied().unwrap_or_default(), hash };
            Ok(Evidence { job: JobId::from_uuid(row.try_get("job_id")?), event: Event::Undone { block } })
        })
        .collect()
}

/// Finds watched transactions among those of new blocks and notes where they are.
async fn sight_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    appended: &[(BlockRef, Vec<TxHash>)],
) -> Result<Vec<Evidence>, WatchError> {
    let places: BTreeMap<TxHash, BlockRef> =
        appended.iter().flat_map(|(block, hashes)| hashes.iter().map(|hash| (*hash, *block))).collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let rows =
        sqlx::query("SELECT hash, job_id FROM watched_transactions WHERE chain = $1 AND hash = ANY($2)")
            .bind(chain.as_str())
            .bind(places.keys().map(|hash| hash.0.to_vec()).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
    let mut seen = Vec::with_capacity(rows.len());
    for row in &rows {
        let hash = TxHash(row.try_get("hash")?);
        if let Some(block) = places.get(&hash) {
            seen.push((hash, *block, JobId::from_uuid(row.try_get("job_id")?)));
        }
    }
    place_in(tx, chain, &seen).await?;
    Ok(seen.into_iter().map(|(tx, block, job)| Evidence { job, event: Event::Seen { tx, block } }).collect())
}

/// Notes in which block each transaction is. One that was final elsewhere must be judged again.
pub(super) async fn place_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    seen: &[(TxHash, BlockRef, JobId)],
) -> Result<(), WatchError> {
    if seen.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("../../queries/sightings_place.sql"))
        .bind(chain.as_str())
        .bind(seen.iter().map(|(hash, ..)| hash.0.to_vec()).collect::<Vec<_>>())
        .bind(seen.iter().map(|(_, block, _)| signed(block.number)).collect::<Vec<_>>())
        .bind(seen.iter().map(|(_, block, _)| block.hash.0.to_vec()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Gauges are floating point; block numbers fit exactly for as long as anybody will look.
pub(super) fn as_gauge(number: u64) -> f64 {
    number as f64
}
