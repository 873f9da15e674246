//! What confirmation shall watch, and the verdicts it sends back.

mod batch;
mod repo;
mod verdict;
pub(crate) mod watch;

pub(crate) use batch::record_batch;
