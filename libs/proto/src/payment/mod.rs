//! The one protobuf conversion of each type of `libs/payment`.
//!
//! ```text
//! transaction   signer's TxIntent and parameters  <->  Action, Binding and Price
//! watch         confirmation's watched transactions and expected effects  <->  WatchedTransaction, Effect
//! verdict       execution's Verdict  <->  Verdict
//! ```
//!
//! Reading checks the form of every field and names the one that is wrong. Rules (limits, ranges of a chain, who may ask for
//! what) belong to the services.

mod transaction;
mod verdict;
mod watch;

use std::fmt::Display;
use std::str::FromStr;

pub use transaction::{
    TransactionRequest, read_transaction, read_void_attestation, write_transaction, write_void_attestation,
};
pub use verdict::{read_verdict, write_verdict};
pub use watch::{read_effect, read_watched, write_effect, write_watched};

/// A field of a message that cannot be read, or a value that does not fit into its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// As the caller knows it, for instance `tx_intent.to`.
    pub field: String,
    pub problem: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, problem: impl Display) -> Self {
        Self { field: field.into(), problem: problem.to_string() }
    }

    pub fn missing(field: impl Into<String>) -> Self {
        Self::new(field, "is missing")
    }
}

fn value<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, FieldError> {
    text.parse().map_err(|error| FieldError::new(field, error))
}

/// Collects the mistakes of a message, so that the caller learns all of them at once.
#[derive(Debug, Default)]
struct Mistakes(Vec<FieldError>);

impl Mistakes {
    fn take<T>(&mut self, read: Result<T, FieldError>) -> Option<T> {
        read.map_err(|error| self.0.push(error)).ok()
    }

    fn finish<T>(self, value: Option<T>) -> Result<T, Vec<FieldError>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            Some(_) | None => Err(self.0),
        }
    }
}
