//! Why something about a chain cannot be done.

use types::ChainName;

#[derive(Debug, thiserror::Error)]
pub enum ChainsError {
    #[error("no chain {chain}")]
    NotFound { chain: ChainName },
    #[error("chain {chain} is of another kind or network; another network needs another name")]
    OtherNetwork { chain: ChainName },
    #[error("a stored chain cannot be read: {reason}")]
    Corrupt { reason: String },
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl ChainsError {
    pub fn retry(&self) -> bool {
        match self {
            Self::NotFound { .. } | Self::OtherNetwork { .. } | Self::Corrupt { .. } => false,
            Self::Database(source) => db::classify(source).is_transient(),
        }
    }
}

impl From<ChainsError> for tonic::Status {
    fn from(error: ChainsError) -> Self {
        use rpc::error as refuse;
        match &error {
            ChainsError::NotFound { chain } => refuse::not_found("chain", chain),
            ChainsError::OtherNetwork { .. } => {
                refuse::failed_precondition("CHAIN_DIFFERS", error.to_string())
            }
            ChainsError::Database(source) => service::database_status(&error, db::classify(source)),
            ChainsError::Corrupt { .. } => refuse::internal(&error),
        }
    }
}
