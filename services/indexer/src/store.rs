//! The indexer's MongoDB: collections, retries, and transactions where the server has them.
//!
//! Owns the connection and the rule for store calls: three attempts with a linear pause, and a sign of life from the server
//! before each further one (the driver reconnects by itself). Leases and due times are by the server's clock, never this
//! machine's.
//!
//! A replica set has transactions, and a fence is checked in the same one as the writes it guards. A standalone server, as the
//! smallest installations run it, has none: there the fence is checked right before the writes.

use std::future::Future;
use std::time::Duration;

use futures::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error as MongoError, ErrorKind, WriteFailure};
use mongodb::options::{ClientOptions, IndexOptions, UpdateModifications};
use mongodb::{Client, ClientSession, Collection, Database, IndexModel};
use serde::Serialize;

use crate::config::MongoConfig;

const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// Longest single call; a server that accepts and never answers must not hold a worker for ever.
const CALL_LIMIT: Duration = Duration::from_secs(60);
const DUPLICATE_KEY: i32 = 11_000;
/// `MaxTimeMSExpired`
const TOO_SLOW: i32 = 50;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The connection string is wrong.
    #[error("mongo.url is not a MongoDB connection string")]
    Url(#[source] MongoError),
    /// No server that can take writes answered.
    #[error("MongoDB does not answer")]
    Unreachable(#[source] MongoError),
    /// A call failed.
    #[error("a call to MongoDB failed")]
    Call(#[from] MongoError),
    /// A call was not answered at all.
    #[error("MongoDB did not answer within {} s", CALL_LIMIT.as_secs())]
    Silent,
    /// A stored document is not what this program writes.
    #[error("a stored document is damaged: {0}")]
    Damaged(String),
    /// The database belongs to somebody else.
    #[error("collection {0} of the database is another program's: give the indexer a database of its own")]
    Foreign(&'static str),
}

impl StoreError {
    /// Whether the same call may succeed a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Url(_) | Self::Damaged(_) | Self::Foreign(_) => false,
            Self::Unreachable(_) | Self::Silent => true,
            Self::Call(error) => is_transient(error),
        }
    }

    /// Whether the server gave up on a search that took longer than it may.
    pub(crate) fn is_too_slow(&self) -> bool {
        matches!(self, Self::Call(error) if matches!(*error.kind, ErrorKind::Command(ref c) if c.code == TOO_SLOW))
    }
}

fn is_transient(error: &MongoError) -> bool {
    use mongodb::error::{
        RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
    };
    let labels = [RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT];
    if labels.iter().any(|label| error.contains_label(label)) {
        return true;
    }
    match *error.kind {
        ErrorKind::Io(_)
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::DnsResolve { .. } => true,
        // Interrupted by shutdown, not primary, stepped down, no primary yet: the codes of a restart.
        ErrorKind::Command(ref command) => {
            matches!(command.code, 6 | 7 | 89 | 91 | 189 | 262 | 9001 | 10107 | 11600 | 11602 | 13435 | 13436)
        }
        _ => false,
    }
}

/// Whether a document of the same `_id` is there.
pub(crate) fn is_duplicate_key(error: &MongoError) -> bool {
    match *error.kind {
        ErrorKind::Write(WriteFailure::WriteError(ref write)) => write.code == DUPLICATE_KEY,
        ErrorKind::Command(ref command) => command.code == DUPLICATE_KEY,
        ErrorKind::InsertMany(ref many) => {
            many.write_concern_error.is_none()
                && many.write_errors.as_ref().is_some_and(|all| all.iter().all(|e| e.code == DUPLICATE_KEY))
        }
        _ => false,
    }
}

/// Which documents of a bulk insert were there already, when that was all that went wrong.
pub(crate) fn duplicates(error: MongoError) -> Result<Vec<usize>, StoreError> {
    if !is_duplicate_key(&error) {
        return Err(error.into());
    }
    match *error.kind {
        ErrorKind::InsertMany(ref many) => {
            Ok(many.write_errors.iter().flatten().map(|write| write.index).collect())
        }
        _ => Err(error.into()),
    }
}

/// A handle to the database; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    client: Client,
    database: Database,
    has_transactions: bool,
}

impl Store {
    /// Connects, makes sure that somebody answers, and makes collections and indexes that are missing.
    pub(crate) async fn connect(config: &MongoConfig) -> Result<Self, StoreError> {
        let mut options = ClientOptions::parse(config.url.expose()).await.map_err(StoreError::Url)?;
        options.app_name = Some("bursar-indexer".to_owned());
        options.server_selection_timeout = Some(Duration::from_millis(config.timeout_ms));
        options.connect_timeout = Some(Duration::from_millis(config.timeout_ms));
        let client = Client::with_options(options).map_err(StoreError::Url)?;
        let database = client.database(&config.database);
        let hello = database.run_command(doc! { "hello": 1 }).await.map_err(StoreError::Unreachable)?;
        let has_transactions = hello.contains_key("setName") || hello.get_str("msg") == Ok("isdbgrid");
        if !has_transactions {
            tracing::warn!(
                "MongoDB is no replica set: fences are checked before writes instead of with them"
            );
        }
        let store = Self { client, database, has_transactions };
        store.prepare().await?;
        Ok(store)
    }

    /// Asks the server for a sign of life. The driver reconnects by itself.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.database.run_command(doc! { "ping": 1 }).await.map(|_| ()).map_err(StoreError::Unreachable)
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        // Made here and not by the first write: an index build or a transaction must find them.
        let present = self.database.list_collection_names().await?;
        for name in ["lastBlock", "blockJobs", "feeEvents"] {
            if present.iter().any(|known| known == name) && self.is_foreign(name).await? {
                return Err(StoreError::Foreign(name));
            }
        }
        for name in ["sources", "lastBlock", "blockJobs", "feeEvents", "events", "addresses", "reorgs"] {
            if !present.iter().any(|known| known == name) {
                match self.database.create_collection(name).await {
                    // 48 is NamespaceExists: another process was faster.
                    Err(error) if !matches!(*error.kind, ErrorKind::Command(ref c) if c.code == 48) => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
        }
        let unique = IndexOptions::builder().unique(true).build();
        index(&self.sources(), doc! { "number": 1 }, Some(unique)).await?;
        // Finished ranges are the bulk of the collection and never claimed: they stay out of the claim's index.
        let open = IndexOptions::builder().partial_filter_expression(doc! { "open": true }).build();
        index(&self.jobs(), doc! { "source": 1, "open": 1, "fromBlock": 1 }, Some(open)).await?;
        // From a time or from a number of events to the range that holds it.
        index(&self.jobs(), doc! { "source": 1, "toTime": 1 }, None).await?;
        index(&self.jobs(), doc! { "source": 1, "before": 1, "_id": 1 }, None).await?;
        index(&self.addresses(), doc! { "source": 1, "version": 1 }, None).await
    }

    /// Whether a collection is that of the fee collector this service replaces, which has the same names. Its unique index over
    /// transaction and log would refuse the very events that are to be stored, and look like a repetition.
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

    pub(crate) fn collection<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        self.database.collection(name)
    }

    pub(crate) fn sources(&self) -> Collection<Document> {
        self.collection("sources")
    }

    /// Cursors: one document per source.
    pub(crate) fn cursors(&self) -> Collection<Document> {
        self.collection("lastBlock")
    }

    /// Ranges; the finished ones are the coverage ledger.
    pub(crate) fn jobs(&self) -> Collection<Document> {
        self.collection("blockJobs")
    }

    pub(crate) fn addresses(&self) -> Collection<Document> {
        self.collection("addresses")
    }

    pub(crate) fn reorgs(&self) -> Collection<Document> {
        self.collection("reorgs")
    }

    /// Several statements against one collection in one request.
    pub(crate) async fn command(&self, command: Document) -> Result<Document, StoreError> {
        let answer = self.database.run_command(command).await?;
        match answer.get_array("writeErrors") {
            Ok(errors) if !errors.is_empty() => {
                Err(StoreError::Damaged(format!("a write was refused: {}", errors[0])))
            }
            _ => Ok(answer),
        }
    }

    /// Builds an index in the background; nothing when it is there.
    pub(crate) async fn build_index(&self, collection: &str, keys: Document) -> Result<(), StoreError> {
        index(&self.collection(collection), keys, None).await
    }

    /// Begins a group of writes: a transaction where the server has them.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        if !self.has_transactions {
            return Ok(Tx { session: None });
        }
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        Ok(Tx { session: Some(session) })
    }

    /// Calls until it succeeds, three times at most, as long as the failure may pass.
    pub(crate) async fn retry<T, F, Fut>(&self, what: &'static str, call: F) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let mut attempt = 1;
        loop {
            let answer = tokio::time::timeout(CALL_LIMIT, call()).await.unwrap_or(Err(StoreError::Silent));
            match answer {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tracing::warn!(
                        what,
                        attempt,
                        error = rpc::error::chain(&error),
                        "store call failed, trying again"
                    );
                    tokio::time::sleep(PAUSE.saturating_mul(attempt)).await;
                    // Also waits for a server that is on its way back; whether it is there shows in the next attempt.
                    let _ = self.ping().await;
                    attempt += 1;
                }
                answer => return answer,
            }
        }
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

/// Writes that belong together. Dropped without [`Tx::commit`], a transaction is undone.
#[derive(Debug)]
pub(crate) struct Tx {
    session: Option<ClientSession>,
}

impl Tx {
    /// A write that has no others with it: the server itself settles who comes first, where a transaction would be given up.
    pub(crate) fn alone() -> Self {
        Self { session: None }
    }

    /// Whether the writes happen together or not at all.
    pub(crate) fn is_atomic(&self) -> bool {
        self.session.is_some()
    }

    /// Stores a document under an id, in place of any that is there.
    pub(crate) async fn put(
        &mut self,
        collection: &Collection<Document>,
        id: &str,
        fields: Document,
    ) -> Result<(), StoreError> {
        self.upsert(collection, id, doc! { "$set": fields }).await
    }

    /// Stores a document under an id, unless there is one.
    pub(crate) async fn add(
        &mut self,
        collection: &Collection<Document>,
        id: &str,
        fields: Document,
    ) -> Result<(), StoreError> {
        self.upsert(collection, id, doc! { "$setOnInsert": fields }).await
    }

    async fn upsert(
        &mut self,
        collection: &Collection<Document>,
        id: &str,
        change: Document,
    ) -> Result<(), StoreError> {
        let call = collection.update_one(doc! { "_id": id }, change).upsert(true);
        match &mut self.session {
            Some(session) => call.session(session).await?,
            None => call.await?,
        };
        Ok(())
    }

    /// How many documents the filter matched: 0 is a lost compare-and-set.
    pub(crate) async fn update_one(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        let call = collection.update_one(filter, update);
        let done = match &mut self.session {
            Some(session) => call.session(session).await?,
            None => call.await?,
        };
        Ok(done.matched_count)
    }

    pub(crate) async fn update_many(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        let call = collection.update_many(filter, update);
        let done = match &mut self.session {
            Some(session) => call.session(session).await?,
            None => call.await?,
        };
        Ok(done.matched_count)
    }

    pub(crate) async fn delete_many(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
    ) -> Result<u64, StoreError> {
        let call = collection.delete_many(filter);
        let done = match &mut self.session {
            Some(session) => call.session(session).await?,
            None => call.await?,
        };
        Ok(done.deleted_count)
    }

    pub(crate) async fn insert_many<T: Serialize + Send + Sync>(
        &mut self,
        collection: &Collection<T>,
        documents: &[T],
    ) -> Result<(), StoreError> {
        if documents.is_empty() {
            return Ok(());
        }
        let call = collection.insert_many(documents);
        match &mut self.session {
            Some(session) => call.session(session).await?,
            None => call.await?,
        };
        Ok(())
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        if let Some(session) = &mut self.session {
            session.commit_transaction().await?;
        }
        Ok(())
    }
}

/// Block numbers are signed in BSON. No chain comes near the limit.
pub(crate) fn number(block: u64) -> i64 {
    i64::try_from(block).unwrap_or(i64::MAX)
}

/// The other way; documents of ours hold no negative block.
pub(crate) fn block(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A text inside an aggregation expression, where `$` would begin a field.
pub(crate) fn literal(text: impl Into<Bson>) -> Document {
    doc! { "$literal": text.into() }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A fresh database on a real server.
    pub(crate) async fn store() -> Store {
        let database = testkit::mongo().await;
        let config = MongoConfig {
            url: rpc::Secret::new(database.url()),
            database: database.name().to_owned(),
            timeout_ms: 5_000,
        };
        Store::connect(&config).await.unwrap()
    }
}
