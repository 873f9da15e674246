//! gRPC errors with `google.rpc` details.
//!
//! Owns how a refusal or fault looks on the wire: `BadRequest` names fields, `ErrorInfo` (domain `bursar`) carries a reason
//! that programs may match on, `RetryInfo` says when to come back. It never prints the source of a fault to a caller.

use std::{collections::HashMap, error::Error, time::Duration};

pub use telemetry::causes as chain;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The `domain` of every `ErrorInfo`.
pub const DOMAIN: &str = "bursar";

/// Reasons that programs may match on. They never change their meaning; contexts add their own.
pub mod reason {
    /// A field of the request is wrong.
    pub const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";
    /// The named thing does not exist.
    pub const NOT_FOUND: &str = "NOT_FOUND";
    /// The request carries no key and no known certificate.
    pub const NO_CREDENTIALS: &str = "NO_CREDENTIALS";
    /// The key is not known here.
    pub const BAD_CREDENTIALS: &str = "BAD_CREDENTIALS";
    /// The caller lacks every role that the method admits.
    pub const ROLE_REQUIRED: &str = "ROLE_REQUIRED";
    /// The method's contract names no roles, so nobody may call it.
    pub const NO_ROLES_DECLARED: &str = "NO_ROLES_DECLARED";
    /// The server has as many requests in flight as it admits.
    pub const OVERLOADED: &str = "OVERLOADED";
    /// The server has as many open streams as it admits.
    pub const TOO_MANY_STREAMS: &str = "TOO_MANY_STREAMS";
    /// The server is shutting down.
    pub const DRAINING: &str = "DRAINING";
    /// The deadline passed; whether the work was done is unknown.
    pub const DEADLINE_EXCEEDED: &str = "DEADLINE_EXCEEDED";
    /// The message is larger than the server takes.
    pub const MESSAGE_TOO_LARGE: &str = "MESSAGE_TOO_LARGE";
    /// Somebody else changed the same thing first.
    pub const CONFLICT: &str = "CONFLICT";
    /// Something this service depends on does not answer.
    pub const DEPENDENCY_UNAVAILABLE: &str = "DEPENDENCY_UNAVAILABLE";
    /// A fault; the operators' log has the same `error_id`.
    pub const INTERNAL: &str = "INTERNAL";
}

/// Facts that go along with a reason.
pub type Metadata<'a> = &'a [(&'a str, &'a str)];

fn info(reason: &str, metadata: Metadata<'_>) -> ErrorDetails {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ErrorDetails::with_error_info(reason, DOMAIN, metadata)
}

/// Any code with a reason and facts.
#[must_use]
pub fn refusal(code: Code, reason: &str, text: impl Into<String>, metadata: Metadata<'_>) -> Status {
    Status::with_error_details(code, text, info(reason, metadata))
}

/// One field is wrong.
#[must_use]
pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Status {
    invalid_all([(field.into(), description.into())])
}

/// Several fields are wrong. All are named, so that the caller can correct them at once.
#[must_use]
pub fn invalid_all(violations: impl IntoIterator<Item = (String, String)>) -> Status {
    let mut details = info(reason::INVALID_ARGUMENT, &[]);
    let mut text = String::new();
    for (field, description) in violations {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&field);
        text.push_str(": ");
        text.push_str(&description);
        details.add_bad_request_violation(field, description);
    }
    Status::with_error_details(Code::InvalidArgument, text, details)
}

/// There is no such thing.
#[must_use]
pub fn not_found(resource: &str, id: impl std::fmt::Display) -> Status {
    let id = id.to_string();
    let mut details = info(reason::NOT_FOUND, &[("resource", resource), ("id", &id)]);
    details.set_resource_info(resource, &id, "", "");
    Status::with_error_details(Code::NotFound, format!("no {resource} {id}"), details)
}

/// There is one already, and it differs in `field`.
#[must_use]
pub fn already_exists(reason: &str, field: &str, text: impl Into<String>) -> Status {
    let text = text.into();
    let mut details = info(reason, &[("field", field)]);
    details.add_bad_request_violation(field, &text);
    Status::with_error_details(Code::AlreadyExists, text, details)
}

/// The thing is not in a state that allows this.
#[must_use]
pub fn failed_precondition(reason: &str, text: impl Into<String>) -> Status {
    refusal(Code::FailedPrecondition, reason, text, &[])
}

/// Somebody else changed it first; the caller must read it again and decide again.
#[must_use]
pub fn aborted(reason: &str, text: impl Into<String>) -> Status {
    refusal(Code::Aborted, reason, text, &[])
}

#[must_use]
pub fn permission_denied(reason: &str, text: impl Into<String>) -> Status {
    refusal(Code::PermissionDenied, reason, text, &[])
}

#[must_use]
pub fn unauthenticated(reason: &str, text: impl Into<String>) -> Status {
    refusal(Code::Unauthenticated, reason, text, &[])
}

/// Not now; try again after this long.
#[must_use]
pub fn unavailable(reason: &str, text: impl Into<String>, retry_after: Duration) -> Status {
    retry_later(Code::Unavailable, reason, text, retry_after)
}

/// A limit is reached; try again after this long.
#[must_use]
pub fn resource_exhausted(reason: &str, text: impl Into<String>, retry_after: Duration) -> Status {
    retry_later(Code::ResourceExhausted, reason, text, retry_after)
}

fn retry_later(code: Code, reason: &str, text: impl Into<String>, retry_after: Duration) -> Status {
    let mut details = info(reason, &[]);
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(code, text, details)
}

/// A fault of ours: the whole chain goes to the log under an id, the caller gets the id and "internal error".
#[must_use]
pub fn internal(error: &(dyn Error + 'static)) -> Status {
    let error_id = format!("{:016x}", rand::random::<u64>());
    tracing::error!(error_id, error = chain(error), "internal error");
    let mut details = info(reason::INTERNAL, &[("error_id", &error_id)]);
    details.set_request_info(&error_id, "");
    Status::with_error_details(Code::Internal, "internal error", details)
}

/// The stable reason of an error that came from a Bursar service.
#[must_use]
pub fn reason_of(status: &Status) -> Option<String> {
    status.get_details_error_info().filter(|info| info.domain == DOMAIN).map(|info| info.reason)
}

/// How long the server wants the caller to wait before a retry.
#[must_use]
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot load the request")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn all_wrong_fields_are_named_at_once() {
        let status = invalid_all([
            ("amount".into(), "must be positive".into()),
            ("chain".into(), "is unknown".into()),
        ]);
        assert_eq!(status.code(), Code::InvalidArgument);
        let bad = status.get_details_bad_request().unwrap();
        let fields: Vec<_> = bad.field_violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["amount", "chain"]);
        assert_eq!(status.message(), "amount: must be positive; chain: is unknown");
    }

    #[test]
    fn a_fault_tells_the_caller_only_an_id() {
        let status = internal(&Outer(std::io::Error::other("password=hunter2")));
        assert_eq!(status.message(), "internal error");
        let text = format!("{:?}", status.get_error_details());
        assert!(!text.contains("hunter2") && !text.contains("cannot load"), "{text}");
        assert_eq!(status.get_details_error_info().unwrap().metadata["error_id"].len(), 16);
    }

    #[test]
    fn the_chain_names_every_source_once() {
        assert_eq!(chain(&Outer(std::io::Error::other("disk gone"))), "cannot load the request: disk gone");
    }

    #[test]
    fn a_program_can_read_reason_and_delay_back() {
        let status = unavailable(reason::DRAINING, "shutting down", Duration::from_secs(2));
        assert_eq!(reason_of(&status).as_deref(), Some(reason::DRAINING));
        assert_eq!(retry_after(&status), Some(Duration::from_secs(2)));
    }
}
