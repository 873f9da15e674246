//! The indexer against a real MongoDB and a real EVM node. After every fault the stored set is compared with an independent
//! read of the whole chain.

#![allow(clippy::unwrap_used, reason = "the lint's exception for tests does not reach what tests share")]

mod addresses;
mod api;
mod collect;
mod health;
mod kill;
mod kit;
mod lying_node;
mod nodes;
mod process;
mod reorg;
mod standalone;
mod store;
mod watch;
