//! The whole stack over real sockets: a scriptable worker service, real clients, real certificates.

mod auth;
mod client;
mod fake;
mod health;
mod limits;
mod shutdown;
mod tls;
