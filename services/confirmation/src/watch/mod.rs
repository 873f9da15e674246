//! Watches: what jobs are expected to do on chain, and the verdicts on them.

pub mod app;
pub mod domain;
pub mod error;
pub mod evidence;
pub mod list;
pub mod put;
pub mod repo;
pub mod row;
mod together;
pub mod verdict;

pub use app::WatchApp;
pub use domain::{Ending, Event, Finding, Outcome, State, Watch, WatchedTx};
pub use error::WatchError;
pub use put::NewTx;
