//! The states of a job and the events that move it between them. No I/O, no clock.
//!
//! The states carry everything that decides what may happen next; `transitions` decides it. Neither looks at a chain or a
//! database: `repo` builds the state from a row.
//!
//! Invariants:
//! - `Failed` is reached only while nothing of the job can land: no binding is held.
//! - A binding (a nonce, or a window on chains without nonces) is released only by a verdict, or by the signer's statement that
//!   nothing was signed under it.
//! - A job of which something final was undone neither pays again nor fails; closing the binding it still holds leaves it parked.
//! - A replay is `AlreadyApplied`, a value; an event that cannot happen is `IllegalTransition`, an error that names both sides.

use payment::Finding;
use types::TxHash;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for a worker, for its due time, or for what `blocked` names.
    Pending { blocked: Option<String>, exposure: Exposure, closing: Option<Closing> },
    /// A worker prices, reserves, signs and sends.
    Processing { exposure: Exposure, closing: Option<Closing> },
    /// Signed bytes are stored and were sent; only verdicts decide from here. `requested`: a worker is to bump the fee, or to
    /// cancel if the job is closing.
    Confirming { newest: Newest, closing: Option<Closing>, requested: bool },
    /// Final, and the effect was checked.
    Confirmed { tx_hash: TxHash },
    /// Ended; nothing of it can ever land.
    Failed { reason: String },
    /// Stopped for a person; nothing is decided about the payment.
    Parked { reason: String, exit: Exit },
}

/// What of a job could still land on chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Nothing: nothing was signed, or what was signed is proven never to pay. The job may be paid under a new binding.
    Clear,
    /// A binding is held, and something may be signed under it.
    Held,
    /// No binding is held, something was signed, and nothing proves that it can never pay.
    Unproven,
}

/// The newest transaction of a job that is being confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newest {
    /// A node took it, or may take it.
    Live,
    /// Every node refused it for good.
    Rejected,
    /// Another system sent it, so no binding is held here.
    Imported,
}

/// A binding that is to be closed without paying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    pub reason: String,
    pub then: AfterClosing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterClosing {
    Fail,
    /// No node takes what was signed: the job is tried again under another binding once this one is closed with proof.
    Retry,
    /// Something final about the job was undone and may come back.
    Park,
}

/// How a parked job can be continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Nothing of it can land: it is retried or given up as a person decides.
    Decide,
    /// Its binding must be closed first. `reason`: why it was being closed already, if it was.
    Close { reason: Option<String>, then: AfterClosing },
    /// Value may have moved otherwise than requested; what is missing is paid by a new withdrawal.
    Unproven,
    /// What was final was undone and may come back.
    Undone,
}

/// A state without its data, as stored and shown.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    Pending,
    Processing,
    Confirming,
    Confirmed,
    Failed,
    Parked,
}

impl Status {
    /// Whether the job has ended: nothing stays reserved for it.
    pub fn is_final(self) -> bool {
        match self {
            Self::Confirmed | Self::Failed => true,
            Self::Pending | Self::Processing | Self::Confirming | Self::Parked => false,
        }
    }
}

/// What a worker is requested to do with a job that is being confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Request {
    /// Offer a higher fee under the same nonce; other gas too, if every node refused the newest transaction.
    Bump,
    /// Close the nonce without paying.
    Cancel,
}

impl State {
    pub fn status(&self) -> Status {
        match self {
            Self::Pending { .. } => Status::Pending,
            Self::Processing { .. } => Status::Processing,
            Self::Confirming { .. } => Status::Confirming,
            Self::Confirmed { .. } => Status::Confirmed,
            Self::Failed { .. } => Status::Failed,
            Self::Parked { .. } => Status::Parked,
        }
    }

    pub fn name(&self) -> &'static str {
        self.status().into()
    }

    pub fn exposure(&self) -> Exposure {
        match self {
            Self::Pending { exposure, .. } | Self::Processing { exposure, .. } => *exposure,
            Self::Confirming { newest: Newest::Live | Newest::Rejected, .. } => Exposure::Held,
            Self::Confirming { newest: Newest::Imported, .. } => Exposure::Unproven,
            Self::Confirmed { .. } | Self::Failed { .. } => Exposure::Clear,
            Self::Parked { exit, .. } => match exit {
                Exit::Decide => Exposure::Clear,
                Exit::Close { .. } => Exposure::Held,
                Exit::Unproven | Exit::Undone => Exposure::Unproven,
            },
        }
    }

    /// The closing that is under way; a parked job has none under way.
    pub fn closing(&self) -> Option<&Closing> {
        match self {
            Self::Pending { closing, .. }
            | Self::Processing { closing, .. }
            | Self::Confirming { closing, .. } => closing.as_ref(),
            Self::Confirmed { .. } | Self::Failed { .. } | Self::Parked { .. } => None,
        }
    }

    pub fn request(&self) -> Option<Request> {
        let requested = match self {
            Self::Confirming { requested, .. } => *requested,
            Self::Pending { closing, .. } | Self::Processing { closing, .. } => closing.is_some(),
            Self::Confirmed { .. } | Self::Failed { .. } | Self::Parked { .. } => false,
        };
        requested.then(|| if self.closing().is_some() { Request::Cancel } else { Request::Bump })
    }
}

/// What a transaction that every node refused was meant to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedAction {
    Payment,
    Cancellation,
}

/// Something that happens to a job.
#[allow(clippy::large_enum_variant, reason = "an event is made, applied once and dropped")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Work(WorkEvent),
    /// Every node refused the newest bytes for good. `last`: they were replaced as often as is worth trying.
    Rejected {
        action: RefusedAction,
        reason: String,
        last: bool,
    },
    /// An operator gives the job up.
    CancelRequested {
        reason: String,
    },
    /// An operator wants the job tried now.
    RetryRequested,
    Verdict(Finding),
}

/// What the worker that holds a job reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkEvent {
    /// The worker took it, under a lease.
    Claimed,
    /// It cannot go on for a reason outside of it: no liquidity, a node or the signer is away. Costs no try.
    Blocked { reason: String },
    /// It was tried and failed for the moment. Costs a try.
    TryFailed { error: String },
    /// Bytes are stored and were offered to the nodes.
    Sent,
    /// The signer refuses for the time being and has signed nothing under the binding: the job waits without one.
    RefusedForNow { reason: String },
    /// Approvals expired before anything was signed: the job waits without a binding until approvers have signed again.
    ApprovalsExpired { reason: String },
    /// The signer has used the nonce for another payment that is not known here: it is abandoned.
    NonceSpent { reason: String },
    /// The signer, or the rules, will never allow this payment.
    Refused { reason: String },
    /// As `Refused`, and nothing was signed under the binding, which needs no closing.
    RefusedUnsigned { reason: String },
    /// The signer refuses even the cancellation and never signed anything at the nonce: another job may have it.
    NonceUnusable { reason: String },
    /// A result that cannot be explained; a person must look.
    Inexplicable { reason: String },
}

/// What becomes of the binding that the job holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingFate {
    Keep,
    /// `proven`: confirmation attests that nothing signed under it can ever pay.
    Closed {
        by: ClosedBy,
        proven: bool,
    },
    /// Nothing was signed under it: another job may have it.
    Freed,
    /// It belongs to a payment that only the signer knows: nobody here may have it.
    Spent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ClosedBy {
    Payment,
    Cancellation,
    Foreign,
    /// The window closed.
    Expired,
}

/// When the job is worked on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Never,
    Now,
    /// After the pause of the retry schedule, which grows with each counted try.
    AfterTry,
    /// After the short pause for what recovers by itself.
    AfterWait,
    /// After a long pause, for what somebody will notify us about.
    Rarely,
}

/// The change that an event makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub to: State,
    /// Tries are counted here and nowhere else.
    pub count_try: bool,
    pub due: Due,
    pub binding: BindingFate,
    /// What happened, for the `error` field; `None` clears it.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It happened before, or no longer matters.
    AlreadyApplied,
    Changed(Change),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {from} job cannot take {event}: {why}")]
pub struct IllegalTransition {
    pub from: &'static str,
    pub event: &'static str,
    pub why: &'static str,
}

impl Event {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Work(_) => "the outcome of work on it",
            Self::Rejected { .. } => "a refusal by every node",
            Self::CancelRequested { .. } => "a cancellation",
            Self::RetryRequested => "a retry",
            Self::Verdict(finding) => finding.name(),
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
