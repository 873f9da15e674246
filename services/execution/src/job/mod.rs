//! Payments that are made once: the job, its states, its attempts, and the use cases around them.

pub mod app;
mod attempt;
pub(crate) mod change;
mod error;
mod model;
pub(crate) mod repo;
mod state;
mod transitions;

pub use app::{ImportedJob, JobCount, JobFilter, Jobs, JobsConfig, NewWithdrawal, Renewal, Statistics};
pub use attempt::{Attempt, AttemptStatus};
pub use change::{Schedule, Schedules};
pub use error::JobError;
pub use model::{Approval, Job, Payer};
pub use state::{
    AfterClosing, BindingFate, Change, ClosedBy, Closing, Due, Event, Exit, Exposure, IllegalTransition,
    Newest, RefusedAction, Request, State, Status, Step, WorkEvent,
};
pub use transitions::Tries;
