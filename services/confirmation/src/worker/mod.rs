//! The loops over chains. One per chain and, among all replicas, one at a time.
//!
//! ```text
//! supervisor   starts a loop for each known chain and hands it new settings
//! chain_loop   one chain: lease, one tick after the other
//! follow       new heads: what they hold, what they undid
//! lookup       watches that were just added or waited for long: looked up once; stuck notices
//! settle       what is final: verdicts; finality that was undone: contradictions
//! void         nonces and windows that were used up by something else
//! gauges       what operators watch of the database, of all chains, beside the loops
//! ```
//!
//! In each of them the nodes are asked between transactions, never inside one, and every transaction is fenced.

pub mod chain_loop;
mod edge;
mod follow;
mod gauges;
mod lookup;
mod settle;
pub mod supervisor;
mod void;

pub use chain_loop::{ChainLoop, LoopError, Parts, Ticked};
pub use edge::build as build_edge;
pub use gauges::Gauges;
