//! The EVM adapter.
//!
//! ```text
//! wire       the parts of nodes' JSON that are used
//! client     typed questions to one node
//! classify   the meaning of nodes' error texts; the only place that reads them
//! erc20      calldata and Transfer logs (pure)
//! effect     whether a mined transaction had its effect (pure)
//! tx         unsigned transactions as data; signed bytes decoded and compared (pure)
//! chain      EvmChain: the ChainEdge over a set of nodes
//! price      fee, gas limit and funds for many actions at once
//! settle     reads for verdicts: settlements and fates
//! ```

pub mod classify;
pub mod client;
pub mod effect;
pub mod erc20;
pub mod price;
pub mod tx;
pub mod wire;

mod chain;
mod config;
mod settle;

pub use chain::EvmChain;
pub use client::EvmClient;
pub use config::{EvmConfig, Finality};
pub use price::fees::{FeeKind, FeePolicy};
pub use price::gas::{self, GasPolicy};
pub use tx::{SignedTx, UnsignedTx};
