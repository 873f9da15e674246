//! Errors as gRPC statuses. Refusals explain themselves and name the field; faults say "internal error".

use std::time::Duration;

use ::rpc::error;
use tonic::{Code, Status};

use crate::audit::AuditError;
use crate::builder::BuildError;
use crate::freeze::FreezeError;
use crate::group::GroupError;
use crate::policy::{Refusal, Rule};
use crate::seal::SealError;
use crate::signing::SigningError;
use crate::wallet::WalletError;

/// When to retry while the gateway is sealed or its database is unavailable.
const SOON: Duration = Duration::from_secs(1);
/// When to retry while a limit over time is reached.
const LATER: Duration = Duration::from_secs(60);

pub(super) fn signing(error: SigningError) -> Status {
    match error {
        SigningError::Refused(refusal) => refused(&refusal),
        SigningError::Build(source) => build(&source),
        SigningError::Sealed => sealed(),
        SigningError::UnknownGroup(id) => error::not_found("wallet group", id),
        SigningError::Key(source) => error::invalid("derivation_index", source.to_string()),
        SigningError::Ledger(source) => database(&source, &source),
        SigningError::LedgerUnavailable => error::unavailable(
            error::reason::DEPENDENCY_UNAVAILABLE,
            "the ledger could not commit; retry with the same key",
            SOON,
        ),
        SigningError::Overloaded => error::resource_exhausted(
            error::reason::OVERLOADED,
            "too many signing requests are waiting",
            SOON,
        ),
        SigningError::Corrupt(_) => error::internal(&error),
    }
}

fn refused(refusal: &Refusal) -> Status {
    let reason = refusal.reason.replace('.', "_").to_ascii_uppercase();
    let metadata = [
        ("rule", refusal.rule.into_str()),
        ("audit_reason", refusal.reason),
        ("field", refusal.field.unwrap_or_default()),
    ];
    let code = match refusal.rule {
        Rule::Idempotency => {
            return error::already_exists(&reason, refusal.field.unwrap_or("request"), &refusal.detail);
        }
        Rule::LimitWindow => return error::resource_exhausted(&reason, &refusal.detail, LATER),
        Rule::Caller => Code::PermissionDenied,
        // Another worker holds the job: a retry with this epoch is refused again.
        Rule::Fence => Code::Aborted,
        Rule::Freeze | Rule::PaymentGuard => Code::FailedPrecondition,
        Rule::Chain
        | Rule::Source
        | Rule::Asset
        | Rule::Destination
        | Rule::Fee
        | Rule::Approvals
        | Rule::VoidAttestation
        | Rule::LimitTransaction => Code::PermissionDenied,
    };
    error::refusal(code, &reason, &refusal.detail, &metadata)
}

fn build(error: &BuildError) -> Status {
    match error {
        BuildError::WrongKind { field } | BuildError::OutOfRange { field, .. } => {
            error::invalid(*field, error.to_string())
        }
        BuildError::Unsupported(_) => error::invalid("tx_intent.action", error.to_string()),
    }
}

pub(super) fn group(error: GroupError) -> Status {
    match error {
        GroupError::Name => error::invalid("name", error.to_string()),
        GroupError::Phrase(source) => error::invalid("recovery_phrase", source.to_string()),
        GroupError::Exists(field) => error::already_exists("GROUP_EXISTS", field, error.to_string()),
        GroupError::Unknown(id) => error::not_found("wallet group", id),
        GroupError::Sealed => sealed(),
        GroupError::Seal(source) => match source {
            SealError::WrongKey => error::permission_denied("WRONG_UNSEAL_KEY", source.to_string()),
            SealError::KeyTooShort => error::invalid("unseal_key", source.to_string()),
            SealError::Corrupt
            | SealError::BadParameters
            | SealError::UnknownVersion(_)
            | SealError::NoRandomness
            | SealError::Keyring => error::internal(&source),
        },
        GroupError::Key(source) => error::invalid("derivation_index", source.to_string()),
        GroupError::Database(ref source) => database(source, &error),
        GroupError::Corrupt(_) => error::internal(&error),
    }
}

pub(super) fn wallet(error: WalletError) -> Status {
    match error {
        WalletError::UnknownChain(_) => error::invalid("wallet.chain", error.to_string()),
        WalletError::Format => error::invalid("wallet.address", error.to_string()),
        WalletError::OtherAddress(_) => {
            error::refusal(Code::PermissionDenied, "WALLET_OTHER_ADDRESS", error.to_string(), &[])
        }
        WalletError::GroupNotListed(_) => {
            error::permission_denied("WALLET_GROUP_NOT_LISTED", error.to_string())
        }
        WalletError::Purpose => error::permission_denied("WALLET_PURPOSE", error.to_string()),
        WalletError::NotColdStorage => error::permission_denied("WALLET_NOT_COLD_STORAGE", error.to_string()),
        WalletError::Exists(field) => error::already_exists("WALLET_EXISTS", field, error.to_string()),
        WalletError::Group(source) => group(source),
        WalletError::Database(ref source) => database(source, &error),
        WalletError::Corrupt(_) => error::internal(&error),
    }
}

pub(super) fn freeze(error: FreezeError) -> Status {
    match error {
        FreezeError::UnknownChain(_) => error::invalid("chain", error.to_string()),
        FreezeError::Reason => error::invalid("reason", error.to_string()),
        FreezeError::Database(ref source) => database(source, &error),
    }
}

pub(super) fn audit(error: AuditError) -> Status {
    match error {
        AuditError::Database(ref source) => database(source, &error),
    }
}

fn sealed() -> Status {
    error::unavailable("SEALED", "the gateway is sealed", SOON)
}

fn database(source: &sqlx::Error, error: &(dyn std::error::Error + 'static)) -> Status {
    service::database_status(error, db::classify(source))
}
