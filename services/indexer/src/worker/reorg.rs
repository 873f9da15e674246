//! Detects reorganisations by comparing what was read with what is canonical now.
//!
//! Each round checks the last block of the unbroken run: every range is linked to the one before it by hash, so if that block is
//! canonical, all before it are. If it is not, the ledger is searched downwards for the last canonical block, and everything
//! above is undone. A node that does not have the block proves nothing.

use chain::NodeError;

use super::context::SourceContext;
use super::fault::Fault;
use crate::range::{Advance, Cursor, Job, Ledger, RangeRepo, UndoRepo};
use crate::store::{Store, StoreError};

/// Blocks searched downwards. A deeper difference is not a reorganisation but another chain, and the list of undone blocks would
/// not fit into a document.
const MAX_BLOCKS: u64 = 100_000;
const STEP: i64 = 50;

#[derive(Debug, Clone)]
pub(crate) struct ReorgDetector {
    store: Store,
    ranges: RangeRepo,
    ledger: Ledger,
    undo: UndoRepo,
    finality_blocks: u64,
}

impl ReorgDetector {
    pub(crate) fn new(store: Store, finality_blocks: u64) -> Self {
        Self {
            ranges: RangeRepo::new(store.clone()),
            ledger: Ledger::new(store.clone()),
            undo: UndoRepo::new(store.clone()),
            store,
            finality_blocks,
        }
    }

    /// Undoes what a reorganisation replaced. `true` when something was undone.
    pub(crate) async fn check(&self, context: &SourceContext, head: u64) -> Result<bool, Fault> {
        let source = &context.source;
        let Some(cursor) = self.store.retry("read the cursor", || self.ranges.cursor(source.name())).await?
        else {
            return Ok(false);
        };
        if cursor.undoing.is_some() {
            return Ok(self.store.retry("finish an undo", || self.undo.finish(source)).await?);
        }
        let final_before = head.saturating_sub(self.finality_blocks);
        if cursor.done_before <= final_before {
            return Ok(false);
        }
        self.compare(context, &cursor).await
    }

    /// Moves the run, and repairs it where two finished ranges do not link.
    pub(crate) async fn advance(&self, context: &SourceContext) -> Result<(), Fault> {
        let source = &context.source;
        let outcome = self.store.retry("advance", || self.ledger.advance(source)).await?;
        let Advance::Broken(job) = outcome else { return Ok(()) };
        let Some(cursor) = self.store.retry("read the cursor", || self.ranges.cursor(source.name())).await?
        else {
            return Ok(());
        };
        // Either the run belongs to a dead branch, which `compare` undoes, or the range above it does.
        if !self.compare(context, &cursor).await? && self.is_canonical(context, &cursor).await? {
            tracing::warn!(source = source.name(), from = job.from, "a range of a dead branch is read again");
            self.store.retry("reopen a range", || self.reopen(context, &job)).await?;
        }
        Ok(())
    }

    async fn reopen(&self, context: &SourceContext, job: &Job) -> Result<(), StoreError> {
        let mut tx = self.store.begin().await?;
        if self.ranges.reopen_in(&mut tx, job).await? {
            context.events.delete_in(&mut tx, &context.source, job.from..=job.to).await?;
        }
        tx.commit().await
    }

    async fn is_canonical(&self, context: &SourceContext, cursor: &Cursor) -> Result<bool, Fault> {
        let (Some(top), Some(hash)) = (cursor.done_before.checked_sub(1), &cursor.done_hash) else {
            return Ok(true);
        };
        Ok(self.hash_at(context, top).await?.is_some_and(|found| found == *hash))
    }

    async fn hash_at(&self, context: &SourceContext, number: u64) -> Result<Option<String>, NodeError> {
        Ok(context.reader.nodes.canonical(number).await?.map(|header| header.hash.to_string()))
    }

    /// Compares the end of the run with the chain. `true` when something was undone.
    async fn compare(&self, context: &SourceContext, cursor: &Cursor) -> Result<bool, Fault> {
        let (Some(top), Some(hash)) = (cursor.done_before.checked_sub(1), &cursor.done_hash) else {
            return Ok(false);
        };
        match self.hash_at(context, top).await? {
            None => return Ok(false),
            Some(found) if found == *hash => return Ok(false),
            Some(_) => {}
        }
        let Some(lowest) = self.lowest_dead(context, cursor).await? else { return Ok(false) };
        let Some(lowest) = self.above_fork(context, lowest).await? else { return Ok(false) };
        let source = &context.source;
        let begun = self.store.retry("begin an undo", || self.undo.begin(source, cursor, &lowest)).await?;
        if begun {
            self.store.retry("finish an undo", || self.undo.finish(source)).await?;
        }
        Ok(begun)
    }

    /// The lowest range of the run whose last block is not canonical.
    async fn lowest_dead(&self, context: &SourceContext, cursor: &Cursor) -> Result<Option<Job>, Fault> {
        let mut lowest: Option<Job> = None;
        let mut below = cursor.done_before;
        'down: loop {
            let name = context.source.name();
            let jobs =
                self.store.retry("read the ledger", || self.ranges.jobs_below(name, below, STEP)).await?;
            if jobs.is_empty() {
                break;
            }
            for job in jobs {
                below = job.from;
                // A range that lies within another one is not part of the run.
                if job.before.is_none()
                    || lowest.as_ref().is_some_and(|above| job.to.saturating_add(1) != above.from)
                {
                    continue;
                }
                match self.hash_at(context, job.to).await? {
                    // The node lost the block meanwhile, which proves nothing; the next round checks again.
                    None => return Ok(None),
                    Some(found) if found == job.to_hash => break 'down,
                    Some(_) => lowest = Some(job),
                }
                if cursor.done_before - below > MAX_BLOCKS {
                    return Err(Fault::AnotherChain(MAX_BLOCKS));
                }
            }
        }
        Ok(lowest)
    }

    /// The part of that range above the fork. The ledger may know hashes of single blocks of the range; those that are still
    /// canonical are kept. `None` when the range changed meanwhile.
    async fn above_fork(&self, context: &SourceContext, lowest: Job) -> Result<Option<Job>, Fault> {
        let source = &context.source;
        for number in (lowest.from..lowest.to).rev() {
            let Some(known) = lowest.hash_of(number) else { break };
            let found = context.reader.nodes.canonical(number).await?;
            if let Some(fork) = found.filter(|header| header.hash.to_string() == known) {
                let split = || self.undo.split(source, &lowest, &fork);
                return Ok(self.store.retry("split a range", split).await?);
            }
        }
        Ok(Some(lowest))
    }
}
