//! The loops over chains: one per chain and, among all replicas, one at a time.
//!
//! ```text
//! supervisor   starts a loop for each known chain and hands it new settings
//! chain_loop   one chain: lease, one tick after the other
//! leased       what the holder of the lease knows, and its fenced transactions
//! follow       new heads: which watched transactions they hold, and which blocks were undone
//! lookup       watches that are new or have waited for long: looked up once; stuck notices
//! settle       what is final: verdicts; finality that was undone: contradictions
//! void         nonces and windows that were used up by something else
//! gauges       what operators watch of the database, for all chains
//! ```
//!
//! Each of them queries the nodes between transactions, never inside one, and every transaction is fenced by the lease.

mod chain_loop;
mod edge;
mod follow;
pub mod gauges;
mod leased;
mod lookup;
mod settle;
pub mod supervisor;
mod void;

pub use chain_loop::{ChainLoop, LoopContext, TickOutcome};
pub use edge::build as build_edge;

fn count(findings: &[&str], name: &str) -> usize {
    findings.iter().filter(|found| **found == name).count()
}

/// Gauges are floating point; block numbers fit exactly for as long as anybody will look.
fn as_gauge(number: u64) -> f64 {
    number as f64
}
