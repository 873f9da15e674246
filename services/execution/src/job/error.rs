//! What can go wrong with jobs.

use std::time::Duration;

use db::QueueError;
use db::outbox::OutboxError;
use rpc::error::{already_exists, failed_precondition, internal, invalid, not_found, reason, unavailable};
use tonic::Status;
use types::{AssetSymbol, ChainName, JobId, TxHash};

use super::IllegalTransition;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
    #[error("no asset {asset} on {chain}")]
    NoAsset { chain: ChainName, asset: AssetSymbol },
    #[error("no job {0}")]
    NoJob(String),
    #[error("no lane of {address} on {chain}")]
    NoLane { chain: ChainName, address: String },
    #[error("a job for this withdrawal exists with another {field}")]
    OtherPayload { field: &'static str },
    #[error("{tx_hash} is not a transaction of job {job}")]
    ForeignHash { job: JobId, tx_hash: TxHash },
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    #[error("another transaction changed the job at the same time")]
    Conflict,
    #[error("the database does not answer")]
    Unavailable,
    #[error("a stored document cannot be written or read")]
    Document(#[from] serde_json::Error),
    #[error("the jobs' database failed")]
    Database(#[from] sqlx::Error),
    #[error("the job could not be queued")]
    Queue(#[from] QueueError),
    #[error("the messages to the other services could not be written")]
    Outbox(#[from] OutboxError),
}

impl JobError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            Self::Invalid { .. }
            | Self::NoAsset { .. }
            | Self::NoJob(_)
            | Self::NoLane { .. }
            | Self::OtherPayload { .. }
            | Self::ForeignHash { .. }
            | Self::Illegal(_)
            | Self::Document(_) => false,
            Self::Conflict | Self::Unavailable => true,
            Self::Database(source) => db::classify(source).is_transient(),
            Self::Queue(source) => source.is_transient(),
            Self::Outbox(source) => source.is_transient(),
        }
    }
}

impl db::BatchError for JobError {
    fn retry(&self) -> bool {
        JobError::retry(self)
    }

    fn not_now() -> Self {
        Self::Unavailable
    }
}

impl From<JobError> for Status {
    fn from(error: JobError) -> Self {
        const LATER: Duration = Duration::from_secs(1);
        match &error {
            JobError::Invalid { field, problem } => invalid(*field, problem.clone()),
            JobError::NoAsset { asset, .. } => not_found("asset", asset),
            JobError::NoJob(id) => not_found("job", id),
            JobError::NoLane { address, .. } => not_found("lane", address),
            JobError::OtherPayload { field } => already_exists("OTHER_PAYLOAD", field, error.to_string()),
            JobError::ForeignHash { .. } => invalid("tx_hash", error.to_string()),
            JobError::Illegal(_) => failed_precondition("ILLEGAL_TRANSITION", error.to_string()),
            JobError::Conflict => rpc::error::aborted(reason::CONFLICT, error.to_string()),
            JobError::Unavailable => unavailable(reason::DEPENDENCY_UNAVAILABLE, error.to_string(), LATER),
            JobError::Document(_) => internal(&error),
            JobError::Database(source) => service::database_status(&error, db::classify(source)),
            JobError::Queue(source) => service::database_status(&error, source.fault()),
            JobError::Outbox(source) => service::database_status(&error, source.fault()),
        }
    }
}
