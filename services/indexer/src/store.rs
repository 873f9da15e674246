//! The indexer's MongoDB: connected at start, asked how it is ever after.

use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use crate::config::MongoConfig;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The connection string is wrong.
    #[error("mongo.url is not a MongoDB connection string")]
    Url(#[source] mongodb::error::Error),
    /// No server that can take writes answered.
    #[error("MongoDB does not answer")]
    Unreachable(#[source] mongodb::error::Error),
}

/// A handle to the database; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    database: Database,
}

impl Store {
    /// Connects and makes sure that somebody answers.
    pub(crate) async fn connect(config: &MongoConfig) -> Result<Self, StoreError> {
        let mut options = ClientOptions::parse(config.url.expose()).await.map_err(StoreError::Url)?;
        options.app_name = Some("bursar-indexer".to_owned());
        options.server_selection_timeout = Some(Duration::from_millis(config.timeout_ms));
        let client = Client::with_options(options).map_err(StoreError::Url)?;
        let store = Self { database: client.database(&config.database) };
        store.ping().await?;
        Ok(store)
    }

    /// Asks the server for a sign of life. The driver reconnects by itself.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.database.run_command(doc! { "ping": 1 }).await.map(|_| ()).map_err(StoreError::Unreachable)
    }
}
