//! Confirmation against real PostgreSQL, anvil and the development network of TRON.

#![allow(clippy::unwrap_used, reason = "the lint's exception for tests does not reach what tests share")]

mod batches;
mod commands;
mod env;
mod load;
mod nodes;
mod receivers;
mod reorg;
mod replicas;
mod served;
mod settle;
mod statements;
mod tokens;
mod void;
mod watched;
mod watches;
mod windows;
