//! The connection to the indexer's MongoDB, and how calls to it are retried.
//!
//! A call gets three attempts with a linear pause, and a ping before each further one (the driver reconnects by itself).
//! Leases and due times follow the server's clock, never this machine's.
//!
//! A replica set has transactions, and a fence is checked in the same one as the writes it guards. A standalone server, as the
//! smallest installations run it, has none: there the fence is checked right before the writes.

mod schema;
mod tx;

use std::future::Future;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error as MongoError, ErrorKind, WriteFailure};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};

use crate::config::MongoConfig;
pub(crate) use tx::Tx;

const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// A server that accepts a call and never answers must not block a worker for ever.
const CALL_LIMIT: Duration = Duration::from_secs(60);
const DUPLICATE_KEY: i32 = 11_000;
/// `MaxTimeMSExpired`
const TOO_SLOW: i32 = 50;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("mongo.url is not a MongoDB connection string")]
    Url(#[source] MongoError),
    /// No server that accepts writes answered.
    #[error("MongoDB does not answer")]
    Unreachable(#[source] MongoError),
    #[error("a call to MongoDB failed")]
    Call(#[from] MongoError),
    #[error("MongoDB did not answer within {} s", CALL_LIMIT.as_secs())]
    Silent,
    /// A stored document is not one that this program writes.
    #[error("a stored document is damaged: {0}")]
    Damaged(String),
    #[error(
        "collection {0} of the database belongs to another program: give the indexer a database of its own"
    )]
    Foreign(&'static str),
}

impl StoreError {
    /// Whether the same call may succeed when it is retried.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Url(_) | Self::Damaged(_) | Self::Foreign(_) => false,
            Self::Unreachable(_) | Self::Silent => true,
            Self::Call(error) => is_transient(error),
        }
    }

    /// Whether the server gave up on a search that exceeded its time limit.
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
        // Interrupted by shutdown, not primary, stepped down, no primary yet: the codes that a restart causes.
        ErrorKind::Command(ref command) => {
            matches!(command.code, 6 | 7 | 89 | 91 | 189 | 262 | 9001 | 10107 | 11600 | 11602 | 13435 | 13436)
        }
        _ => false,
    }
}

/// Whether a document with the same `_id` exists.
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

/// The positions of documents that a bulk insert found stored already, if nothing else went wrong.
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
    /// Connects, checks that a server answers, and creates missing collections and indexes.
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
                "MongoDB is not a replica set: fences are checked before writes instead of with them"
            );
        }
        let store = Self { client, database, has_transactions };
        store.prepare().await?;
        Ok(store)
    }

    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.database.run_command(doc! { "ping": 1 }).await.map(|_| ()).map_err(StoreError::Unreachable)
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

    /// Several writes to one collection in one request.
    pub(crate) async fn command(&self, command: Document) -> Result<Document, StoreError> {
        let reply = self.database.run_command(command).await?;
        match reply.get_array("writeErrors") {
            Ok(errors) if !errors.is_empty() => {
                Err(StoreError::Damaged(format!("a write was refused: {}", errors[0])))
            }
            _ => Ok(reply),
        }
    }

    /// Makes a call, at most three times while its failures are transient.
    pub(crate) async fn retry<T, F, Fut>(&self, what: &'static str, call: F) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let mut attempt = 1;
        loop {
            match tokio::time::timeout(CALL_LIMIT, call()).await.unwrap_or(Err(StoreError::Silent)) {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tracing::warn!(
                        what,
                        attempt,
                        error = rpc::error::chain(&error),
                        "store call failed, retrying"
                    );
                    tokio::time::sleep(PAUSE.saturating_mul(attempt)).await;
                    // The ping also waits for a server that is restarting. Its result does not matter: the next attempt shows it.
                    let _ = self.ping().await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

/// Integers are signed in BSON. No block number comes near the limit.
pub(crate) fn number(block: u64) -> i64 {
    i64::try_from(block).unwrap_or(i64::MAX)
}

/// The reverse of [`number`]; our documents hold no negative block numbers.
pub(crate) fn block(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A text inside an aggregation expression, where `$` would start a field name.
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
