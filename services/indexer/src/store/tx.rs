//! Writes that belong together: a transaction where the server has them.

use mongodb::bson::{Document, doc};
use mongodb::options::UpdateModifications;
use mongodb::{ClientSession, Collection};
use serde::Serialize;

use super::{Store, StoreError};

/// A group of writes. Dropped without [`Tx::commit`], a transaction is rolled back.
#[derive(Debug)]
pub(crate) struct Tx {
    session: Option<ClientSession>,
}

/// Runs a driver call within the session, if there is one.
macro_rules! run {
    ($tx:expr, $call:expr) => {
        match &mut $tx.session {
            Some(session) => $call.session(session).await?,
            None => $call.await?,
        }
    };
}

impl Store {
    /// Begins a group of writes.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        if !self.has_transactions {
            return Ok(Tx { session: None });
        }
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        Ok(Tx { session: Some(session) })
    }
}

impl Tx {
    /// For a single write, which needs no transaction: concurrent writers wait for each other instead of aborting.
    pub(crate) fn alone() -> Self {
        Self { session: None }
    }

    /// Whether the writes happen together or not at all.
    pub(crate) fn is_atomic(&self) -> bool {
        self.session.is_some()
    }

    /// Stores a document under an id, replacing the fields of one that exists.
    pub(crate) async fn put(
        &mut self,
        collection: &Collection<Document>,
        id: &str,
        fields: Document,
    ) -> Result<(), StoreError> {
        run!(self, collection.update_one(doc! { "_id": id }, doc! { "$set": fields }).upsert(true));
        Ok(())
    }

    /// Stores a document under an id, unless one exists.
    pub(crate) async fn add(
        &mut self,
        collection: &Collection<Document>,
        id: &str,
        fields: Document,
    ) -> Result<(), StoreError> {
        run!(self, collection.update_one(doc! { "_id": id }, doc! { "$setOnInsert": fields }).upsert(true));
        Ok(())
    }

    /// Returns how many documents the filter matched: 0 is a lost compare-and-set.
    pub(crate) async fn update_one(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        Ok(run!(self, collection.update_one(filter, update)).matched_count)
    }

    pub(crate) async fn update_many(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        Ok(run!(self, collection.update_many(filter, update)).matched_count)
    }

    pub(crate) async fn delete_many(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
    ) -> Result<u64, StoreError> {
        Ok(run!(self, collection.delete_many(filter)).deleted_count)
    }

    pub(crate) async fn insert_many<T: Serialize + Send + Sync>(
        &mut self,
        collection: &Collection<T>,
        documents: &[T],
    ) -> Result<(), StoreError> {
        if !documents.is_empty() {
            run!(self, collection.insert_many(documents));
        }
        Ok(())
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        if let Some(session) = &mut self.session {
            session.commit_transaction().await?;
        }
        Ok(())
    }
}
