//! What can go wrong with limits.

use types::{AssetSymbol, ChainName};

use crate::catalogue::CatalogueError;
use crate::violation::{self, Violation};

/// Errors of limits.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("the limit is not valid: {}", violation::list(.0))]
    Invalid(Vec<Violation>),
    #[error("{asset} on {chain} is not in the catalogue")]
    AssetUnknown { chain: ChainName, asset: AssetSymbol },
    #[error("database query failed")]
    Database(#[from] sqlx::Error),
    #[error("the catalogue cannot be read")]
    Catalogue(#[from] CatalogueError),
    #[error("a stored limit cannot be read: {0}")]
    Corrupt(String),
}

impl LimitError {
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

impl From<LimitError> for tonic::Status {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::Invalid(violations) => violation::status(&violations),
            LimitError::AssetUnknown { .. } => {
                rpc::error::failed_precondition(crate::reason::ASSET_UNKNOWN, error.to_string())
            }
            LimitError::Database(ref source) => service::database_status(&error, db::classify(source)),
            LimitError::Catalogue(source) => source.into(),
            LimitError::Corrupt(_) => rpc::error::internal(&error),
        }
    }
}
