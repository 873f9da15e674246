//! Who is calling, and what that lets them do.
//!
//! Owns the role names. It never decides about a method: the contract names the roles, the auth layer compares.

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc};

use tonic::Status;

use crate::error;

/// What a caller may be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Asks for withdrawals.
    Requester,
    /// Approves or rejects them.
    Approver,
    /// Runs the system: catalogue, wallets, workers, repairs.
    Operator,
    /// Reads everything and changes nothing.
    Auditor,
    /// Another service of Bursar, by name.
    Service(String),
}

/// A text that names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role (requester, approver, operator, auditor or service:<name>)")]
pub struct RoleError(String);

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "requester" => Ok(Self::Requester),
            "approver" => Ok(Self::Approver),
            "operator" => Ok(Self::Operator),
            "auditor" => Ok(Self::Auditor),
            other => match other.strip_prefix("service:") {
                Some(name) if is_name(name) => Ok(Self::Service(name.to_owned())),
                _ => Err(RoleError(other.to_owned())),
            },
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requester => f.write_str("requester"),
            Self::Approver => f.write_str("approver"),
            Self::Operator => f.write_str("operator"),
            Self::Auditor => f.write_str("auditor"),
            Self::Service(name) => write!(f, "service:{name}"),
        }
    }
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the key or certificate, for audit trails ("approver-1").
    pub name: String,
    pub roles: BTreeSet<Role>,
}

impl Caller {
    #[must_use]
    pub fn has(&self, role: &Role) -> bool {
        self.roles.contains(role)
    }
}

/// The caller of a request, as the auth layer found it.
///
/// # Errors
/// `UNAUTHENTICATED` when the request passed no auth layer: a handler must not run for nobody.
pub fn caller<T>(request: &tonic::Request<T>) -> Result<&Caller, Status> {
    request
        .extensions()
        .get::<Arc<Caller>>()
        .map(AsRef::as_ref)
        .ok_or_else(|| error::unauthenticated(error::reason::NO_CREDENTIALS, "the request names no caller"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_survive_a_round_trip_and_nonsense_is_refused() {
        for text in ["requester", "approver", "operator", "auditor", "service:signer-gateway"] {
            assert_eq!(text.parse::<Role>().map(|role| role.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "admin", "service:", "service:Signer", "Operator"] {
            assert!(text.parse::<Role>().is_err(), "{text} parsed");
        }
    }
}
