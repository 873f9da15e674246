//! Undoing the blocks that a reorganisation replaced.
//!
//! The run is always set back to the end of a range whose last block is canonical, and watchers are notified of everything above
//! it. So whatever changes below that end later shows in the run, and is undone and reported in its turn.
//!
//! The decision is one compare-and-set on the cursor (`undoing`): from then on no range is handed out and the run does not move.
//! Carrying it out is one transaction, which any worker may repeat: ranges above the fork are reopened under a new fence, their
//! events deleted, the run set back, and the reorganisation stored under the next epoch, by which watchers find it.

use futures::TryStreamExt as _;
use mongodb::bson::{Bson, DateTime, Document, doc, to_document};

use super::{RangeRepo, finished};
use crate::event::EventRepo;
use crate::node::Header;
use crate::range::domain::{Cursor, Job, Undoing, UndoneBlock, range_id};
use crate::source::Source;
use crate::store::{Store, StoreError, block, number};

#[derive(Debug, Clone)]
pub(crate) struct UndoRepo {
    store: Store,
    ranges: RangeRepo,
    events: EventRepo,
}

impl UndoRepo {
    pub(crate) fn new(store: Store) -> Self {
        Self { ranges: RangeRepo::new(store.clone()), events: EventRepo::new(store.clone()), store }
    }

    /// Splits a finished range behind `fork`, one of its blocks that is still canonical, so that only the second part is undone;
    /// returns that part. The two parts cover what the whole did. Without transactions the range stays whole, and is undone whole.
    /// `None` when the range changed meanwhile.
    pub(crate) async fn split(
        &self,
        source: &Source,
        job: &Job,
        fork: &Header,
    ) -> Result<Option<Job>, StoreError> {
        let jobs = self.store.jobs();
        let mut tx = self.store.begin().await?;
        if !tx.is_atomic() {
            return Ok(Some(job.clone()));
        }
        let (kept_to, kept_hash) = (fork.number(), fork.hash.to_string());
        let dead_blocks = usize::try_from(job.to.saturating_sub(kept_to)).unwrap_or(usize::MAX);
        let (kept_hashes, dead_hashes) = job.hashes.split_at(job.hashes.len().saturating_sub(dead_blocks));
        let kept_count = self.events.count(source, job.from..=kept_to).await?;
        let dead = Job {
            id: range_id(&job.source, kept_to.saturating_add(1)),
            from: kept_to.saturating_add(1),
            parent_hash: kept_hash.clone(),
            count: job.count.saturating_sub(kept_count),
            before: job.before.map(|before| before.saturating_add(kept_count)),
            hashes: dead_hashes.to_vec(),
            ..job.clone()
        };
        let mut same = finished(job);
        same.insert("toBlock", number(job.to));
        let Some(mut row) = jobs.find_one(same.clone()).await? else { return Ok(None) };
        let kept = doc! { "$set": {
            "toBlock": number(kept_to),
            "toHash": &kept_hash,
            "toTime": DateTime::from_millis(number(fork.time().saturating_mul(1000))),
            "count": number(kept_count),
            "hashes": kept_hashes,
        } };
        if tx.update_one(&jobs, same, kept).await? == 0 {
            return Ok(None);
        }
        // The other fields of the whole, such as its end, hold for the second part.
        row.remove("_id");
        row.extend(doc! {
            "fromBlock": number(dead.from),
            "fromHash": dead.hashes.first(),
            "parentHash": &dead.parent_hash,
            "count": number(dead.count),
            "before": dead.before.map(number),
            "hashes": &dead.hashes,
        });
        tx.put(&jobs, &dead.id, row).await?;
        tx.commit().await?;
        Ok(Some(dead))
    }

    /// Decides to undo everything from `lowest` on, a range of the run. `false` when another worker decided something meanwhile.
    pub(crate) async fn begin(
        &self,
        source: &Source,
        cursor: &Cursor,
        lowest: &Job,
    ) -> Result<bool, StoreError> {
        let undone = self.events.blocks_with_events(source, lowest.from, cursor.done_before).await?;
        let undone = undone.into_iter().map(|(number, hash)| UndoneBlock { number, hash: hash.to_string() });
        let starts_source = lowest.from <= source.spec.start_block;
        let undoing = Undoing {
            epoch: cursor.epoch + 1,
            fork: lowest.from.checked_sub(1).map_or(-1, number),
            from: lowest.from,
            parent_hash: (!starts_source).then(|| lowest.parent_hash.clone()),
            before: lowest.before.unwrap_or(0),
            undone: undone.collect(),
        };
        tracing::warn!(
            source = source.name(),
            fork = undoing.fork,
            complete_before = cursor.done_before,
            blocks = undoing.undone.len(),
            "the chain was reorganised; events are undone and read again"
        );
        metrics::counter!("bursar_indexer_reorgs_total", "source" => source.name().to_owned()).increment(1);
        let same = doc! {
            "_id": source.name(),
            "epoch": cursor.epoch,
            "doneBefore": number(cursor.done_before),
            "undoing": Bson::Null,
        };
        let set = doc! { "$set": { "undoing": document(&undoing)? } };
        let decided = self.store.cursors().update_one(same, set).await?;
        worker::crash_point("indexer.after_undo_decided");
        Ok(decided.matched_count == 1)
    }

    /// Carries out what was decided, if anything was.
    pub(crate) async fn finish(&self, source: &Source) -> Result<bool, StoreError> {
        let Some(cursor) = self.ranges.cursor(source.name()).await? else { return Ok(false) };
        let Some(undoing) = cursor.undoing else { return Ok(false) };
        let mut tx = self.store.begin().await?;
        let affected = doc! {
            "_id": { "$gte": range_id(source.name(), undoing.from), "$lte": range_id(source.name(), u64::MAX) },
            "status": { "$in": ["completed", "processing"] },
        };
        self.ranges.reopen_all_in(&mut tx, affected).await?;
        let above = if undoing.fork < 0 { 0 } else { block(undoing.fork).saturating_add(1) };
        let deleted = self.events.delete_in(&mut tx, source, above..=u64::MAX).await?;
        let mut reorganisation = document(&undoing)?;
        reorganisation.extend(doc! { "source": source.name(), "at": DateTime::now() });
        let id = range_id(source.name(), block(undoing.epoch));
        tx.put(&self.store.reorgs(), &id, reorganisation).await?;
        worker::crash_point("indexer.after_undo_half");
        let set = doc! {
            "undoing": Bson::Null,
            "epoch": undoing.epoch,
            "doneHash": undoing.parent_hash.clone(),
            "doneBefore": number(undoing.from),
            "events": number(undoing.before),
        };
        // This comes last for servers without transactions: until it is written, the next worker repeats everything. In a
        // transaction, losing this compare-and-set rolls back everything above.
        let same = doc! { "_id": source.name(), "undoing.epoch": undoing.epoch };
        if tx.update_one(&self.store.cursors(), same, doc! { "$set": set }).await? == 0 {
            return Ok(false);
        }
        tx.commit().await?;
        tracing::warn!(source = source.name(), epoch = undoing.epoch, deleted, "events were undone");
        Ok(true)
    }

    /// The reorganisations after an epoch, up to another, oldest first.
    pub(crate) async fn between(
        &self,
        source: &str,
        after: i64,
        up_to: i64,
    ) -> Result<Vec<Reorganisation>, StoreError> {
        let first = range_id(source, block(after.saturating_add(1)));
        let filter = doc! { "_id": { "$gte": first, "$lte": range_id(source, block(up_to)) } };
        let found = self.store.collection::<Undoing>("reorgs").find(filter).sort(doc! { "_id": 1 }).await?;
        let reorganisation = |undoing: Undoing| Reorganisation {
            epoch: undoing.epoch,
            fork: (undoing.fork >= 0).then(|| block(undoing.fork)),
            blocks: undoing.undone,
        };
        Ok(found.map_ok(reorganisation).try_collect().await?)
    }
}

fn document(undoing: &Undoing) -> Result<Document, StoreError> {
    to_document(undoing).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// A reorganisation as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reorganisation {
    pub(crate) epoch: i64,
    /// The last block that both branches share, if there is one.
    pub(crate) fork: Option<u64>,
    /// The blocks whose events were undone, newest first.
    pub(crate) blocks: Vec<UndoneBlock>,
}
