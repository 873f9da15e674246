//! Withdrawal requests: what was requested, who approved it, and what became of it.

pub mod app;
pub mod approval;
mod batch;
pub mod domain;
pub mod error;
pub mod list;
pub mod measure;
pub mod message;
pub mod repo;
pub mod request;
pub mod watch;

pub use app::Withdrawals;
pub use error::WithdrawalError;
pub use request::Withdrawal;
