//! Execution against a real PostgreSQL and a real chain. The signer is a small one of our own that signs with real keys.

#![allow(clippy::unwrap_used, reason = "a panic is the failed test")]

mod approvals;
mod chain;
mod commands;
mod enqueue;
mod faults;
mod findings;
mod lanes;
mod nodes;
mod protocol;
mod rejected;
mod service;
mod signer;
mod verdicts;
mod watched;
mod world;
