//! Private PostgreSQL, MongoDB, Redis, anvil and tron-devnet for development and tests, and the processes of Bursar's own services.
//!
//! Owns: finding the programs, starting them on loopback under a directory, waiting until they answer in their own
//! protocol, stopping them, and making sure that they die with their owner.
//!
//! Never: installs anything (`scripts/install-tools` does), touches a server it did not start, or listens anywhere but
//! on 127.0.0.1.
//!
//! Invariants: a server whose lifetime is [`Lifetime::Owned`] is gone soon after its owner, even if the owner was
//! killed with SIGKILL; a server is handed out only after it answered a real request; a process is signalled by pid
//! only while its start time still matches.

mod anvil;
mod error;
mod mongo;
mod patience;
mod port;
mod postgres;
mod process;
mod redis;
mod server;
mod service;
mod tools;
mod tron;
mod wait;

pub use anvil::{Anvil, AnvilOptions, DEV_MNEMONIC, Mining};
pub use error::{Error, MissingTool};
pub use mongo::{Mongo, MongoOptions};
pub use patience::Patience;
pub use port::{claim as claim_port, free as free_port};
pub use postgres::{Postgres, PostgresOptions};
pub use process::{Identity, Launch, Lifetime, Process, StopPlan, tail};
pub use redis::{Redis, RedisOptions};
pub use server::Server;
pub use service::{Health, Service, ServiceOptions, health};
pub use tools::{Tool, Tools, tools_dir};
pub use tron::{Tron, TronOptions, TronToken};
