//! The command line: starts a development stack and drives a stack, local or not, through its contracts.
//!
//! Owns: `bursar up`, `down`, `status`, `logs` and the clients of the services' methods. It never reads or writes a
//! service's database and holds no business rule.

mod approver;
mod cli;
mod client;
mod command;
mod output;
mod progress;
mod secrets;
mod seed;
mod stack;

pub use cli::Cli;
