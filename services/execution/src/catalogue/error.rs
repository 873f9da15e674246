//! What can go wrong with the catalogue.

use db::outbox::OutboxError;
use rpc::error::{already_exists, invalid, not_found};
use tonic::Status;
use types::ChainName;

#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
    #[error("no chain {0}")]
    NoChain(ChainName),
    #[error("{field} of a {what} cannot change once set")]
    Fixed { what: &'static str, field: &'static str },
    #[error("another asset of this chain has the same contract")]
    ContractTaken,
    #[error("the catalogue's database failed")]
    Database(#[from] sqlx::Error),
    #[error("the messages to the other services could not be written")]
    Outbox(#[from] OutboxError),
}

impl CatalogueError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            Self::Invalid { .. } | Self::NoChain(_) | Self::Fixed { .. } | Self::ContractTaken => false,
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Outbox(source) => source.is_transient(),
        }
    }
}

impl From<CatalogueError> for Status {
    fn from(error: CatalogueError) -> Self {
        match &error {
            CatalogueError::Invalid { field, problem } => invalid(*field, problem.clone()),
            CatalogueError::NoChain(chain) => not_found("chain", chain),
            CatalogueError::Fixed { field, .. } => already_exists("FIELD_FIXED", field, error.to_string()),
            CatalogueError::ContractTaken => {
                already_exists("CONTRACT_TAKEN", "asset.contract_address", error.to_string())
            }
            CatalogueError::Database(source) => service::database_status(&error, db::classify(source)),
            CatalogueError::Outbox(source) => service::database_status(&error, source.fault()),
        }
    }
}
