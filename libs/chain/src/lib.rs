//! The chain edge: everything execution, confirmation and the indexer need to know of a chain, and nothing they know
//! of each other.
//!
//! ```text
//! edge        the chain-neutral surface: trait ChainEdge and the values it speaks in
//! broadcast   what nodes answered to a sent transaction, one node and all together
//! node        several nodes of one chain: identity, health, failover, broadcast to all, agreement
//! agreement   what several nodes say about one fact; disagreement is a value
//! heads       ring of recent heads, reorgs found and undone (pure)
//! follow      drives the ring with a ChainEdge
//! lane        nonce lanes: the next nonce, gaps, and whose word moves a lane (pure)
//! http        HTTP to one node, with a deadline
//! jsonrpc     JSON-RPC over HTTP, single and batched
//! send        signed bytes to every node at once
//! words       texts of nodes, made fit for tables and logs
//! settle      what answers about claimed transactions have in common
//! commitment  what signed bytes commit to (pure)
//! connect     the edge of a chain from its settings, whatever its kind
//! evm/        the EVM adapter: wire types, calls, fees, gas, effect check, error classification, transactions
//! tron/       the TRON adapter
//! ```
//!
//! Invariants, as absences: no keys and no signing, no database, no retry that could change what was signed, and no
//! state of a payment. Nothing here calls a payment paid or failed; it reports what nodes say and how many say it.

pub mod agreement;
pub mod broadcast;
pub mod commitment;
pub mod connect;
pub mod edge;
pub mod error;
pub mod evm;
pub mod follow;
pub mod heads;
pub mod http;
pub mod jsonrpc;
pub mod lane;
pub mod node;
pub mod tron;

mod send;
mod settle;
mod words;

pub use agreement::{Agreement, NodeAnswer};
pub use broadcast::{Advice, Broadcast, BroadcastOutcome, Pricing, TransientCause};
pub use commitment::{Bound, Commitment, commitment};
pub use connect::{Caps, Settings, connect};
pub use edge::{
    Anchor, BalanceOf, Block, ChainEdge, Claim, Detail, Fate, FateQuestion, Plan, Seen, Settlement, Sighting,
    SignedError, TxRef, TxStatus,
};
pub use error::{AboveCap, ChainError, ConfigError, NodeError, QuoteError, RpcFault};
pub use evm::{EvmChain, EvmConfig, FeePolicy, Finality, GasPolicy};
pub use heads::{Fed, Head, HeadRing, Reorg};
pub use lane::Sight;
pub use node::{NodeConfig, NodeHealth, NodeName};
pub use tron::message::block_reference;
pub use tron::{TronChain, TronConfig};
