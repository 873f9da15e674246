//! Signing: from a parsed request to bytes that may leave. Owns the order parse, assess, judge, sign, commit, answer.
//! Never answers before the commit, never signs before the judgement, never commits a judgement whose grounds have
//! changed.

mod app;
mod detail;
mod error;
mod facts;
mod judge;
mod ledger;
mod repo;
mod request;
mod writes;

pub use app::{PolicySource, SignedTransaction, Signing, Simulation};
pub use error::SigningError;
pub(crate) use ledger::{Clerk, LedgerStopped};
pub use request::{Purpose, SigningRequest, first_difference};
