//! Why something cannot be done: the errors of the whole service.

use std::time::Duration;

use types::{ChainName, JobId, TxHash};

use crate::watch::AddError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A watch names a chain whose settings have not arrived.
    #[error("chain {chain} is not known here yet")]
    UnknownChain { chain: ChainName },
    #[error("no chain {chain}")]
    ChainNotFound { chain: ChainName },
    #[error("chain {chain} is of another kind or network; another network needs another name")]
    OtherNetwork { chain: ChainName },
    #[error("no watch for job {job}")]
    WatchNotFound { job: JobId },
    #[error("job {job} is already watched with another {field}")]
    Differs { job: JobId, field: &'static str },
    #[error(transparent)]
    Add(#[from] AddError),
    #[error("transaction {hash} is watched for another job")]
    HashTaken { hash: TxHash },
    /// Another replica follows this chain now. Nothing of the transaction was written.
    #[error("the lease over chain {chain} is lost")]
    LeaseLost { chain: ChainName },
    #[error("watch of job {job} was changed by somebody else")]
    Conflict { job: JobId },
    #[error("a stored {what} cannot be read: {reason}")]
    Corrupt { what: &'static str, reason: String },
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    #[error("the outbox failed")]
    Outbox(#[from] db::outbox::OutboxError),
    #[error(transparent)]
    Chain(#[from] chain::ChainError),
}

impl Error {
    /// A stored value that this binary cannot read.
    pub fn corrupt(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt { what, reason: reason.to_string() }
    }

    /// Whether the same request may succeed later without anybody changing anything.
    pub fn retry(&self) -> bool {
        match self {
            Self::UnknownChain { .. } | Self::LeaseLost { .. } | Self::Conflict { .. } | Self::Chain(_) => {
                true
            }
            Self::ChainNotFound { .. }
            | Self::OtherNetwork { .. }
            | Self::WatchNotFound { .. }
            | Self::Differs { .. }
            | Self::Add(_)
            | Self::HashTaken { .. }
            | Self::Corrupt { .. } => false,
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Outbox(source) => source.is_transient(),
        }
    }
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        use rpc::error as refuse;
        let text = error.to_string();
        match &error {
            // The chain arrives by another message, which may be a moment behind.
            Error::UnknownChain { .. } => {
                refuse::unavailable("CHAIN_UNKNOWN", text, Duration::from_millis(200))
            }
            Error::ChainNotFound { chain } => refuse::not_found("chain", chain),
            Error::OtherNetwork { .. } => refuse::failed_precondition("CHAIN_DIFFERS", text),
            Error::WatchNotFound { job } => refuse::not_found("watch", job),
            Error::Differs { field, .. } => refuse::already_exists("WATCH_DIFFERS", field, text),
            Error::Add(AddError::Differs { field, .. }) => {
                refuse::already_exists("TRANSACTION_DIFFERS", field, text)
            }
            Error::Add(AddError::OtherBinding { .. }) => refuse::failed_precondition("ROUND_OPEN", text),
            Error::Add(AddError::Settled { .. }) => refuse::failed_precondition("ALREADY_SETTLED", text),
            Error::HashTaken { .. } => refuse::already_exists("HASH_TAKEN", "transactions", text),
            Error::LeaseLost { .. } | Error::Conflict { .. } => {
                refuse::aborted(refuse::reason::CONFLICT, text)
            }
            Error::Database(source) => service::database_status(&error, db::classify(source)),
            Error::Outbox(source) => service::database_status(&error, source.fault()),
            Error::Corrupt { .. } | Error::Chain(_) => refuse::internal(&error),
        }
    }
}
