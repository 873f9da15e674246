//! What a server is told before it starts, and why it may not start.

use std::net::SocketAddr;

use super::HealthConfig;
use crate::tls::{TlsConfig, TlsError};

/// How a server listens and what it admits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address and port; port 0 takes any free one.
    pub listen: SocketAddr,
    /// TLS, or plain text without it.
    pub tls: Option<TlsConfig>,
    pub limits: Limits,
    /// How dependencies are checked.
    pub health: HealthConfig,
}

impl ServerConfig {
    /// Plain text on an address, with default limits.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, tls: None, limits: Limits::default(), health: HealthConfig::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub concurrency: usize,
    pub streams: usize,
    pub connections: usize,
    /// Longest time to an answer.
    pub timeout_ms: u64,
    /// Largest request message.
    pub max_message_bytes: u64,
    /// How long to stay open, already NOT_SERVING, so that load balancers look elsewhere before the port closes.
    pub notice_ms: u64,
    /// How long to wait for what is in flight before dropping it.
    pub drain_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 512,
            streams: 1024,
            connections: 4096,
            timeout_ms: 30_000,
            max_message_bytes: 4 * 1024 * 1024,
            notice_ms: 0,
            drain_ms: 10_000,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not ours.
    #[error("cannot listen on {listen}: {reason} (server.listen)")]
    Listen {
        listen: SocketAddr,
        /// What the system said, in plain words.
        reason: String,
    },
    #[error("cannot set up TLS (server.tls)")]
    Tls(#[from] TlsError),
    #[error("cannot set up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}
