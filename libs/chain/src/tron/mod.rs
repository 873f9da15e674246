//! The TRON adapter, over java-tron's HTTP API.
//!
//! ```text
//! message    protobuf messages, ids of transactions and blocks (pure)
//! merkle     the root over a block's transactions (pure)
//! wire       the parts of nodes' JSON that are used
//! client     typed questions to one node
//! classify   what nodes' answers to a broadcast mean; the only place that reads them
//! cost       bandwidth, energy and activation (pure)
//! tx         unsigned transactions as data; signed bytes decoded and compared (pure)
//! effect     whether an included transaction did what it was meant to (pure)
//! chain      TronChain: the ChainEdge over a set of nodes
//! price      prices of actions, and whether the wallet can pay them
//! settle     verdict reads: settlements and fates
//! ```
//!
//! A network is told from others by its `network_id`, the last four bytes of its first block's id (728126428 on the main
//! network); it must be set, and a node that shows another first block is refused. What is signed may be included for
//! `window_ms`, five minutes unless set, counted by block time. A node's address must answer both `/wallet` and
//! `/walletsolidity`: java-tron itself has them on two ports, behind one address once a gateway joins them.
//!
//! There are no nonces here: a second signature is a second payment. What keeps two attempts of one job apart is that
//! the first one's expiration is behind a solid block and that no solid block up to there holds it.

pub mod classify;
pub mod client;
pub mod cost;
pub mod effect;
pub mod message;
pub mod tx;
pub mod wire;

mod chain;
mod config;
mod merkle;
mod price;
mod settle;

pub use chain::TronChain;
pub use client::TronClient;
pub use config::{CostPolicy, TronConfig};
pub use tx::{SignedTx, UnsignedTx};
