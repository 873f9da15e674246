//! Collections and indexes of the indexer's database.

use futures::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};

use super::{Store, StoreError};

/// `NamespaceExists`
const COLLECTION_EXISTS: i32 = 48;

impl Store {
    /// Creates missing collections and indexes. The first write would create them too, but index builds and transactions need
    /// them to exist.
    pub(super) async fn prepare(&self) -> Result<(), StoreError> {
        let present = self.database.list_collection_names().await?;
        for name in ["lastBlock", "blockJobs", "feeEvents"] {
            if present.iter().any(|known| known == name) && self.is_foreign(name).await? {
                return Err(StoreError::Foreign(name));
            }
        }
        for name in ["sources", "lastBlock", "blockJobs", "feeEvents", "events", "addresses", "reorgs"] {
            if !present.iter().any(|known| known == name) {
                match self.database.create_collection(name).await {
                    // Another process may have been faster.
                    Err(error) if !matches!(*error.kind, ErrorKind::Command(ref c) if c.code == COLLECTION_EXISTS) =>
                    {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
        }
        let unique = IndexOptions::builder().unique(true).build();
        index(&self.sources(), doc! { "number": 1 }, Some(unique)).await?;
        // Finished ranges are most of the collection and never claimed, so the index for claims leaves them out.
        let open = IndexOptions::builder().partial_filter_expression(doc! { "open": true }).build();
        index(&self.jobs(), doc! { "source": 1, "open": 1, "fromBlock": 1 }, Some(open)).await?;
        // From a time, or from a number of events, to the range that holds it.
        index(&self.jobs(), doc! { "source": 1, "toTime": 1 }, None).await?;
        index(&self.jobs(), doc! { "source": 1, "before": 1, "_id": 1 }, None).await?;
        index(&self.addresses(), doc! { "source": 1, "version": 1 }, None).await
    }

    /// Whether a collection belongs to the fee collector that this service replaces, which uses the same names. Its unique index
    /// over transaction and log would refuse events that must be stored, as if they were duplicates.
    async fn is_foreign(&self, name: &str) -> Result<bool, StoreError> {
        let rows = self.collection::<Document>(name);
        if rows.find_one(doc! { "_id": { "$type": "objectId" } }).await?.is_some() {
            return Ok(true);
        }
        let mut indexes = rows.list_indexes().await?;
        while let Some(index) = indexes.try_next().await? {
            if index.options.is_some_and(|options| options.unique == Some(true)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Builds an index in the background, unless it exists.
    pub(crate) async fn build_index(&self, collection: &str, keys: Document) -> Result<(), StoreError> {
        index(&self.collection(collection), keys, None).await
    }
}

async fn index(
    collection: &Collection<Document>,
    keys: Document,
    options: Option<IndexOptions>,
) -> Result<(), StoreError> {
    collection.create_index(IndexModel::builder().keys(keys).options(options).build()).await?;
    Ok(())
}
