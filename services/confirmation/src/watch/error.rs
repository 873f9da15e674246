//! Why something about a watch cannot be done.

use types::{ChainName, JobId, TxHash};

use super::put::AddError;

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("chain {chain} is not known here yet")]
    UnknownChain { chain: ChainName },
    #[error("no watch for job {job}")]
    NotFound { job: JobId },
    /// The job is already watched for something else.
    #[error("job {job} is already watched with another {field}")]
    Differs { job: JobId, field: &'static str },
    #[error(transparent)]
    Add(#[from] AddError),
    #[error("transaction {hash} is watched for another job")]
    HashTaken { hash: TxHash },
    /// Another replica runs the loop over this chain now; whatever was being done is void.
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
}

impl WatchError {
    /// Whether the same thing may succeed later without anybody changing anything.
    pub fn retry(&self) -> bool {
        match self {
            Self::UnknownChain { .. } | Self::LeaseLost { .. } | Self::Conflict { .. } => true,
            Self::NotFound { .. }
            | Self::Differs { .. }
            | Self::Add(_)
            | Self::HashTaken { .. }
            | Self::Corrupt { .. } => false,
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Outbox(source) => source.is_transient(),
        }
    }
}

/// A stored value that this binary cannot read.
pub fn corrupt(what: &'static str, reason: impl std::fmt::Display) -> WatchError {
    WatchError::Corrupt { what, reason: reason.to_string() }
}

impl From<WatchError> for tonic::Status {
    fn from(error: WatchError) -> Self {
        use rpc::error as refuse;
        let text = error.to_string();
        match &error {
            // The chain arrives by another message, which may be a moment behind.
            WatchError::UnknownChain { .. } => {
                refuse::unavailable("CHAIN_UNKNOWN", text, std::time::Duration::from_millis(200))
            }
            WatchError::NotFound { job } => refuse::not_found("watch", job),
            WatchError::Differs { field, .. } => refuse::already_exists("WATCH_DIFFERS", field, text),
            WatchError::Add(AddError::Differs { field, .. }) => {
                refuse::already_exists("TRANSACTION_DIFFERS", field, text)
            }
            WatchError::Add(AddError::OtherBinding { .. }) => refuse::failed_precondition("ROUND_OPEN", text),
            WatchError::Add(AddError::Settled { .. }) => refuse::failed_precondition("ALREADY_SETTLED", text),
            WatchError::HashTaken { .. } => refuse::already_exists("HASH_TAKEN", "transactions", text),
            WatchError::LeaseLost { .. } | WatchError::Conflict { .. } => {
                refuse::aborted(refuse::reason::CONFLICT, text)
            }
            WatchError::Database(source) => service::database_status(&error, db::classify(source)),
            WatchError::Outbox(source) => service::database_status(&error, source.fault()),
            WatchError::Corrupt { .. } => refuse::internal(&error),
        }
    }
}
