//! Why a group cannot be made or used.

use types::WalletGroupId;

use crate::keys::{KeyError, PhraseError};
use crate::seal::{SealError, UnsealError};

#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("a group's name has 1 to 64 visible characters")]
    Name,
    #[error(transparent)]
    Phrase(#[from] PhraseError),
    #[error("another group has this {0}")]
    Exists(&'static str),
    #[error("no wallet group {0}")]
    Unknown(WalletGroupId),
    #[error("the gateway is sealed")]
    Sealed,
    #[error("the seal failed")]
    Seal(#[from] SealError),
    #[error("the key cannot be derived")]
    Key(#[source] KeyError),
    #[error("the groups cannot be read or written")]
    Database(#[from] sqlx::Error),
    #[error("a stored group cannot be understood: {0}")]
    Corrupt(&'static str),
}

impl GroupError {
    /// Whether the same call may succeed later without anybody changing it.
    pub fn retry(&self) -> bool {
        match self {
            Self::Sealed => true,
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Name
            | Self::Phrase(_)
            | Self::Exists(_)
            | Self::Unknown(_)
            | Self::Seal(_)
            | Self::Key(_)
            | Self::Corrupt(_) => false,
        }
    }
}

impl From<KeyError> for GroupError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Sealed => Self::Sealed,
            KeyError::OutOfRange | KeyError::IndexTooLarge => Self::Key(error),
        }
    }
}

impl From<UnsealError> for GroupError {
    fn from(error: UnsealError) -> Self {
        match error {
            UnsealError::Seal(source) => Self::Seal(source),
            UnsealError::Database(source) => Self::Database(source),
        }
    }
}
