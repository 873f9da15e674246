//! The one gRPC stack of all services: server, clients, callers and their roles, errors, page tokens.
//!
//! Owns everything between a socket and a handler: TLS, HTTP/1 and HTTP/2, health, reflection, `/metrics`, authentication,
//! limits, deadlines, tracing and draining; and the same on the calling side. It never knows what a method means: who may
//! call it and whether a call may be retried is read from the contracts.
//!
//! Invariants: a method that names no roles is refused; a fault never tells the caller more than "internal error"; a call
//! is retried only when its contract says that this is harmless.

pub mod auth;
mod body;
pub mod client;
pub mod error;
pub mod fields;
mod layer;
pub mod method;
pub mod page;
mod role;
mod secret;
pub mod server;
pub mod tls;

pub use auth::{Auth, AuthConfig};
pub use client::{Client, ClientConfig, connect_lazy};
pub use fields::{Fields, Violation, Violations};
pub use role::{Caller, Role, RoleError, caller};
pub use secret::Secret;
pub use server::{Draining, Server, ServerConfig};
