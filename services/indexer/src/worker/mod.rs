//! Reading: `concurrency` collectors per source, for all sources of the store.
//!
//! ```text
//! collector   the five stages of one range; `tick()` is one round
//! context     what the collectors of one source share
//! fault       why a range was not read
//! lease       renews the lease of a range while it is read
//! partial     a range while it is read
//! reorg       detects reorganisations
//! supervisor  which sources run, and their collectors
//! ```

mod collector;
mod context;
mod fault;
mod lease;
mod partial;
mod reorg;
mod supervisor;

pub(crate) use supervisor::{configure, supervisor};
