//! The command line: starts a development stack and drives a stack, local or not, through its contracts.
//!
//! Owns: `bursar up`, `down`, `status`, `logs` and the clients of the services' methods. It never reads or writes a
//! service's database and holds no business rule.

pub mod approver;
pub mod cli;
pub mod client;
pub mod command;
pub mod output;
pub mod progress;
pub mod reconnect;
pub mod secrets;
pub mod seed;
pub mod stack;

pub use cli::Cli;
