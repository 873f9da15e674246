//! Errors that the nouns of this service share, and how they look to a caller.

use std::fmt::Display;
use std::str::FromStr;

use rpc::fields::Violations;
use tonic::Status;
use types::{AssetSymbol, ChainName, Decimals};

use crate::reason;

/// The database failed, or holds something that should not be there.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database query failed")]
    Database(#[from] sqlx::Error),
    #[error("a stored value cannot be read: {0}")]
    Corrupt(String),
}

impl StoreError {
    pub(crate) fn corrupt(column: &str, why: impl Display) -> Self {
        Self::Corrupt(format!("{column}: {why}"))
    }

    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Corrupt(_) => false,
        }
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Database(source) => service::database_status(&error, db::classify(source)),
            StoreError::Corrupt(_) => rpc::error::internal(&error),
        }
    }
}

/// Parses a stored text.
pub(crate) fn parse<T: FromStr<Err: Display>>(column: &str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|error| StoreError::corrupt(column, error))
}

/// Converts a stored number.
pub(crate) fn number<T: TryFrom<i64, Error: Display>>(column: &str, value: i64) -> Result<T, StoreError> {
    value.try_into().map_err(|error| StoreError::corrupt(column, error))
}

pub(crate) fn decimals(stored: i16) -> Result<Decimals, StoreError> {
    let stored: u8 = number("decimals", stored.into())?;
    Decimals::new(stored).map_err(|error| StoreError::corrupt("decimals", error))
}

/// Errors of the policies and limits that operators set.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("the rule is not valid: {0}")]
    Invalid(Violations),
    #[error("{asset} on {chain} is not in the catalogue")]
    AssetUnknown { chain: ChainName, asset: AssetSymbol },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for RuleError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl RuleError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            // The message with the catalogue entry may still be on its way.
            Self::AssetUnknown { .. } => true,
            Self::Store(source) => source.retry(),
            Self::Invalid(_) => false,
        }
    }
}

impl From<RuleError> for Status {
    fn from(error: RuleError) -> Self {
        match error {
            RuleError::Invalid(violations) => violations.into(),
            RuleError::AssetUnknown { .. } => {
                rpc::error::failed_precondition(reason::ASSET_UNKNOWN, error.to_string())
            }
            RuleError::Store(source) => source.into(),
        }
    }
}
