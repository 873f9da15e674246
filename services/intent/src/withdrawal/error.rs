//! Errors of withdrawal requests, and how they look to a caller.

use db::BatchError;
use rpc::fields::Violations;
use tonic::{Code, Status};
use types::{AssetSymbol, ChainName, WithdrawalId};

use super::approval::Refusal;
use super::domain::IllegalTransition;
use crate::error::StoreError;
use crate::limit::Limit;
use crate::reason;

#[derive(Debug, thiserror::Error)]
pub enum WithdrawalError {
    #[error("the request is not valid: {0}")]
    Invalid(Violations),
    #[error("no withdrawal {0}")]
    NotFound(WithdrawalId),
    #[error("the idempotency key was used before with another {}", .fields.join(", "))]
    KeyReused { fields: Vec<&'static str> },
    #[error("withdrawal {id} exists with another {}", .fields.join(", "))]
    ImportDiffers { id: WithdrawalId, fields: Vec<&'static str> },
    #[error("no policy says how many approvals {asset} on {chain} needs")]
    NoPolicy { chain: ChainName, asset: AssetSymbol },
    #[error("the limit of {} would be exceeded", .0.describe())]
    LimitExceeded(Box<Limit>),
    #[error("the approval does not count")]
    Refused(#[source] Refusal),
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    #[error("only the requester of a withdrawal, or an operator, may cancel it")]
    NotTheRequester,
    #[error("somebody else changed the withdrawal at the same time")]
    Conflict(#[from] db::Conflict),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the outbox cannot be written")]
    Outbox(#[from] db::outbox::OutboxError),
}

impl From<sqlx::Error> for WithdrawalError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl BatchError for WithdrawalError {
    fn retry(&self) -> bool {
        WithdrawalError::retry(self)
    }

    fn not_now() -> Self {
        sqlx::Error::PoolTimedOut.into()
    }
}

impl WithdrawalError {
    /// Whether the same call may succeed later.
    pub fn retry(&self) -> bool {
        match self {
            Self::Conflict(_) => true,
            Self::Store(source) => source.retry(),
            Self::Outbox(source) => source.is_transient(),
            Self::Invalid(_)
            | Self::NotFound(_)
            | Self::KeyReused { .. }
            | Self::ImportDiffers { .. }
            | Self::NoPolicy { .. }
            | Self::LimitExceeded(_)
            | Self::Refused(_)
            | Self::Illegal(_)
            | Self::NotTheRequester => false,
        }
    }
}

impl From<WithdrawalError> for Status {
    fn from(error: WithdrawalError) -> Self {
        let text = error.to_string();
        match error {
            WithdrawalError::Invalid(violations) => violations.into(),
            WithdrawalError::NotFound(id) => rpc::error::not_found("withdrawal", id),
            WithdrawalError::KeyReused { fields } => {
                rpc::error::already_exists(reason::IDEMPOTENCY_KEY_REUSED, &fields.join(","), text)
            }
            WithdrawalError::ImportDiffers { fields, .. } => {
                rpc::error::already_exists(reason::IMPORT_DIFFERS, &fields.join(","), text)
            }
            WithdrawalError::NoPolicy { .. } => {
                let text = format!(
                    "{text}: store an approval policy, or configure policy.default_required_approvals"
                );
                rpc::error::failed_precondition(reason::NO_APPROVAL_POLICY, text)
            }
            WithdrawalError::LimitExceeded(limit) => {
                let id = limit.id.to_string();
                let facts =
                    [("limit_id", id.as_str()), ("scope", limit.scope.into_str()), ("field", "amount")];
                // Not RESOURCE_EXHAUSTED: that invites an immediate retry, and the window may be a month.
                rpc::error::refusal(Code::FailedPrecondition, reason::LIMIT_EXCEEDED, text, &facts)
            }
            WithdrawalError::Refused(refusal) => refused(&refusal),
            WithdrawalError::Illegal(illegal) => {
                let status = illegal.status.into_str();
                let facts = [("status", status), ("event", illegal.event)];
                rpc::error::refusal(Code::FailedPrecondition, reason::ILLEGAL_TRANSITION, text, &facts)
            }
            WithdrawalError::NotTheRequester => {
                rpc::error::permission_denied(reason::NOT_THE_REQUESTER, text)
            }
            WithdrawalError::Conflict(_) => rpc::error::aborted(rpc::error::reason::CONFLICT, text),
            WithdrawalError::Outbox(db::outbox::OutboxError::Database(ref source)) => {
                service::database_status(&error, db::classify(source))
            }
            WithdrawalError::Outbox(_) => rpc::error::internal(&error),
            WithdrawalError::Store(source) => source.into(),
        }
    }
}

fn refused(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::Requester | Refusal::UnknownApprover | Refusal::NotInPolicy | Refusal::BadSignature => {
            Code::PermissionDenied
        }
        Refusal::NotPending(_) | Refusal::Expired => Code::FailedPrecondition,
        Refusal::ValidTooLong => Code::InvalidArgument,
        Refusal::AlreadyApproved => Code::AlreadyExists,
    };
    rpc::error::refusal(code, refusal.reason(), refusal.to_string(), &[])
}
