//! Why no bytes came back.

use crate::builder::BuildError;
use crate::keys::KeyError;
use crate::policy::Refusal;

#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A rule said no; the audit log has the decision.
    #[error("{}", .0.detail)]
    Refused(Refusal),
    #[error("no transaction can be built from this request")]
    Build(#[from] BuildError),
    #[error("the gateway is sealed")]
    Sealed,
    #[error("no wallet group {0}")]
    UnknownGroup(types::WalletGroupId),
    #[error("the key cannot be used")]
    Key(#[source] KeyError),
    /// The database failed. Whether the signature was recorded is unknown; a retry with the same key finds out.
    #[error("the ledger cannot be written")]
    Ledger(#[source] sqlx::Error),
    #[error("the ledger could not commit")]
    LedgerUnavailable,
    #[error("too many signing requests are waiting")]
    Overloaded,
    #[error("a stored row cannot be understood: {0}")]
    Corrupt(&'static str),
}

impl SigningError {
    /// Stable reason for the log, where a request is refused before the rules are asked. `None` for what the rules decided and
    /// for faults.
    pub(super) fn early_reason(&self) -> Option<&'static str> {
        match self {
            Self::Build(_) => Some("request.build"),
            Self::UnknownGroup(_) => Some("request.unknown_group"),
            Self::Key(_) => Some("request.derivation_index"),
            Self::Refused(_)
            | Self::Sealed
            | Self::Ledger(_)
            | Self::LedgerUnavailable
            | Self::Overloaded
            | Self::Corrupt(_) => None,
        }
    }
}

impl From<KeyError> for SigningError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Sealed => Self::Sealed,
            KeyError::OutOfRange | KeyError::IndexTooLarge => Self::Key(error),
        }
    }
}

impl From<crate::wallet::WalletError> for SigningError {
    fn from(error: crate::wallet::WalletError) -> Self {
        use crate::wallet::WalletError;
        match error {
            WalletError::Group(source) => source.into(),
            WalletError::Database(source) => Self::Ledger(source),
            WalletError::Corrupt(what) => Self::Corrupt(what),
            WalletError::UnknownChain(_)
            | WalletError::Format
            | WalletError::OtherAddress(_)
            | WalletError::Purpose
            | WalletError::GroupNotListed(_)
            | WalletError::NotColdStorage
            | WalletError::Exists(_) => Self::Corrupt("operation_wallets"),
        }
    }
}

impl From<crate::group::GroupError> for SigningError {
    fn from(error: crate::group::GroupError) -> Self {
        use crate::group::GroupError;
        match error {
            GroupError::Sealed => Self::Sealed,
            GroupError::Unknown(id) => Self::UnknownGroup(id),
            GroupError::Key(source) => Self::Key(source),
            GroupError::Database(source) => Self::Ledger(source),
            GroupError::Corrupt(what) => Self::Corrupt(what),
            GroupError::Seal(_) => Self::Corrupt("sealed_seed"),
            GroupError::Name | GroupError::Phrase(_) | GroupError::Exists(_) => Self::Corrupt("wallet_group"),
        }
    }
}
