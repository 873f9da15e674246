//! The whole stack over real sockets: a scriptable worker service, real clients, real certificates.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included, an error is a failed test")]

mod auth;
mod client;
mod fake;
mod health;
mod limits;
mod shutdown;
mod tls;
