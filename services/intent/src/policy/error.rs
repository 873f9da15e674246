//! What can go wrong with policies.

use types::{AssetSymbol, ChainName};

use crate::catalogue::CatalogueError;
use crate::violation::{self, Violation};

/// Errors of approval policies.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("the policy is not valid: {}", violation::list(.0))]
    Invalid(Vec<Violation>),
    #[error("{asset} on {chain} is not in the catalogue")]
    AssetUnknown { chain: ChainName, asset: AssetSymbol },
    #[error("database query failed")]
    Database(#[from] sqlx::Error),
    #[error("the catalogue cannot be read")]
    Catalogue(#[from] CatalogueError),
    #[error("a stored policy cannot be read: {0}")]
    Corrupt(String),
}

impl PolicyError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            // The catalogue's copy may be on its way.
            Self::AssetUnknown { .. } => true,
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Catalogue(source) => source.retry(),
            Self::Invalid(_) | Self::Corrupt(_) => false,
        }
    }
}

impl From<PolicyError> for tonic::Status {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Invalid(violations) => violation::status(&violations),
            PolicyError::AssetUnknown { .. } => {
                rpc::error::failed_precondition(crate::reason::ASSET_UNKNOWN, error.to_string())
            }
            PolicyError::Database(ref source) => service::database_status(&error, db::classify(source)),
            PolicyError::Catalogue(source) => source.into(),
            PolicyError::Corrupt(_) => rpc::error::internal(&error),
        }
    }
}
