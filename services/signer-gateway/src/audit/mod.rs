//! The audit log: every decision of the signer is a row that carries the hash of the row before it. Owns appending
//! and the check of what is stored; the hash chain itself is `types::audit`, so that exported rows are checked by the same code.
//! Never edits or removes a row.
//!
//! Invariant: changing, removing or reordering any row changes every later hash; cutting the tail is found by
//! comparing with a head noted elsewhere.

mod app;
mod repo;

pub(crate) use app::append;
pub use app::{Audit, AuditError, Check, Report};
pub(crate) use repo::{append_in, lock_head_in};
pub use types::audit::{AuditEntry, Break, Decision, Draft, Hash, Head, Verifier, verify};

pub(crate) fn draft(
    caller: &str,
    action: &'static str,
    decision: Decision,
    reason: &str,
    detail: &serde_json::Value,
) -> Draft {
    Draft {
        caller: caller.to_owned(),
        action,
        decision,
        reason: reason.to_owned(),
        detail: detail.to_string(),
    }
}
