//! Reading: one collector per slot, `concurrency` slots per source, all sources of the store.
//!
//! ```text
//! collector   the five stages of one range; `tick()` is one round
//! fault       why a range was not read
//! gathered    a range while it is read
//! guard       reorganisations found
//! lease       a range held while it is read
//! runner      the slots of one source
//! supervisor  which sources run
//! ```

mod collector;
mod fault;
mod gathered;
mod guard;
mod lease;
mod runner;
mod supervisor;

pub(crate) use supervisor::Supervisor;
