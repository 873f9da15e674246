//! A development stack on this machine: private servers, databases, the six services, and the files that describe them.
//!
//! Owns: the data directory's layout, `stack.json`, generated secrets and configuration, and the order in which parts
//! start and stop. It never speaks the services' contracts; seeding does that from outside.

pub mod config;
mod databases;
mod dependencies;
pub mod file;
mod http_port;
pub mod keys;
mod launcher;
pub mod layout;
mod services;
pub mod sweep;
pub mod workers;

pub use file::{Kind, Part, StackFile};
pub use launcher::{Launcher, Mode, forget, restart_detached, stop_everything};
pub use layout::Layout;
pub use services::SERVICES;

/// The parts that are not services of ours, as `stack.json` names them.
pub const POSTGRES: &str = "postgres";
pub const MONGODB: &str = "mongodb";
pub const REDIS: &str = "redis";
pub const BSC: &str = "bsc";
pub const TRON: &str = "tron";

/// The chain id of the development node: BSC's own, so that addresses and signatures look as they will.
pub const BSC_CHAIN_ID: u64 = 56;

/// Nodes of the development TRON network: two, so that verdicts need the agreement of both.
pub const TRON_NODES: u8 = 2;
