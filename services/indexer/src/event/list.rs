//! Events read back: by keyset on the `_id`, so that a page costs the same at any depth.

use std::ops::RangeInclusive;

use futures::TryStreamExt as _;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};

use super::document::{EventDoc, FeeDoc, Stored, highest, lowest};
use super::repo::{EVENTS, EventRepo, FEES, place};
use crate::source::Source;
use crate::store::{StoreError, number};

/// Longest search; a filter on what has no index yet must not hold the server.
const SEARCH_LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// Which fee events.
#[derive(Debug, Clone, Default)]
pub(crate) struct FeeQuery {
    pub(crate) chain_id: Option<u64>,
    /// Lower-case hex.
    pub(crate) integrator: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) from_block: u64,
    pub(crate) to_block: Option<u64>,
}

/// Which events of one source.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventQuery {
    /// By the names of stored fields.
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
    /// Fee events, newest first, after a position.
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
        let fees = self.store.collection::<FeeDoc>(FEES);
        let found = fees.find(filter).sort(doc! { "_id": -1 });
        let found = found.limit(i64::from(size) + 1).max_time(SEARCH_LIMIT).batch_size(size + 1).await?;
        Ok(page(found.try_collect().await?, size, |fee: &FeeDoc| &fee.id))
    }

    /// Events of a source, newest first, after a position.
    pub(crate) async fn list(
        &self,
        source: &Source,
        query: &EventQuery,
        after: Option<Vec<u8>>,
        size: u32,
    ) -> Result<Page<Stored>, StoreError> {
        let place = place(source);
        let Some((from, to)) = self.blocks_of(source, query).await? else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let mut filter = place.blocks(&(from..=to));
        filter.insert("_id", below(lowest(place.scope, from), highest(place.scope, to), after));
        for (field, value) in &query.equal {
            // The contract of a source is part of what tells its events from others': asking for another one finds nothing.
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
        let items = self.find(place.collection, filter, -1, i64::from(size) + 1).await?;
        Ok(page(items, size, Stored::id))
    }

    /// Events of a source in chain order: after a position, up to a block.
    pub(crate) async fn follow(
        &self,
        source: &Source,
        after: (u64, Option<u32>),
        to: u64,
        limit: i64,
    ) -> Result<Vec<Stored>, StoreError> {
        let place = place(source);
        let (block, log) = after;
        let mut filter = place.blocks(&(block..=to));
        if let Some(log) = log {
            // Within the block the hash stands before the log index, so the index is compared by itself.
            filter.insert(
                "$or",
                vec![
                    doc! { "blockNumber": { "$gt": number(block) } },
                    doc! { "logIndex": { "$gt": i64::from(log) } },
                ],
            );
        }
        self.find(place.collection, filter, 1, limit).await
    }

    async fn find(
        &self,
        collection: &str,
        filter: Document,
        order: i32,
        limit: i64,
    ) -> Result<Vec<Stored>, StoreError> {
        let batch = u32::try_from(limit).unwrap_or(u32::MAX);
        let sort = doc! { "_id": order };
        if collection == EVENTS {
            let events = self.store.collection::<EventDoc>(EVENTS);
            let found = events.find(filter).sort(sort);
            let found = found.limit(limit).max_time(SEARCH_LIMIT).batch_size(batch).await?;
            return Ok(found.map_ok(Stored::Event).try_collect().await?);
        }
        let fees = self.store.collection::<FeeDoc>(FEES);
        let found = fees.find(filter).sort(sort);
        let found = found.limit(limit).max_time(SEARCH_LIMIT).batch_size(batch).await?;
        Ok(found.map_ok(Stored::Fee).try_collect().await?)
    }

    /// The blocks that a query can match: times are turned into blocks by the ledger, whose ranges know theirs.
    async fn blocks_of(&self, source: &Source, query: &EventQuery) -> Result<Option<(u64, u64)>, StoreError> {
        let mut from = query.from_block;
        let mut to = query.to_block.unwrap_or(u64::MAX);
        if let Some(time) = query.from_time_ms {
            from = from.max(match self.range_at(source, time).await? {
                Some(blocks) => *blocks.start(),
                // Every finished range ends before that: only what lies above the run can be as late.
                None => self.done_before(source).await?,
            });
        }
        if let Some(time) = query.to_time_ms
            && let Some(blocks) = self.range_at(source, time).await?
        {
            to = to.min(*blocks.end());
        }
        Ok((from <= to).then_some((from, to)))
    }

    /// The first range that ends at or after a time.
    async fn range_at(&self, source: &Source, ms: i64) -> Result<Option<RangeInclusive<u64>>, StoreError> {
        let filter = doc! { "source": source.name(), "toTime": { "$gte": DateTime::from_millis(ms) } };
        let range = self.store.jobs().find_one(filter).sort(doc! { "toTime": 1, "_id": 1 }).await?;
        let bound = |range: &Document, field: &str| range.get_i64(field).map(crate::store::block).ok();
        Ok(range.and_then(|range| Some(bound(&range, "fromBlock")?..=bound(&range, "toBlock")?)))
    }

    async fn done_before(&self, source: &Source) -> Result<u64, StoreError> {
        let cursor = self.store.cursors().find_one(doc! { "_id": source.name() }).await?;
        Ok(cursor.and_then(|cursor| cursor.get_i64("doneBefore").ok()).map_or(0, crate::store::block))
    }

    /// Fee events of a chain, newest first, after skipping many: what page numbers need.
    pub(crate) async fn skip_fees(
        &self,
        blocks: RangeInclusive<u64>,
        chain_id: u64,
        skip: u64,
        limit: i64,
    ) -> Result<Vec<FeeDoc>, StoreError> {
        let ids =
            doc! { "$gte": lowest(chain_id, *blocks.start()), "$lte": highest(chain_id, *blocks.end()) };
        let fees = self.store.collection::<FeeDoc>(FEES);
        let found = fees.find(doc! { "_id": ids }).sort(doc! { "_id": -1 });
        let found = found.skip(skip).limit(limit).max_time(SEARCH_LIMIT).await?;
        Ok(found.try_collect().await?)
    }

    /// How many fee events of a chain lie from a block on; counted, so meant for the few at the head.
    pub(crate) async fn count_fees_from(&self, chain_id: u64, from: u64) -> Result<u64, StoreError> {
        let ids = doc! { "$gte": lowest(chain_id, from), "$lte": highest(chain_id, u64::MAX) };
        let fees = self.store.collection::<FeeDoc>(FEES);
        Ok(fees.count_documents(doc! { "_id": ids }).max_time(SEARCH_LIMIT).await?)
    }

    /// How many events of a source lie in these blocks.
    pub(crate) async fn count(
        &self,
        source: &Source,
        blocks: RangeInclusive<u64>,
    ) -> Result<u64, StoreError> {
        let place = place(source);
        let rows = self.store.collection::<Document>(place.collection);
        Ok(rows.count_documents(place.blocks(&blocks)).max_time(SEARCH_LIMIT).await?)
    }

    /// The range that holds the event with this many before it, and how many lie before the range.
    pub(crate) async fn range_of_rank(
        &self,
        source: &Source,
        rank: u64,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let filter = doc! { "source": source.name(), "before": { "$lte": number(rank), "$gte": 0_i64 } };
        // Ranges without events share their number with the one after them, and it is the last of these that holds the event.
        let sort = doc! { "before": -1, "_id": -1 };
        let range = self.store.jobs().find_one(filter).sort(sort).await?;
        Ok(range.and_then(|range| {
            let to = crate::store::block(range.get_i64("toBlock").ok()?);
            let end = range.get_i64("before").ok()?.saturating_add(range.get_i64("count").ok()?);
            Some((to, crate::store::block(end)))
        }))
    }
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
