//! What can go wrong with the catalogue's copy.

/// Errors of the catalogue's copy.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("database query failed")]
    Database(#[from] sqlx::Error),
    #[error("a stored catalogue entry cannot be read: {0}")]
    Corrupt(String),
}

impl CatalogueError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Corrupt(_) => false,
        }
    }
}

impl From<CatalogueError> for tonic::Status {
    fn from(error: CatalogueError) -> Self {
        match &error {
            CatalogueError::Database(source) => service::database_status(&error, db::classify(source)),
            CatalogueError::Corrupt(_) => rpc::error::internal(&error),
        }
    }
}
