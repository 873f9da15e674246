//! The audit log: every decision of the signer as a row that carries the hash of the row before it. Owns the canonical
//! bytes, the chain and its verification, online and over exported rows. Never edits or removes a row.
//!
//! Invariant: changing, removing or reordering any row changes every later hash; cutting the tail is found by
//! comparing with a head noted elsewhere.

mod app;
mod chain;
mod repo;

pub use app::{Audit, AuditError, Report};
pub use chain::{Break, Decision, Draft, Entry, Hash, Head, Verifier, verify};
pub(crate) use repo::{append_in, lock_head_in};
