//! The TRON adapter, over java-tron's HTTP API.
//!
//! ```text
//! message    protobuf messages, ids and roots (pure)
//! wire       the parts of nodes' JSON that are used
//! client     typed questions to one node
//! classify   the meaning of nodes' answers to a broadcast; the only place that reads them
//! tx         unsigned transactions as data; signed bytes decoded and compared (pure)
//! effect     whether an included transaction had its effect (pure)
//! chain      TronChain: the ChainEdge over a set of nodes
//! price      prices of actions, and whether the wallet can pay them
//! settle     reads for verdicts: settlements and fates
//! ```
//!
//! A network is identified by its `network_id`, the last four bytes of its first block's id (728126428 on the main network). It must be
//! configured, and a node that shows another first block is refused. A signed transaction may be included for `window_ms` of block time,
//! five minutes by default. The address of a node must serve both `/wallet` and `/walletsolidity`; java-tron has them on two ports, and a
//! gateway joins them.
//!
//! There are no nonces, so a second signature is a second payment. A job gets a second attempt only when a solid block is beyond the
//! expiration of the first one and no solid block up to there contains it.

pub mod classify;
pub mod client;
pub mod effect;
pub mod message;
pub mod price;
pub mod tx;
pub mod wire;

mod chain;
mod config;
mod settle;

pub use chain::TronChain;
pub use client::TronClient;
pub use config::{CostPolicy, TronConfig};
pub use tx::{SignedTx, UnsignedTx};
