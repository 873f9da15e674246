//! The life of a withdrawal request: its states, what may happen in each, and what that leads to.
//!
//! Owns the state machine. No I/O and no clock: times are arguments. It never decides who may approve (see `approval`).
//!
//! ```text
//! pending -> approved -> queued -> completed
//!    |                      \----> failed
//!    |---> rejected
//!    \---> cancelled
//! ```
//!
//! Invariants: a finished request never changes; nothing becomes failed after completed, or completed after failed; progress
//! that is reported late, twice or out of order leads to the same state; a skipped step is recorded too; a handover that
//! execution refused stays visible until execution accepts the request.

#[cfg(test)]
mod tests;

use chrono::{DateTime, Utc};
use types::{JobId, TxHash};

/// The name of a state, as the tables and the metrics spell it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Status {
    Pending,
    Approved,
    Queued,
    Completed,
    Failed,
    Rejected,
    Cancelled,
}

impl Status {
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Approved | Self::Queued => false,
            Self::Completed | Self::Failed | Self::Rejected | Self::Cancelled => true,
        }
    }
}

/// When the quorum was reached (never, for an import) and when execution accepted the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    pub approved_at: Option<DateTime<Utc>>,
    pub queued_at: DateTime<Utc>,
}

/// Why a queued request has to wait, if it has to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockage {
    pub reason: Option<String>,
    /// When the sender last reported blocked or unblocked, by the sender's clock.
    pub changed_at: Option<DateTime<Utc>>,
}

/// The state of a request, with the data that exists only in that state. `refused` says why execution did not accept an
/// approved request; an operator has to fix the cause and requeue the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Pending,
    Approved { approved_at: DateTime<Utc>, refused: Option<String> },
    Queued { handover: Handover, blockage: Blockage },
    Completed { handover: Handover, tx_hash: TxHash, block: u64, finished_at: DateTime<Utc> },
    Failed { handover: Handover, reason: String, finished_at: DateTime<Utc> },
    Rejected { reason: String, finished_at: DateTime<Utc> },
    Cancelled { reason: String, finished_at: DateTime<Utc> },
}

/// What can happen to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Enough approvers have signed.
    QuorumReached,
    Reject {
        reason: String,
    },
    Cancel {
        reason: String,
    },
    /// Execution refused the handover, and will again until an operator fixes the cause.
    RefuseHandover {
        reason: String,
    },
    /// Execution has created a job for it.
    Queue {
        job: JobId,
    },
    /// The job has to wait, since `at` by the sender's clock.
    Block {
        reason: String,
        at: DateTime<Utc>,
    },
    /// The job continues, since `at` by the sender's clock.
    Unblock {
        at: DateTime<Utc>,
    },
    /// Final on chain, its effect checked.
    Complete {
        tx_hash: TxHash,
        block: u64,
    },
    /// Proven that no payment was made and none can follow.
    Fail {
        reason: String,
    },
}

impl Event {
    /// For logs and error messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::QuorumReached => "approved",
            Self::Reject { .. } => "rejected",
            Self::Cancel { .. } => "cancelled",
            Self::RefuseHandover { .. } => "refused by execution",
            Self::Queue { .. } => "queued",
            Self::Block { .. } => "blocked",
            Self::Unblock { .. } => "unblocked",
            Self::Complete { .. } => "completed",
            Self::Fail { .. } => "failed",
        }
    }
}

/// One step of the history: the new state, and a description for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub to: State,
    pub detail: String,
}

/// One entry of a request's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Counts from 1 without gaps.
    pub sequence: u64,
    /// `None` for the first entry.
    pub from: Option<Status>,
    pub to: Status,
    pub actor: String,
    pub detail: String,
    pub at: DateTime<Utc>,
}

/// What an event leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// This event, or a later one, is already recorded.
    AlreadyApplied,
    /// These changes, oldest first; more than one when the report of a step in between has not arrived yet.
    Changed(Vec<Change>),
}

/// An event that cannot happen in that state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a withdrawal that is {status} cannot be {event}")]
pub struct IllegalTransition {
    pub status: Status,
    pub event: &'static str,
    /// It contradicts what is recorded: both cannot be true, so an operator has to look.
    pub contradiction: bool,
}

impl State {
    pub const fn status(&self) -> Status {
        match self {
            Self::Pending => Status::Pending,
            Self::Approved { .. } => Status::Approved,
            Self::Queued { .. } => Status::Queued,
            Self::Completed { .. } => Status::Completed,
            Self::Failed { .. } => Status::Failed,
            Self::Rejected { .. } => Status::Rejected,
            Self::Cancelled { .. } => Status::Cancelled,
        }
    }

    pub const fn approved_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Approved { approved_at, .. } => Some(*approved_at),
            Self::Queued { handover, .. }
            | Self::Completed { handover, .. }
            | Self::Failed { handover, .. } => handover.approved_at,
            Self::Pending | Self::Rejected { .. } | Self::Cancelled { .. } => None,
        }
    }

    pub const fn queued_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Queued { handover, .. }
            | Self::Completed { handover, .. }
            | Self::Failed { handover, .. } => Some(handover.queued_at),
            Self::Pending | Self::Approved { .. } | Self::Rejected { .. } | Self::Cancelled { .. } => None,
        }
    }

    pub const fn finished_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Completed { finished_at, .. }
            | Self::Failed { finished_at, .. }
            | Self::Rejected { finished_at, .. }
            | Self::Cancelled { finished_at, .. } => Some(*finished_at),
            Self::Pending | Self::Approved { .. } | Self::Queued { .. } => None,
        }
    }

    /// Why it ended without payment.
    pub fn failure_reason(&self) -> Option<&str> {
        match self {
            Self::Failed { reason, .. } | Self::Rejected { reason, .. } | Self::Cancelled { reason, .. } => {
                Some(reason)
            }
            Self::Pending | Self::Approved { .. } | Self::Queued { .. } | Self::Completed { .. } => None,
        }
    }

    /// Why it cannot go on.
    pub fn blocked_reason(&self) -> Option<&str> {
        match self {
            Self::Approved { refused, .. } => refused.as_deref(),
            Self::Queued { blockage, .. } => blockage.reason.as_deref(),
            Self::Pending
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Rejected { .. }
            | Self::Cancelled { .. } => None,
        }
    }

    /// What `event` leads to when it is received at `now`.
    pub fn apply(&self, event: &Event, now: DateTime<Utc>) -> Result<Step, IllegalTransition> {
        match self {
            Self::Pending => self.when_pending(event, now),
            Self::Approved { approved_at, refused } => {
                self.when_approved(*approved_at, refused.as_deref(), event, now)
            }
            Self::Queued { handover, blockage } => self.when_queued(*handover, blockage, event, now),
            Self::Completed { tx_hash, .. } => self.when_paid_or_failed(Some(*tx_hash), event),
            Self::Failed { .. } => self.when_paid_or_failed(None, event),
            Self::Rejected { .. } | Self::Cancelled { .. } => self.when_never_approved(event),
        }
    }

    fn when_pending(&self, event: &Event, now: DateTime<Utc>) -> Result<Step, IllegalTransition> {
        match event {
            Event::QuorumReached => Ok(one(
                Self::Approved { approved_at: now, refused: None },
                "quorum reached; handing over to execution".to_owned(),
            )),
            Event::Reject { reason } => {
                let detail = format!("rejected: {reason}");
                Ok(one(Self::Rejected { reason: reason.clone(), finished_at: now }, detail))
            }
            Event::Cancel { reason } => {
                let detail = format!("cancelled: {reason}");
                Ok(one(Self::Cancelled { reason: reason.clone(), finished_at: now }, detail))
            }
            // It was never handed to execution.
            Event::RefuseHandover { .. }
            | Event::Queue { .. }
            | Event::Block { .. }
            | Event::Unblock { .. }
            | Event::Complete { .. }
            | Event::Fail { .. } => Err(self.contradicted(event)),
        }
    }

    fn when_approved(
        &self,
        approved_at: DateTime<Utc>,
        refused: Option<&str>,
        event: &Event,
        now: DateTime<Utc>,
    ) -> Result<Step, IllegalTransition> {
        let handover = Handover { approved_at: Some(approved_at), queued_at: now };
        match event {
            Event::QuorumReached => Ok(Step::AlreadyApplied),
            Event::Reject { .. } | Event::Cancel { .. } => Err(self.illegal(event)),
            Event::RefuseHandover { reason } if refused == Some(reason) => Ok(Step::AlreadyApplied),
            Event::RefuseHandover { reason } => {
                Ok(one(Self::Approved { approved_at, refused: Some(reason.clone()) }, reason.clone()))
            }
            Event::Queue { job } => {
                let detail = format!("execution took it as job {job}");
                Ok(one(Self::Queued { handover, blockage: Blockage::default() }, detail))
            }
            // All of these are about a job, so there is one and only its report is late. Record that step, then this one.
            Event::Block { .. } | Event::Unblock { .. } | Event::Complete { .. } | Event::Fail { .. } => {
                let queued = Self::Queued { handover, blockage: Blockage::default() };
                let mut changes = vec![Change { to: queued.clone(), detail: "execution took it".to_owned() }];
                if let Step::Changed(more) = queued.apply(event, now)? {
                    changes.extend(more);
                }
                Ok(Step::Changed(changes))
            }
        }
    }

    fn when_queued(
        &self,
        handover: Handover,
        blockage: &Blockage,
        event: &Event,
        now: DateTime<Utc>,
    ) -> Result<Step, IllegalTransition> {
        match event {
            Event::QuorumReached => Ok(Step::AlreadyApplied),
            Event::Reject { .. } | Event::Cancel { .. } => Err(self.illegal(event)),
            // Only an import is queued before execution accepts it. Execution's own reports carry a time and are not overwritten.
            Event::RefuseHandover { reason } => {
                let refused = Blockage { reason: Some(reason.clone()), changed_at: None };
                if blockage.changed_at.is_some() || handover.approved_at.is_some() || *blockage == refused {
                    return Ok(Step::AlreadyApplied);
                }
                Ok(one(Self::Queued { handover, blockage: refused }, reason.clone()))
            }
            Event::Queue { job } if blockage.reason.is_some() && blockage.changed_at.is_none() => {
                let detail = format!("execution took it as job {job}");
                Ok(one(Self::Queued { handover, blockage: Blockage::default() }, detail))
            }
            Event::Queue { .. } => Ok(Step::AlreadyApplied),
            Event::Block { reason, at } => {
                let reported = Blockage { reason: Some(reason.clone()), changed_at: Some(*at) };
                // The same reason at a later time is recorded too, so that a report from in between that arrives late is stale.
                if stale(blockage, *at) || *blockage == reported {
                    return Ok(Step::AlreadyApplied);
                }
                Ok(one(Self::Queued { handover, blockage: reported }, format!("blocked: {reason}")))
            }
            Event::Unblock { at } => {
                let reported = Blockage { reason: None, changed_at: Some(*at) };
                if stale(blockage, *at) || *blockage == reported {
                    return Ok(Step::AlreadyApplied);
                }
                Ok(one(Self::Queued { handover, blockage: reported }, "goes on".to_owned()))
            }
            Event::Complete { tx_hash, block } => {
                let to = Self::Completed { handover, tx_hash: *tx_hash, block: *block, finished_at: now };
                Ok(one(to, format!("paid, final in block {block}")))
            }
            Event::Fail { reason } => {
                let to = Self::Failed { handover, reason: reason.clone(), finished_at: now };
                Ok(one(to, format!("failed: {reason}")))
            }
        }
    }

    fn when_paid_or_failed(&self, paid_by: Option<TxHash>, event: &Event) -> Result<Step, IllegalTransition> {
        match event {
            Event::QuorumReached
            | Event::RefuseHandover { .. }
            | Event::Queue { .. }
            | Event::Block { .. }
            | Event::Unblock { .. } => Ok(Step::AlreadyApplied),
            Event::Complete { tx_hash, .. } if paid_by == Some(*tx_hash) => Ok(Step::AlreadyApplied),
            Event::Fail { .. } if paid_by.is_none() => Ok(Step::AlreadyApplied),
            // A second final transaction, or both paid and "can never be paid".
            Event::Complete { .. } | Event::Fail { .. } => Err(self.contradicted(event)),
            Event::Reject { .. } | Event::Cancel { .. } => Err(self.illegal(event)),
        }
    }

    fn when_never_approved(&self, event: &Event) -> Result<Step, IllegalTransition> {
        match (event, self.status()) {
            (Event::Reject { .. }, Status::Rejected) | (Event::Cancel { .. }, Status::Cancelled) => {
                Ok(Step::AlreadyApplied)
            }
            (Event::QuorumReached | Event::Reject { .. } | Event::Cancel { .. }, _) => {
                Err(self.illegal(event))
            }
            (
                Event::RefuseHandover { .. }
                | Event::Queue { .. }
                | Event::Block { .. }
                | Event::Unblock { .. }
                | Event::Complete { .. }
                | Event::Fail { .. },
                _,
            ) => Err(self.contradicted(event)),
        }
    }

    const fn illegal(&self, event: &Event) -> IllegalTransition {
        IllegalTransition { status: self.status(), event: event.name(), contradiction: false }
    }

    const fn contradicted(&self, event: &Event) -> IllegalTransition {
        IllegalTransition { status: self.status(), event: event.name(), contradiction: true }
    }
}

fn one(to: State, detail: String) -> Step {
    Step::Changed(vec![Change { to, detail }])
}

/// Whether a later report has already arrived.
fn stale(blockage: &Blockage, at: DateTime<Utc>) -> bool {
    blockage.changed_at.is_some_and(|last| at < last)
}
