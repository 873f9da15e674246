//! Events in MongoDB.
//!
//! Events of a new range are inserted unordered, which is fastest. For a range that was tried before, stored events are read back
//! and compared, which is much cheaper than writing them again: only missing or different ones are written. Ranges that are not
//! final are replaced as a whole, within the transaction that completes them.

mod list;

pub(crate) use list::{EventQuery, FeeQuery};

use std::ops::RangeInclusive;

use alloy_primitives::B256;
use futures::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::{
    Binary, Bson, Document, RawDocument, RawDocumentBuf, doc, spec::BinarySubtype, to_raw_document_buf,
};
use serde::Serialize;

use crate::event::document::{Batch, EventDoc, FeeDoc, highest, lowest, parts_of};
use crate::source::Source;
use crate::store::{Store, StoreError, Tx};

/// Documents per request: about two megabytes.
const CHUNK: usize = 5_000;

const FEES: &str = "feeEvents";
const EVENTS: &str = "events";

#[derive(Debug, Clone)]
pub(crate) struct EventRepo {
    store: Store,
}

/// Where a source's events are stored: the collection, the first part of their ids, and the contract if others share both.
#[derive(Debug, Clone)]
struct Location {
    collection: &'static str,
    scope: u64,
    contract: Option<String>,
}

fn location(source: &Source) -> Location {
    if source.shape.is_fees_collected() {
        let contract = source.contract.map(|c| format!("{c:#x}"));
        Location { collection: FEES, scope: source.chain_id(), contract }
    } else {
        Location { collection: EVENTS, scope: u64::from(source.number), contract: None }
    }
}

impl Location {
    /// The filter for events of these blocks.
    fn blocks(&self, blocks: &RangeInclusive<u64>) -> Document {
        let ids =
            doc! { "$gte": lowest(self.scope, *blocks.start()), "$lte": highest(self.scope, *blocks.end()) };
        let mut filter = doc! { "_id": ids };
        if let Some(contract) = &self.contract {
            filter.insert("contractAddress", contract);
        }
        filter
    }
}

impl EventRepo {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    fn fees(&self) -> Collection<FeeDoc> {
        self.store.collection(FEES)
    }

    fn events(&self) -> Collection<EventDoc> {
        self.store.collection(EVENTS)
    }

    /// Stores events of a range that was never tried before.
    pub(crate) async fn insert(&self, batch: &Batch) -> Result<(), StoreError> {
        match batch {
            Batch::Fees(fees) => insert(&self.fees(), fees).await,
            Batch::Events(events) => insert(&self.events(), events).await,
        }
    }

    /// Stores events of which some may be stored already.
    pub(crate) async fn replace(&self, batch: &Batch) -> Result<(), StoreError> {
        match batch {
            Batch::Fees(fees) => self.write_differences(FEES, fees).await,
            Batch::Events(events) => self.write_differences(EVENTS, events).await,
        }
    }

    async fn write_differences<T: Serialize>(
        &self,
        collection: &str,
        documents: &[T],
    ) -> Result<(), StoreError> {
        let rows = self.store.collection::<RawDocumentBuf>(collection);
        for chunk in documents.chunks(CHUNK) {
            let wanted: Result<Vec<RawDocumentBuf>, _> = chunk.iter().map(to_raw_document_buf).collect();
            let wanted = wanted.map_err(|error| StoreError::Damaged(error.to_string()))?;
            let Difference { missing, changed } = difference(&rows, wanted).await?;
            insert(&rows, &missing).await?;
            if changed.is_empty() {
                continue;
            }
            tracing::warn!(collection, events = changed.len(), "stored events differ; they are replaced");
            let updates = changed.iter().map(update).collect::<Result<Vec<Document>, _>>()?;
            self.store.command(doc! { "update": collection, "updates": updates, "ordered": false }).await?;
        }
        Ok(())
    }

    /// Replaces everything stored for these blocks by a batch.
    pub(crate) async fn replace_in(
        &self,
        tx: &mut Tx,
        source: &Source,
        blocks: RangeInclusive<u64>,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        self.delete_in(tx, source, blocks).await?;
        match batch {
            Batch::Fees(fees) => tx.insert_many(&self.fees(), fees).await,
            Batch::Events(events) => tx.insert_many(&self.events(), events).await,
        }
    }

    pub(crate) async fn delete_in(
        &self,
        tx: &mut Tx,
        source: &Source,
        blocks: RangeInclusive<u64>,
    ) -> Result<u64, StoreError> {
        let location = location(source);
        tx.delete_many(&self.store.collection(location.collection), location.blocks(&blocks)).await
    }

    /// Number and hash of the blocks from `from` up to, not including, `before` that have events; newest first.
    pub(crate) async fn blocks_with_events(
        &self,
        source: &Source,
        from: u64,
        before: u64,
    ) -> Result<Vec<(u64, B256)>, StoreError> {
        let Some(last) = before.checked_sub(1).filter(|last| *last >= from) else { return Ok(Vec::new()) };
        let location = location(source);
        let ids = self.store.collection::<Document>(location.collection);
        let mut ids = ids
            .find(location.blocks(&(from..=last)))
            .projection(doc! { "_id": 1 })
            .sort(doc! { "_id": -1 })
            .batch_size(10_000)
            .await?;
        let mut blocks: Vec<(u64, B256)> = Vec::new();
        while let Some(row) = ids.try_next().await? {
            let Some(Bson::Binary(id)) = row.get("_id") else { continue };
            let Some((_, number, hash, _)) = parts_of(&id.bytes) else { continue };
            if blocks.last() != Some(&(number, hash)) {
                blocks.push((number, hash));
            }
        }
        Ok(blocks)
    }

    /// Builds the indexes for filters by address and parameter. This happens once a source has caught up for the first time,
    /// because they would halve the rate while history is read.
    pub(crate) async fn build_indexes(&self, source: &Source) -> Result<(), StoreError> {
        let location = location(source);
        let fields: Vec<String> = if location.collection == FEES {
            vec!["integrator".to_owned(), "token".to_owned()]
        } else {
            let contract = source.contract.is_none().then(|| "contractAddress".to_owned());
            source.shape.indexed().map(|param| format!("params.{}", param.name)).chain(contract).collect()
        };
        for field in fields {
            self.store.build_index(location.collection, doc! { field: 1, "_id": -1 }).await?;
        }
        Ok(())
    }
}

async fn insert<T: Serialize + Send + Sync>(
    collection: &Collection<T>,
    documents: &[T],
) -> Result<(), StoreError> {
    for chunk in documents.chunks(CHUNK) {
        match collection.insert_many(chunk).ordered(false).await {
            // The driver may repeat a request whose reply was lost; a document with the same id is the same event.
            Err(error) if crate::store::is_duplicate_key(&error) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The documents that have to be written.
struct Difference {
    missing: Vec<RawDocumentBuf>,
    /// Stored under the same id with other contents.
    changed: Vec<RawDocumentBuf>,
}

/// Compares documents byte by byte with those stored under their ids, in one pass over both.
async fn difference(
    rows: &Collection<RawDocumentBuf>,
    mut wanted: Vec<RawDocumentBuf>,
) -> Result<Difference, StoreError> {
    // They arrive in chain order, which is the order of ids, but the pass below must not depend on that.
    wanted.sort_by(|a, b| id(a).cmp(id(b)));
    let mut found = Difference { missing: Vec::new(), changed: Vec::new() };
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(found) };
    let ids = doc! { "$gte": binary(id(first)), "$lte": binary(id(last)) };
    let stored = rows.find(doc! { "_id": ids }).sort(doc! { "_id": 1 });
    let mut stored = stored.batch_size(u32::try_from(CHUNK).unwrap_or(u32::MAX)).await?;
    let mut wanted = wanted.into_iter().peekable();
    while stored.advance().await? {
        let row = stored.current();
        while let Some(absent) = wanted.next_if(|next| id(next) < id(row)) {
            found.missing.push(absent);
        }
        if let Some(known) = wanted.next_if(|next| id(next) == id(row))
            && known.as_bytes() != row.as_bytes()
        {
            found.changed.push(known);
        }
    }
    found.missing.extend(wanted);
    Ok(found)
}

/// Every event has a binary id.
fn id(document: &RawDocument) -> &[u8] {
    document.get_binary("_id").map_or(&[], |id| id.bytes)
}

fn binary(id: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: id.to_vec() }
}

fn update(document: &RawDocumentBuf) -> Result<Document, StoreError> {
    let whole = document.to_document().map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(doc! { "q": { "_id": binary(id(document)) }, "u": whole, "upsert": true })
}
