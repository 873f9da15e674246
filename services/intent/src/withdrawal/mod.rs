//! Withdrawal requests: what was asked for, who approved it, and how far it got.

pub mod app;
pub mod approval;
mod create;
pub mod decide;
pub mod domain;
pub mod draft;
pub mod error;
pub mod handover;
pub mod import;
pub mod list;
mod many;
pub mod measure;
mod progress;
pub mod repo;
pub mod request;
mod row;
pub mod statistics;
mod together;
pub mod watch;

#[cfg(test)]
mod domain_tests;

pub use app::Withdrawals;
pub use error::WithdrawalError;
pub use request::Withdrawal;
