//! Access to chains: everything that execution, confirmation and the indexer need to know of a chain.
//!
//! ```text
//! edge        the interface that is the same for every chain: trait ChainEdge and its values
//! connect     the ChainEdge of a chain from its settings, whatever its family
//! node/       the nodes of one chain: HTTP, identity, health, failover, sending to all, agreement
//! broadcast   what nodes answered to a sent transaction, each node and all together
//! heads/      ring of recent heads, reorgs (pure), and the reader that follows the tip
//! lane/       nonce lanes: the next nonce, gaps, and whose word moves a lane (pure)
//! commitment  what signed bytes commit to (pure)
//! evm/        the EVM adapter
//! tron/       the TRON adapter
//! ```
//!
//! What is not here: keys and signing, a database, a retry that could change what was signed, and the state of a payment. Nothing
//! here calls a payment paid or failed; it reports what nodes say and how many of them say it.

pub mod broadcast;
pub mod commitment;
pub mod connect;
pub mod edge;
pub mod error;
pub mod evm;
pub mod heads;
pub mod lane;
pub mod node;
pub mod tron;

pub use broadcast::{Advice, Broadcast, BroadcastOutcome, Pricing, TransientCause};
pub use commitment::{Bound, Commitment, commitment};
pub use connect::{Caps, Settings, connect};
pub use edge::{
    Anchor, BalanceOf, Block, ChainEdge, Claim, Detail, Fate, FateQuestion, Plan, Seen, Settlement, Sighting,
    SignedError, TxRef, TxStatus,
};
pub use error::{AboveCap, ChainError, ConfigError, NodeError, QuoteError, RpcFault};
pub use evm::{EvmChain, EvmConfig, FeePolicy, Finality, GasPolicy};
pub use heads::{Head, HeadRing, Reorg, RingUpdate, follow};
pub use lane::NonceCounts;
pub use node::agreement::{Agreement, NodeAnswer};
pub use node::{NodeConfig, NodeHealth, NodeName, jsonrpc};
pub use tron::message::block_reference;
pub use tron::{TronChain, TronConfig};
