//! The EVM adapter.
//!
//! ```text
//! wire       the parts of nodes' JSON that are used
//! client     typed questions to one node
//! classify   what nodes' error texts mean; the only place that reads them
//! fees       EIP-1559 and legacy prices, caps, bumps (pure)
//! gas        gas limits for transfers
//! erc20      calldata and Transfer logs (pure)
//! effect     whether a mined transaction did what it was meant to (pure)
//! tx         unsigned transactions as data; signed bytes decoded and compared (pure)
//! chain      EvmChain: the ChainEdge over a set of nodes
//! price      fee, gas limit and funds for many actions at once
//! settle     verdict reads: settlements and fates
//! ```

pub mod classify;
pub mod client;
pub mod effect;
pub mod erc20;
pub mod fees;
pub mod gas;
pub mod tx;
pub mod wire;

mod chain;
mod config;
mod price;
mod settle;

pub use chain::EvmChain;
pub use client::EvmClient;
pub use config::{EvmConfig, Finality};
pub use fees::{FeeKind, FeePolicy};
pub use gas::GasPolicy;
pub use tx::{SignedTx, UnsignedTx};
