//! The service over real gRPC on a real PostgreSQL, one database for each test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod approval;
mod commands;
mod idempotency;
mod import;
mod limits;
mod lists;
mod policies;
mod progress;
mod relay;
mod renewal;
mod requester;
mod statements;
mod support;
mod validation;
mod watch;
