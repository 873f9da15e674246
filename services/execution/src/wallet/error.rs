//! What can go wrong with wallets.

use std::time::Duration;

use chain::ChainError;
use rpc::error::{already_exists, invalid, not_found, reason, unavailable};
use tonic::Status;
use types::ChainName;

use crate::catalogue::CatalogueError;
use crate::chains::ChainsError;

#[derive(Debug, thiserror::Error)]
pub enum WalletError {
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
    #[error("no chain {0}")]
    NoChain(ChainName),
    #[error("no operation wallet {address} on {chain}")]
    NoWallet { chain: ChainName, address: String },
    #[error("the key of a wallet cannot change once set")]
    KeyFixed,
    #[error("another wallet of this chain has the same key")]
    KeyTaken,
    #[error("the chain's nodes gave no balances")]
    Chain(#[from] ChainError),
    #[error(transparent)]
    Chains(#[from] ChainsError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error("the wallets' database failed")]
    Database(#[from] sqlx::Error),
    #[error("jobs that wait for liquidity could not be woken")]
    Queue(#[from] db::QueueError),
}

impl WalletError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            Self::Invalid { .. }
            | Self::NoChain(_)
            | Self::NoWallet { .. }
            | Self::KeyFixed
            | Self::KeyTaken => false,
            Self::Chain(source) => source.is_transient(),
            Self::Chains(source) => source.fault().is_transient(),
            Self::Catalogue(source) => source.retry(),
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Queue(source) => source.is_transient(),
        }
    }
}

impl From<WalletError> for Status {
    fn from(error: WalletError) -> Self {
        const LATER: Duration = Duration::from_secs(1);
        match error {
            WalletError::Invalid { field, problem } => invalid(field, problem),
            WalletError::NoChain(chain) => not_found("chain", chain),
            WalletError::NoWallet { address, .. } => not_found("operation wallet", address),
            WalletError::KeyFixed => {
                already_exists("FIELD_FIXED", "wallet.derivation_index", error.to_string())
            }
            WalletError::KeyTaken => {
                already_exists("KEY_TAKEN", "wallet.derivation_index", error.to_string())
            }
            WalletError::Catalogue(source) => source.into(),
            WalletError::Chain(_) => {
                unavailable(reason::DEPENDENCY_UNAVAILABLE, "the chain's nodes do not answer", LATER)
            }
            WalletError::Chains(ref source) => service::database_status(&error, source.fault()),
            WalletError::Database(ref source) => service::database_status(&error, db::classify(source)),
            WalletError::Queue(ref source) => service::database_status(&error, source.fault()),
        }
    }
}
