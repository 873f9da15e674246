//! Reads stored events, paged by `_id`, so that a page costs the same at any depth.

use std::ops::RangeInclusive;

use futures::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use serde::de::DeserializeOwned;

use super::{EVENTS, EventRepo, location};
use crate::event::document::{FeeDoc, Stored, highest, lowest};
use crate::range::RangeRepo;
use crate::source::Source;
use crate::store::{StoreError, number};

/// A filter on a field without an index must not occupy the server for longer.
const SEARCH_LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

#[derive(Debug, Clone, Default)]
pub(crate) struct FeeQuery {
    pub(crate) chain_id: Option<u64>,
    /// Lower-case hex.
    pub(crate) integrator: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) from_block: u64,
    pub(crate) to_block: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EventQuery {
    /// Stored fields and the values that they must have.
    pub(crate) equal: Vec<(String, Bson)>,
    pub(crate) from_block: u64,
    pub(crate) to_block: Option<u64>,
    pub(crate) from_time_ms: Option<i64>,
    pub(crate) to_time_ms: Option<i64>,
}

/// A page and the id after which the next begins.
#[derive(Debug, Clone)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<Vec<u8>>,
}

impl EventRepo {
    /// Fee events after a position, newest first.
    pub(crate) async fn list_fees(
        &self,
        query: &FeeQuery,
        after: Option<Vec<u8>>,
        size: u32,
    ) -> Result<Page<FeeDoc>, StoreError> {
        let scopes = query.chain_id.map_or((0, u64::MAX), |chain| (chain, chain));
        let low = lowest(scopes.0, query.from_block);
        let high = highest(scopes.1, query.to_block.unwrap_or(u64::MAX));
        let mut filter = doc! { "_id": below(low, high, after) };
        for (field, value) in [("integrator", &query.integrator), ("token", &query.token)] {
            if let Some(value) = value {
                filter.insert(field, value);
            }
        }
        let fees = search(&self.fees(), filter, -1, i64::from(size) + 1).await?;
        Ok(page(fees, size, |fee: &FeeDoc| &fee.id))
    }

    /// Events of a source after a position, newest first.
    pub(crate) async fn list(
        &self,
        source: &Source,
        query: &EventQuery,
        after: Option<Vec<u8>>,
        size: u32,
    ) -> Result<Page<Stored>, StoreError> {
        let location = location(source);
        let Some((from, to)) = self.blocks_of(source, query).await? else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let mut filter = location.blocks(&(from..=to));
        filter.insert("_id", below(lowest(location.scope, from), highest(location.scope, to), after));
        for (field, value) in &query.equal {
            // The location may fix the contract already; a query for another one finds nothing.
            if filter.get(field).is_some_and(|fixed| fixed != value) {
                return Ok(Page { items: Vec::new(), next: None });
            }
            filter.insert(field.clone(), value);
        }
        let mut time = Document::new();
        if let Some(from) = query.from_time_ms {
            time.insert("$gte", DateTime::from_millis(from));
        }
        if let Some(to) = query.to_time_ms {
            time.insert("$lt", DateTime::from_millis(to));
        }
        if !time.is_empty() {
            filter.insert("blockTime", time);
        }
        let items = self.find(location.collection, filter, -1, i64::from(size) + 1).await?;
        Ok(page(items, size, Stored::id))
    }

    /// Events of a source after a position and up to a block, in chain order.
    pub(crate) async fn follow(
        &self,
        source: &Source,
        after: (u64, Option<u32>),
        to: u64,
        limit: i64,
    ) -> Result<Vec<Stored>, StoreError> {
        let location = location(source);
        let (block, log) = after;
        let mut filter = location.blocks(&(block..=to));
        if let Some(log) = log {
            // In an id the block hash comes before the log index, so the index is compared by its own field.
            filter.insert(
                "$or",
                vec![
                    doc! { "blockNumber": { "$gt": number(block) } },
                    doc! { "logIndex": { "$gt": i64::from(log) } },
                ],
            );
        }
        self.find(location.collection, filter, 1, limit).await
    }

    async fn find(
        &self,
        collection: &str,
        filter: Document,
        order: i32,
        limit: i64,
    ) -> Result<Vec<Stored>, StoreError> {
        if collection == EVENTS {
            let events = search(&self.events(), filter, order, limit).await?;
            return Ok(events.into_iter().map(Stored::Event).collect());
        }
        let fees = search(&self.fees(), filter, order, limit).await?;
        Ok(fees.into_iter().map(Stored::Fee).collect())
    }

    /// The blocks that a query can match. The ledger knows the times of its ranges, and so turns times into blocks.
    async fn blocks_of(&self, source: &Source, query: &EventQuery) -> Result<Option<(u64, u64)>, StoreError> {
        let (ranges, name) = (RangeRepo::new(self.store.clone()), source.name());
        let mut from = query.from_block;
        let mut to = query.to_block.unwrap_or(u64::MAX);
        if let Some(time) = query.from_time_ms {
            from = from.max(match ranges.blocks_at(name, time).await? {
                Some(blocks) => *blocks.start(),
                // Every finished range ends before that time: only blocks above the run can match.
                None => ranges.cursor(name).await?.map_or(0, |cursor| cursor.done_before),
            });
        }
        if let Some(time) = query.to_time_ms
            && let Some(blocks) = ranges.blocks_at(name, time).await?
        {
            to = to.min(*blocks.end());
        }
        Ok((from <= to).then_some((from, to)))
    }

    /// Fee events of a chain, newest first, after skipping some: for pages by number.
    pub(crate) async fn skip_fees(
        &self,
        blocks: RangeInclusive<u64>,
        chain_id: u64,
        skip: u64,
        limit: i64,
    ) -> Result<Vec<FeeDoc>, StoreError> {
        let ids =
            doc! { "$gte": lowest(chain_id, *blocks.start()), "$lte": highest(chain_id, *blocks.end()) };
        let fees = self.fees();
        let found = fees.find(doc! { "_id": ids }).sort(doc! { "_id": -1 });
        let found = found.skip(skip).limit(limit).max_time(SEARCH_LIMIT).await?;
        Ok(found.try_collect().await?)
    }

    /// Counts the fee events of a chain from a block on; meant for the few at the head.
    pub(crate) async fn count_fees_from(&self, chain_id: u64, from: u64) -> Result<u64, StoreError> {
        let ids = doc! { "$gte": lowest(chain_id, from), "$lte": highest(chain_id, u64::MAX) };
        Ok(self.fees().count_documents(doc! { "_id": ids }).max_time(SEARCH_LIMIT).await?)
    }

    pub(crate) async fn count(
        &self,
        source: &Source,
        blocks: RangeInclusive<u64>,
    ) -> Result<u64, StoreError> {
        let location = location(source);
        let rows = self.store.collection::<Document>(location.collection);
        Ok(rows.count_documents(location.blocks(&blocks)).max_time(SEARCH_LIMIT).await?)
    }
}

async fn search<T: DeserializeOwned + Send + Sync>(
    collection: &Collection<T>,
    filter: Document,
    order: i32,
    limit: i64,
) -> Result<Vec<T>, StoreError> {
    let batch = u32::try_from(limit).unwrap_or(u32::MAX);
    let found = collection.find(filter).sort(doc! { "_id": order });
    Ok(found.limit(limit).max_time(SEARCH_LIMIT).batch_size(batch).await?.try_collect().await?)
}

/// Ids within bounds and, when there is a position, below it.
fn below(low: Binary, high: Binary, after: Option<Vec<u8>>) -> Document {
    match after.filter(|bytes| *bytes <= high.bytes) {
        Some(bytes) => doc! { "$gte": low, "$lt": Binary { subtype: BinarySubtype::Generic, bytes } },
        None => doc! { "$gte": low, "$lte": high },
    }
}

fn page<T>(mut items: Vec<T>, size: u32, id: impl Fn(&T) -> &Binary) -> Page<T> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let more = items.len() > size;
    items.truncate(size);
    let next = items.last().filter(|_| more).map(|last| id(last).bytes.clone());
    Page { items, next }
}
