//! What the collectors of one source share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::event::{Decoder, EventRepo};
use crate::node::Reader;
use crate::range::RangeRepo;
use crate::source::{AddressBook, OwnAddresses, Source, SourceRepo};
use crate::store::{Store, StoreError};

/// What all workers of one source share in this process.
#[derive(Debug)]
pub(crate) struct SourceContext {
    pub(crate) source: Source,
    pub(crate) reader: Reader,
    pub(crate) events: EventRepo,
    pub(super) decoder: Decoder,
    addresses: AddressBook,
    ranges: RangeRepo,
    /// Blocks per range.
    pub(super) batch: u64,
    /// Whether a worker of this process has begun to build the indexes for filters.
    indexing: AtomicBool,
}

impl SourceContext {
    pub(crate) fn new(store: &Store, source: Source, reader: Reader, batch: u64) -> Self {
        Self {
            decoder: Decoder::new(source.clone()),
            addresses: AddressBook::new(source.number, SourceRepo::new(store.clone())),
            events: EventRepo::new(store.clone()),
            ranges: RangeRepo::new(store.clone()),
            reader,
            source,
            batch,
            indexing: AtomicBool::new(false),
        }
    }

    /// The current addresses. A range records their version, and counts only with the newest one.
    pub(super) async fn own_addresses(&self) -> Result<OwnAddresses, StoreError> {
        if !self.source.keeps_own_only() {
            return Ok(OwnAddresses::default());
        }
        let cursor = self.ranges.cursor(self.source.name()).await?;
        let (version, floor) =
            cursor.map_or((0, i64::MIN), |cursor| (cursor.address_version, cursor.address_floor()));
        self.addresses.at(version, floor).await
    }

    /// Starts building the indexes for filters, unless a worker of this process has begun.
    pub(super) fn start_indexing(self: Arc<Self>) {
        if self.indexing.swap(true, Ordering::SeqCst) {
            return;
        }
        tokio::spawn(async move {
            if let Err(error) = self.build_indexes().await {
                let (source, error) = (self.source.name(), rpc::error::chain(&error));
                tracing::warn!(source, error, "indexes for filters not built");
                self.indexing.store(false, Ordering::SeqCst);
            }
        });
    }

    async fn build_indexes(&self) -> Result<(), StoreError> {
        self.events.build_indexes(&self.source).await?;
        self.ranges.record_indexed(self.source.name()).await
    }
}
