//! Signing: from a parsed request to bytes that may leave. Owns the order parse, assess, judge, sign, commit, answer.
//! Never answers before the commit, never signs before the judgement, never commits a judgement whose facts have changed.

mod app;
mod decision;
mod detail;
mod error;
mod facts;
mod judge;
mod ledger;
mod repo;
mod request;

pub use app::{PolicySource, SignedTransaction, Signing, Simulation};
pub use error::SigningError;
pub(crate) use ledger::{LedgerStopped, LedgerWorker};
pub(crate) use request::action_name;
pub use request::{Purpose, SigningRequest};
