//! What tests use: private real servers, a proxy that breaks connections on purpose, waiting for conditions, and checks of SQL.
//!
//! Owns: one private PostgreSQL, MongoDB and Redis for each test process (started when first used, gone with the
//! process even if it is killed), a fresh database for each test, anvil, the fault proxy.
//!
//! Never: fakes a server, uses one it did not start, retries a test or sleeps instead of waiting for a condition.
//!
//! A server that is not installed causes a panic that says how to get it, because the test must not pass without it.

mod anvil;
mod explain;
mod fault;
mod mongo;
mod outcome;
mod postgres;
mod redis;
mod scratch;
mod sql;
pub mod statements;
mod wait;

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    devstack::free_port().unwrap_or_else(|error| panic!("no port is free: {error}"))
}

pub use anvil::{Chain, anvil};
pub use devstack::{AnvilOptions, Mining, Patience};
pub use explain::{PreparedStatement, assert_uses_index, generic_plan};
pub use fault::{Fault, FaultProxy, Gate, Rule};
pub use mongo::{MongoDatabase, mongo};
pub use outcome::same_outcome;
pub use postgres::{Database, PostgresServer, postgres, postgres_server};
pub use redis::{RedisNamespace, RedisServer, redis, redis_server};
pub use scratch::scratch_dir;
pub use sql::execute;
pub use statements::{check_statements, statement_problems, unchecked_statements};
pub use wait::{wait_for, wait_for_value};
