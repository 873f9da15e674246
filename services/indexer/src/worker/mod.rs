//! Reading: `concurrency` collectors per source, for all sources of the store.
//!
//! ```text
//! collector   the five stages of one range; `tick()` is one round
//! fault       why a range was not read
//! lease       renews the lease of a range while it is read
//! partial     a range while it is read
//! reorg       detects reorganisations
//! runner      the collectors of one source
//! supervisor  which sources run
//! ```

mod collector;
mod fault;
mod lease;
mod partial;
mod reorg;
mod runner;
mod supervisor;

pub(crate) use supervisor::Supervisor;
