//! Events in MongoDB.
//!
//! Fresh ranges are inserted without order, the fastest way in. Of ranges that were tried before, what is stored is read back
//! and compared, which costs a fraction of writing it again: only what is missing or differs is written. Ranges that are not
//! final are replaced as a whole, within the transaction that ends them.

use std::ops::RangeInclusive;

use alloy_primitives::B256;
use futures::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::{
    Binary, Bson, Document, RawDocument, RawDocumentBuf, doc, spec::BinarySubtype, to_raw_document_buf,
};
use serde::Serialize;

use super::document::{Batch, EventDoc, FeeDoc, highest, lowest, parts_of};
use crate::source::Source;
use crate::store::{Store, StoreError, Tx};

/// Documents in one request: about two megabytes.
const CHUNK: usize = 5_000;

pub(super) const FEES: &str = "feeEvents";
pub(super) const EVENTS: &str = "events";

#[derive(Debug, Clone)]
pub(crate) struct EventRepo {
    pub(super) store: Store,
}

/// Where a source's events lie: collection, first part of their ids, and what else tells them from others there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) collection: &'static str,
    pub(super) scope: u64,
    pub(super) contract: Option<String>,
}

pub(super) fn place(source: &Source) -> Place {
    if source.shape.is_fees_collected() {
        let contract = source.contract.map(|c| format!("{c:#x}"));
        Place { collection: FEES, scope: source.chain_id(), contract }
    } else {
        Place { collection: EVENTS, scope: u64::from(source.number), contract: None }
    }
}

impl Place {
    /// The filter for events of these blocks.
    pub(super) fn blocks(&self, blocks: &RangeInclusive<u64>) -> Document {
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

    /// Stores events of a range that nobody tried before.
    pub(crate) async fn insert(&self, batch: &Batch) -> Result<(), StoreError> {
        match batch {
            Batch::Fees(fees) => insert(&self.fees(), fees).await,
            Batch::Events(events) => insert(&self.events(), events).await,
        }
    }

    /// Stores events of a range some of which may be there.
    pub(crate) async fn replace(&self, batch: &Batch) -> Result<(), StoreError> {
        match batch {
            Batch::Fees(fees) => self.mend(FEES, fees).await,
            Batch::Events(events) => self.mend(EVENTS, events).await,
        }
    }

    async fn mend<T: Serialize>(&self, collection: &str, documents: &[T]) -> Result<(), StoreError> {
        let rows = self.store.collection::<RawDocumentBuf>(collection);
        for chunk in documents.chunks(CHUNK) {
            let wanted: Result<Vec<RawDocumentBuf>, _> = chunk.iter().map(to_raw_document_buf).collect();
            let wanted = wanted.map_err(|error| StoreError::Damaged(error.to_string()))?;
            let Difference { missing, other } = difference(&rows, wanted).await?;
            insert(&rows, &missing).await?;
            if other.is_empty() {
                continue;
            }
            tracing::warn!(
                collection,
                events = other.len(),
                "events were stored otherwise; they are replaced"
            );
            let updates = other.iter().map(update).collect::<Result<Vec<Document>, _>>()?;
            self.store.command(doc! { "update": collection, "updates": updates, "ordered": false }).await?;
        }
        Ok(())
    }

    /// Puts a batch in place of everything stored for these blocks, within `tx`.
    pub(crate) async fn exchange_in(
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

    /// Deletes the events of these blocks, within `tx`.
    pub(crate) async fn delete_in(
        &self,
        tx: &mut Tx,
        source: &Source,
        blocks: RangeInclusive<u64>,
    ) -> Result<u64, StoreError> {
        let place = place(source);
        tx.delete_many(&self.store.collection(place.collection), place.blocks(&blocks)).await
    }

    /// Number and hash of the blocks from `from` up to, not including, `before` that have events; newest first.
    pub(crate) async fn blocks_with_events(
        &self,
        source: &Source,
        from: u64,
        before: u64,
    ) -> Result<Vec<(u64, B256)>, StoreError> {
        let Some(last) = before.checked_sub(1).filter(|last| *last >= from) else { return Ok(Vec::new()) };
        let place = place(source);
        let ids = self.store.collection::<Document>(place.collection);
        let mut ids = ids
            .find(place.blocks(&(from..=last)))
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

    /// Makes the indexes that filters by address and parameter need. Done once a source has caught up for the first time: while
    /// history is read they would halve the rate.
    pub(crate) async fn build_indexes(&self, source: &Source) -> Result<(), StoreError> {
        let place = place(source);
        let fields: Vec<String> = if place.collection == FEES {
            vec!["integrator".to_owned(), "token".to_owned()]
        } else {
            let contract = source.contract.is_none().then(|| "contractAddress".to_owned());
            source.shape.indexed().map(|param| format!("params.{}", param.name)).chain(contract).collect()
        };
        for field in fields {
            self.store.build_index(place.collection, doc! { field: 1, "_id": -1 }).await?;
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
            // The driver may repeat a request whose answer was lost; what is there under an id is the same event.
            Err(error) if crate::store::is_duplicate_key(&error) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What has to be written so that the store holds certain documents.
struct Difference {
    missing: Vec<RawDocumentBuf>,
    /// Stored under the same id with other contents.
    other: Vec<RawDocumentBuf>,
}

/// Compares documents with what is stored under their ids, byte by byte, in one walk over both.
async fn difference(
    rows: &Collection<RawDocumentBuf>,
    mut wanted: Vec<RawDocumentBuf>,
) -> Result<Difference, StoreError> {
    // In chain order already, which is the order of ids; the walk below must not depend on it.
    wanted.sort_by(|a, b| id(a).cmp(id(b)));
    let mut found = Difference { missing: Vec::new(), other: Vec::new() };
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
            found.other.push(known);
        }
    }
    found.missing.extend(wanted);
    Ok(found)
}

/// Every document of ours begins with a binary id.
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
