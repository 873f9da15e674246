//! Payments to be made once.

mod app;
mod attempt;
mod domain;
mod enqueue;
mod error;
mod model;
mod operator;
pub(crate) mod read;
mod renew;
pub(crate) mod repo;
mod settle;
mod transitions;
mod verdict;
pub(crate) mod watch;
pub(crate) mod write;

pub use app::{Jobs, JobsConfig};
pub use attempt::{Attempt, AttemptKind, AttemptStatus, Fee, Window};
pub use domain::{
    Again, Change, Event, Finding, IllegalTransition, NonceFate, Standing, State, Step, Wanted,
};
pub use enqueue::NewWithdrawal;
pub use error::JobError;
pub use model::{Approval, Job, JobQueue, Payer, VoidProof};
pub use operator::ImportedJob;
pub use read::{JobCount, JobFilter, LaneView, Statistics};
pub use renew::Renewal;
pub use verdict::{Evidence, Receipt, Verdict};
pub use write::Schedule;
