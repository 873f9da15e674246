//! New heads: which watched transactions they hold, and which blocks a reorganisation undid.
//!
//! Cost: one read per new block, and one lookup of its hashes in the table of watched transactions, however many watches
//! there are.

use std::collections::{BTreeMap, BTreeSet};

use chain::follow::{Step, follow};
use chain::{Agreement, Detail, HeadRing};
use payment::BlockRef;
use telemetry::crash_point;
use types::TxHash;

use super::chain_loop::ChainLoop;
use super::leased::Leased;
use super::{as_gauge, count};
use crate::error::Error;
use crate::heads::repo as heads;
use crate::verdict::Evidence;
use crate::watch::Event;
use crate::watch::repo::{schedule, transactions};

/// An empty ring begins this far below the final block, so that a reorganisation of final blocks is recognised as one.
const BEGIN_BELOW: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// The canonical chain changed.
    pub(super) moved: bool,
    pub(super) caught_up: bool,
}

/// Changes of the canonical chain in one tick. A block that was both appended and undone in it is in neither part.
#[derive(Debug)]
struct Changes {
    undone: BTreeMap<TxHash, u64>,
    appended: Vec<(BlockRef, Vec<TxHash>)>,
    /// Everything stored below this number is unchanged.
    from: u64,
}

impl ChainLoop {
    pub(super) async fn follow(&self, leased: &mut Leased) -> Result<Followed, Error> {
        let start = self.start(leased).await?;
        let mut ring = leased.ring.clone();
        let batch = self.context.follow.batch_blocks;
        let reading = follow(&*self.edge, &mut ring, start, Detail::Hashes, batch);
        let followed = self.query(leased, reading).await??;
        let chain = &self.settings.name;
        if let Some(lowest) = followed.lost {
            return self.lost(leased, lowest.number).await;
        }
        let behind = ring.tip().map_or(0, |tip| followed.tip.number.saturating_sub(tip.number));
        if behind > self.context.follow.max_gap_blocks {
            tracing::warn!(%chain, behind, "too far behind to read every block; looking open watches up instead");
            self.restart(leased, None).await?;
            return Ok(Followed { moved: true, caught_up: false });
        }
        if followed.steps.is_empty() {
            return Ok(Followed { moved: false, caught_up: followed.caught_up });
        }
        let changes = changes(followed.steps, &ring);
        self.write_changes(leased, &ring, changes).await?;
        leased.ring = ring;
        if let Some(tip) = leased.ring.tip() {
            metrics::gauge!("bursar_confirmation_head_number", "chain" => chain.to_string())
                .set(as_gauge(tip.number));
        }
        Ok(Followed { moved: true, caught_up: followed.caught_up })
    }

    /// A node has another chain than the whole ring. It is a reorganisation only if the nodes agree on it: one node alone may
    /// be on a branch of its own, or lie, and is then ignored.
    async fn lost(&self, leased: &mut Leased, lowest: u64) -> Result<Followed, Error> {
        let agreed = match self.query(leased, self.edge.finalized()).await?? {
            Agreement::Agreed { value, .. } => {
                leased.ring.is_canonical(value.number, &value.hash) != Some(true)
            }
            Agreement::Disagreed { .. } | Agreement::TooFew { .. } => false,
        };
        if agreed {
            let reason = format!(
                "the chain differs from everything remembered, down to block {lowest}: a reorganisation deeper than {} blocks",
                leased.ring.len()
            );
            self.restart(leased, Some(&reason)).await?;
            return Ok(Followed { moved: true, caught_up: false });
        }
        let chain = &self.settings.name;
        tracing::error!(%chain, lowest, "a node differs from everything remembered, and the nodes do not agree with it");
        metrics::counter!("bursar_confirmation_disagreements_total", "chain" => chain.to_string())
            .increment(1);
        self.delay_all(leased, "a node is on another chain than the one followed").await?;
        Ok(Followed { moved: false, caught_up: true })
    }

    /// Where an empty ring begins: a little below the final block if the nodes agree on one, otherwise below the tip. Older
    /// transactions are found by looking watches up.
    async fn start(&self, leased: &mut Leased) -> Result<u64, Error> {
        if leased.ring.tip().is_some() {
            return Ok(0);
        }
        let begin = match self.query(leased, self.edge.finalized()).await?? {
            Agreement::Agreed { value, .. } => value.number,
            Agreement::Disagreed { .. } | Agreement::TooFew { .. } => {
                self.query(leased, self.edge.head()).await??.number
            }
        };
        Ok(begin.saturating_sub(BEGIN_BELOW))
    }

    /// Clears the ring, so that every open watch is looked up again. With a reason, verdicts stop until an operator resumes.
    async fn restart(&self, leased: &mut Leased, halt: Option<&str>) -> Result<(), Error> {
        let chain = &self.settings.name;
        let mut tx = self.begin(leased).await?;
        if let Some(reason) = halt {
            tracing::error!(%chain, reason, "chain halted");
            heads::halt_in(tx.connection(), chain, reason).await?;
        }
        heads::clear_ring_in(tx.connection(), chain).await?;
        schedule::make_all_due_in(tx.connection(), chain).await?;
        tx.commit(leased).await?;
        leased.halted |= halt.is_some();
        leased.ring = HeadRing::new(self.ring_capacity());
        Ok(())
    }

    async fn write_changes(
        &self,
        leased: &mut Leased,
        ring: &HeadRing,
        changes: Changes,
    ) -> Result<(), Error> {
        let chain = &self.settings.name;
        let included: BTreeMap<TxHash, BlockRef> = changes
            .appended
            .iter()
            .flat_map(|(block, hashes)| hashes.iter().map(|hash| (*hash, *block)))
            .collect();
        let mut tx = self.begin(leased).await?;
        let undone = transactions::undo_in(tx.connection(), chain, &changes.undone).await?;
        let seen = transactions::find_included_in(tx.connection(), chain, &included).await?;
        let undone = undone.into_iter().map(|(job, block)| Evidence { job, event: Event::Undone { block } });
        let evidence: Vec<Evidence> = undone.chain(seen.into_iter().map(Evidence::from)).collect();
        let has_evidence = !evidence.is_empty();
        let findings = self.record_in(&mut tx, evidence).await?;
        heads::save_ring_in(tx.connection(), chain, ring, changes.from).await?;
        if has_evidence {
            crash_point("confirmation.before_sighting");
        }
        tx.commit(leased).await?;
        if has_evidence {
            crash_point("confirmation.after_sighting");
        }
        if !changes.undone.is_empty() {
            let (blocks, reopened) = (changes.undone.len(), count(&findings, "reopened"));
            tracing::warn!(%chain, blocks, reopened, "reorganisation");
            metrics::counter!("bursar_confirmation_reorgs_total", "chain" => chain.to_string()).increment(1);
            metrics::histogram!("bursar_confirmation_reorg_blocks", "chain" => chain.to_string())
                .record(f64::from(u32::try_from(blocks).unwrap_or(u32::MAX)));
        }
        Ok(())
    }
}

fn changes(steps: Vec<Step>, ring: &HeadRing) -> Changes {
    let mut changes = Changes { undone: BTreeMap::new(), appended: Vec::new(), from: u64::MAX };
    let mut new: BTreeSet<TxHash> = BTreeSet::new();
    for step in steps {
        match step {
            Step::Undone(reorg) => {
                changes.from = changes.from.min(reorg.fork.number + 1);
                for head in reorg.undone {
                    // A block that was appended in this tick was never stored.
                    if !new.contains(&head.hash) {
                        changes.undone.insert(head.hash, head.number);
                    }
                }
            }
            Step::Appended(block) => {
                changes.from = changes.from.min(block.head.number);
                new.insert(block.head.hash);
                // A block that was undone and came back is as it was.
                changes.undone.remove(&block.head.hash);
                let hashes = block.transactions.iter().map(|tx| tx.hash).collect();
                changes.appended.push((block.head.into(), hashes));
            }
        }
    }
    changes.appended.retain(|(block, _)| ring.is_canonical(block.number, &block.hash) != Some(false));
    changes
}
