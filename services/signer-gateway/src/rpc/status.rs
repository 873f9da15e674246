//! Errors as gRPC statuses. Refusals explain themselves and name the field; faults say "internal error".

use std::time::Duration;

use ::rpc::error as wire;
use tonic::{Code, Status};

use crate::audit::AuditError;
use crate::builder::BuildError;
use crate::freeze::FreezeError;
use crate::group::GroupError;
use crate::policy::{Refusal, Rule};
use crate::seal::SealError;
use crate::signing::SigningError;
use crate::wallet::WalletError;

/// When to come back while the gateway is sealed or its database is away.
const SOON: Duration = Duration::from_secs(1);
/// When to come back while a limit over time is reached.
const LATER: Duration = Duration::from_secs(60);

pub(super) fn signing(error: SigningError) -> Status {
    match error {
        SigningError::Refused(refusal) => refused(&refusal),
        SigningError::Build(source) => build(&source),
        SigningError::Sealed => sealed(),
        SigningError::UnknownGroup(id) => wire::not_found("wallet group", id),
        SigningError::Key(source) => wire::invalid("derivation_index", source.to_string()),
        SigningError::Ledger(source) => database(&source, &source),
        SigningError::LedgerUnavailable => away("the ledger could not commit; ask again with the same key"),
        SigningError::Overloaded => {
            wire::resource_exhausted(wire::reason::OVERLOADED, "too many signing requests are waiting", SOON)
        }
        SigningError::Corrupt(_) => wire::internal(&error),
    }
}

fn refused(refusal: &Refusal) -> Status {
    let reason = refusal.reason.replace('.', "_").to_ascii_uppercase();
    let metadata = [
        ("rule", refusal.rule.as_str()),
        ("audit_reason", refusal.reason),
        ("field", refusal.field.unwrap_or_default()),
    ];
    let code = match refusal.rule {
        Rule::Idempotency => {
            return wire::already_exists(&reason, refusal.field.unwrap_or("request"), &refusal.detail);
        }
        Rule::LimitWindow => return wire::resource_exhausted(&reason, &refusal.detail, LATER),
        Rule::Caller => Code::PermissionDenied,
        // Somebody else holds the job: asking again with this epoch is futile.
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
    wire::refusal(code, &reason, &refusal.detail, &metadata)
}

fn build(error: &BuildError) -> Status {
    match error {
        BuildError::WrongKind { field } | BuildError::OutOfRange { field, .. } => {
            wire::invalid(*field, error.to_string())
        }
        BuildError::NoCancellation | BuildError::NoContractCall => {
            wire::invalid("tx_intent.action", error.to_string())
        }
    }
}

pub(super) fn group(error: GroupError) -> Status {
    match error {
        GroupError::Name => wire::invalid("name", error.to_string()),
        GroupError::Phrase(source) => wire::invalid("recovery_phrase", source.to_string()),
        GroupError::Exists(field) => wire::already_exists("GROUP_EXISTS", field, error.to_string()),
        GroupError::Unknown(id) => wire::not_found("wallet group", id),
        GroupError::Sealed => sealed(),
        GroupError::Seal(source) => match source {
            SealError::WrongKey => wire::permission_denied("WRONG_UNSEAL_KEY", source.to_string()),
            SealError::KeyTooShort => wire::invalid("unseal_key", source.to_string()),
            SealError::Corrupt
            | SealError::BadParameters
            | SealError::UnknownVersion(_)
            | SealError::NoRandomness => wire::internal(&source),
        },
        GroupError::Key(source) => wire::invalid("derivation_index", source.to_string()),
        GroupError::Database(ref source) => database(source, &error),
        GroupError::Corrupt(_) => wire::internal(&error),
    }
}

pub(super) fn wallet(error: WalletError) -> Status {
    match error {
        WalletError::UnknownChain(_) => wire::invalid("wallet.chain", error.to_string()),
        WalletError::Format => wire::invalid("wallet.address", error.to_string()),
        WalletError::OtherAddress(_) => {
            wire::refusal(Code::PermissionDenied, "WALLET_OTHER_ADDRESS", error.to_string(), &[])
        }
        WalletError::GroupNotListed(_) => {
            wire::permission_denied("WALLET_GROUP_NOT_LISTED", error.to_string())
        }
        WalletError::Purpose => wire::permission_denied("WALLET_PURPOSE", error.to_string()),
        WalletError::NotColdStorage => wire::permission_denied("WALLET_NOT_COLD_STORAGE", error.to_string()),
        WalletError::Exists(field) => wire::already_exists("WALLET_EXISTS", field, error.to_string()),
        WalletError::Group(source) => group(source),
        WalletError::Database(ref source) => database(source, &error),
        WalletError::Corrupt(_) => wire::internal(&error),
    }
}

pub(super) fn freeze(error: FreezeError) -> Status {
    match error {
        FreezeError::UnknownChain(_) => wire::invalid("chain", error.to_string()),
        FreezeError::Reason => wire::invalid("reason", error.to_string()),
        FreezeError::Database(ref source) => database(source, &error),
    }
}

pub(super) fn audit(error: AuditError) -> Status {
    match error {
        AuditError::Database(ref source) => database(source, &error),
    }
}

fn sealed() -> Status {
    wire::unavailable("SEALED", "the gateway is sealed", SOON)
}

fn away(text: &str) -> Status {
    wire::unavailable(wire::reason::DEPENDENCY_UNAVAILABLE, text, SOON)
}

fn database(source: &sqlx::Error, error: &(dyn std::error::Error + 'static)) -> Status {
    service::database_status(error, db::classify(source))
}
