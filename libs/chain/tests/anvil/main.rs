//! The EVM adapter against a real node, with a fault proxy in between where something has to break.

mod broadcast;
mod follow;
mod kit;
mod nodes;
mod quote;
mod settle;
