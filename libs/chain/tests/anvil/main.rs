//! The EVM adapter against a real node, with a fault proxy in between where something has to break.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod broadcast;
mod follow;
mod kit;
mod nodes;
mod quote;
mod settle;
