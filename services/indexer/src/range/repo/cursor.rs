//! Cursors in MongoDB (`lastBlock`): how far each source is.

use futures::TryStreamExt as _;
use mongodb::bson::{Bson, DateTime, doc};
use mongodb::options::ReturnDocument;

use super::RangeRepo;
use crate::range::domain::{Cursor, Mode};
use crate::source::Source;
use crate::store::{StoreError, block, number};

/// A call that adds addresses and has not ended after this time, for instance because its process died, is forgotten.
const ADDING_LIMIT_MS: i64 = 600_000;
/// The rate is measured over at least this long.
const SAMPLE_MS: i64 = 2_000;

impl RangeRepo {
    /// Creates the cursor of a new source at its start block, unless it exists.
    pub(crate) async fn seed(&self, source: &Source) -> Result<(), StoreError> {
        let cursor = Cursor::new(source.name(), source.chain_id(), source.spec.start_block);
        match self.store.collection("lastBlock").insert_one(cursor).await {
            Err(error) if !crate::store::is_duplicate_key(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn cursor(&self, source: &str) -> Result<Option<Cursor>, StoreError> {
        Ok(self.store.collection("lastBlock").find_one(doc! { "_id": source }).await?)
    }

    pub(crate) async fn cursors(&self) -> Result<Vec<Cursor>, StoreError> {
        Ok(self.store.collection("lastBlock").find(doc! {}).await?.try_collect().await?)
    }

    /// Records head and mode for progress reports. The head may go back, when a node had claimed too much or the chain was
    /// reorganised.
    pub(crate) async fn record_head(&self, source: &str, head: u64, mode: Mode) -> Result<(), StoreError> {
        let seen = doc! { "$set": { "head": number(head), "mode": <&str>::from(mode) } };
        self.store.cursors().update_one(doc! { "_id": source }, seen).await?;
        Ok(())
    }

    /// Records that the indexes for filters exist.
    pub(crate) async fn record_indexed(&self, source: &str) -> Result<(), StoreError> {
        self.store.cursors().update_one(doc! { "_id": source }, doc! { "$set": { "indexed": true } }).await?;
        Ok(())
    }

    /// Announces a call that adds addresses, and returns the version to store them with. From now on no reader considers the
    /// set of addresses complete up to that version.
    pub(crate) async fn begin_adding(&self, source: &str) -> Result<i64, StoreError> {
        let last = doc! { "$ifNull": ["$addressCounter", 0_i64] };
        let recent = doc! { "$gt": ["$$one.at", { "$subtract": ["$$NOW", ADDING_LIMIT_MS] }] };
        let others = doc! { "$filter": {
            "input": { "$ifNull": ["$adding", []] }, "as": "one", "cond": recent,
        } };
        let announced = vec![
            doc! { "$set": { "addressCounter": { "$add": [last, 1_i64] } } },
            doc! { "$set": { "adding": { "$concatArrays": [
                others, [{ "call": "$addressCounter", "at": "$$NOW" }],
            ] } } },
        ];
        let cursors = self.store.cursors();
        let cursor = cursors.find_one_and_update(doc! { "_id": source }, announced);
        let cursor = cursor.return_document(ReturnDocument::After).await?;
        cursor
            .and_then(|cursor| cursor.get_i64("addressCounter").ok())
            .ok_or_else(|| StoreError::Damaged(format!("the cursor of source {source}")))
    }

    /// Ends such a call under a version above all others, and returns the first block from which its addresses count. Both are
    /// one write, so the run cannot pass a range that was read without them. `None` when the call took too long.
    pub(crate) async fn end_adding(&self, source: &str, call: i64) -> Result<Option<u64>, StoreError> {
        let others = doc! { "$filter": {
            "input": "$adding", "as": "one", "cond": { "$ne": ["$$one.call", call] },
        } };
        let ended = vec![
            doc! { "$set": { "addressCounter": { "$add": ["$addressCounter", 1_i64] } } },
            doc! { "$set": { "addressVersion": "$addressCounter", "adding": others } },
        ];
        let same = doc! { "_id": source, "adding.call": call };
        let cursors = self.store.cursors();
        let cursor = cursors.find_one_and_update(same, ended).return_document(ReturnDocument::After).await?;
        Ok(cursor.and_then(|cursor| cursor.get_i64("doneBefore").ok()).map(block))
    }

    /// Moves the end of the unbroken run, and measures the rate. `false` when the cursor changed since it was read, or addresses
    /// were added meanwhile: then the ranges were judged by an older version.
    pub(crate) async fn move_run(
        &self,
        cursor: &Cursor,
        end: u64,
        hash: Option<String>,
        events: u64,
    ) -> Result<bool, StoreError> {
        let now = DateTime::now();
        let passed = now.timestamp_millis().saturating_sub(cursor.sampled_at.timestamp_millis());
        let mut set = doc! { "doneBefore": number(end), "doneHash": hash, "events": number(events) };
        if passed >= SAMPLE_MS {
            let blocks = number(end.saturating_sub(cursor.sampled_block));
            set.insert("sampledAt", now);
            set.insert("sampledBlock", number(end));
            set.insert("rate", blocks.saturating_mul(1_000_000) / passed);
        }
        let unmoved = doc! {
            "_id": &cursor.source,
            "doneBefore": number(cursor.done_before),
            "epoch": cursor.epoch,
            "undoing": Bson::Null,
            // The field is missing until addresses are added for the first time.
            "addressVersion": { "$not": { "$gt": cursor.address_version } },
        };
        let moved = self.store.cursors().update_one(unmoved, doc! { "$set": set }).await?;
        Ok(moved.matched_count == 1)
    }
}
