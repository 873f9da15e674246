//! Sources and their addresses in MongoDB.

use std::time::Duration;

use alloy_primitives::Address;
use futures::TryStreamExt as _;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, doc};
use serde::{Deserialize, Serialize};

use super::domain::{Source, SourceSpec};
use crate::store::{Store, StoreError};

/// Tries for a free number; each failure means that another source was added meanwhile.
const NUMBER_TRIES: u32 = 50;

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    number: i32,
    #[serde(flatten)]
    spec: SourceSpec,
}

impl From<&Source> for Row {
    fn from(source: &Source) -> Self {
        let contract_address = source.contract.map(|contract| contract.to_string()).unwrap_or_default();
        let spec = SourceSpec { contract_address, ..source.spec.clone() };
        Self { number: i32::try_from(source.number).unwrap_or(i32::MAX), spec }
    }
}

impl TryFrom<Row> for Source {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let name = row.spec.name.clone();
        let source = u32::try_from(row.number).ok().and_then(|number| Source::new(number, row.spec));
        source.ok_or_else(|| StoreError::Damaged(format!("source {name}")))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SourceRepo {
    store: Store,
}

impl SourceRepo {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// All sources, by name.
    pub(crate) async fn all(&self) -> Result<Vec<Source>, StoreError> {
        let rows = self.store.collection::<Row>("sources").find(doc! {}).sort(doc! { "_id": 1 }).await?;
        let rows: Vec<Row> = rows.try_collect().await?;
        rows.into_iter().map(Source::try_from).collect()
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<Source>, StoreError> {
        let row = self.store.collection::<Row>("sources").find_one(doc! { "_id": name }).await?;
        row.map(Source::try_from).transpose()
    }

    /// Stores a source under the next free number. `false` when the name is taken.
    pub(crate) async fn insert(&self, source: &mut Source) -> Result<bool, StoreError> {
        let rows = self.store.collection::<Row>("sources");
        for _ in 0..NUMBER_TRIES {
            let highest =
                rows.find_one(doc! {}).sort(doc! { "number": -1 }).await?.map_or(0, |row| row.number);
            source.number = u32::try_from(highest).unwrap_or(0).saturating_add(1);
            match rows.insert_one(Row::from(&*source)).await {
                Ok(_) => return Ok(true),
                Err(error) if crate::store::is_duplicate_key(&error) => {
                    if self.get(source.name()).await?.is_some() {
                        return Ok(false);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Damaged("no free number for another source".to_owned()))
    }

    /// Stores the settings of a source that may change.
    pub(crate) async fn update(&self, spec: &SourceSpec) -> Result<(), StoreError> {
        let change = doc! { "$set": {
            "batchSize": i64::from(spec.batch_size),
            "concurrency": i64::from(spec.concurrency),
            "nodes": &spec.nodes,
            "paused": spec.paused,
        } };
        self.store.sources().update_one(doc! { "_id": &spec.name }, change).await?;
        Ok(())
    }

    /// Stores addresses under the version of the call that adds them, and returns how many were new.
    pub(crate) async fn put_addresses(
        &self,
        source: &Source,
        version: i64,
        all: &[Address],
    ) -> Result<u64, StoreError> {
        let mut added = 0;
        for chunk in all.chunks(10_000) {
            let row = |address: &Address| {
                let (id, source) = (address_id(source.number, address), i64::from(source.number));
                doc! { "_id": id, "source": source, "version": version }
            };
            let known = match self.store.addresses().insert_many(chunk.iter().map(row)).ordered(false).await {
                Ok(_) => Vec::new(),
                Err(error) => crate::store::duplicates(error)?,
            };
            added += (chunk.len() - known.len()) as u64;
            // Known addresses get the new version too, so that repeating a call that failed half-way completes it.
            let ids: Vec<Binary> = known
                .iter()
                .filter_map(|index| chunk.get(*index))
                .map(|a| address_id(source.number, a))
                .collect();
            if !ids.is_empty() {
                let raise = doc! { "$max": { "version": version } };
                self.store.addresses().update_many(doc! { "_id": { "$in": ids } }, raise).await?;
            }
        }
        Ok(added)
    }

    pub(crate) async fn count_addresses(&self, source: &Source) -> Result<u64, StoreError> {
        Ok(self.store.addresses().count_documents(doc! { "source": i64::from(source.number) }).await?)
    }

    /// The addresses of a source with this version or a later one.
    pub(crate) async fn addresses_from(&self, source: u32, version: i64) -> Result<Vec<Address>, StoreError> {
        let filter = doc! { "source": i64::from(source), "version": { "$gte": version } };
        let mut rows =
            self.store.addresses().find(filter).projection(doc! { "_id": 1 }).batch_size(10_000).await?;
        let mut found = Vec::new();
        while let Some(row) = rows.try_next().await? {
            match row.get("_id") {
                Some(Bson::Binary(id)) if id.bytes.len() == 24 => {
                    found.push(Address::from_slice(&id.bytes[4..]))
                }
                _ => return Err(StoreError::Damaged(format!("an address of source {source}"))),
            }
        }
        Ok(found)
    }
}

fn address_id(source: u32, address: &Address) -> Binary {
    let mut bytes = source.to_be_bytes().to_vec();
    bytes.extend_from_slice(address.as_slice());
    Binary { subtype: BinarySubtype::Generic, bytes }
}
