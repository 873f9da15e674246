//! The states of a job and what moves it between them. No I/O, no clock.
//!
//! Owns the vocabulary of the one answer to "what may happen to this job next"; the answer itself is `transitions`. It never
//! looks at a chain or a database: what it needs to know (does the job hold a nonce, was it asked to give up) is told to it.
//!
//! Invariants:
//! - `Failed` is reached only while no nonce is held: either none was ever taken, or the verdict that closes it says so.
//! - A nonce is let go only by a verdict, or by the signer's word that nothing was ever signed at it.
//! - A job of which something final was undone neither pays again nor fails; closing the nonce it still holds leaves it parked.
//! - A replay is `AlreadyApplied`, a value; what cannot be is `IllegalTransition`, an error that names both sides.

use std::fmt;

use types::TxHash;

use super::AttemptKind;

/// Where a job stands; each variant holds what exists only there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for a worker, for its due time, or for what `blocked` names.
    Pending { blocked: Option<String> },
    /// A worker builds, signs and sends.
    Processing,
    /// Bytes are stored and were sent; only verdicts decide from here.
    Confirming,
    /// Final, effect checked.
    Confirmed { tx_hash: TxHash },
    /// Ended; nothing of it can ever land.
    Failed { reason: String },
    /// Stopped for a person; nothing is decided about the payment.
    Parked { reason: String },
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Processing => "processing",
            Self::Confirming => "confirming",
            Self::Confirmed { .. } => "confirmed",
            Self::Failed { .. } => "failed",
            Self::Parked { .. } => "parked",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the worker shall do with a job beyond paying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Offer more at the same nonce; other gas too, if every node refused what is there.
    Bump,
    /// Close the nonce without paying.
    Cancel,
}

impl Wanted {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bump => "bump",
            Self::Cancel => "cancel",
        }
    }
}

/// All of a job that decides what may happen to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: State,
    /// Whether a nonce is held: something may be signed at it.
    pub holds_nonce: bool,
    /// Why it is to be given up, once somebody asked for that.
    pub giving_up: Option<String>,
    /// Whether it gives up this nonce only, to be tried again once the nonce is closed.
    pub retreat: bool,
    /// Whether every node refused for good what was signed last at the nonce it holds.
    pub rejected: bool,
    /// Whether another nonce could be asked for: nothing was signed so far, or what was is proven never to pay.
    pub may_pay_again: bool,
    /// Whether something final about it was undone by a deep reorganisation, or landed though it was ruled out.
    pub contradicted: bool,
    pub tries: u32,
    pub max_tries: u32,
}

/// What confirmation found out, as far as the job's state goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Settled {
        tx_hash: TxHash,
    },
    Reverted {
        reason: String,
        value_moved: bool,
    },
    Void {
        reason: String,
    },
    /// Its time is over, and nothing that was signed for it landed in it.
    Expired {
        reason: String,
    },
    Stuck,
    Reopened,
    Cancelled,
    Contradicted {
        reason: String,
    },
}

/// Something that happens to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A worker took it, under a lease.
    Claimed,
    /// It cannot go on for a reason outside of it: no liquidity, a node or the signer away. Costs no try.
    Blocked {
        reason: String,
    },
    /// It was tried and failed for the moment. Costs a try.
    TryFailed {
        error: String,
    },
    /// Bytes are stored and were offered to the nodes.
    Sent,
    /// Every node refused the newest bytes at the nonce for good. `last`: as often as replacing them is worth trying.
    Rejected {
        kind: AttemptKind,
        reason: String,
        last: bool,
    },
    /// The signer refuses for the time being and has signed nothing at the nonce: it waits without one.
    RefusedForNow {
        reason: String,
    },
    /// Approvals ran out before anything was signed: it waits, without a nonce, until approvers have signed again.
    ApprovalsExpired {
        reason: String,
    },
    /// The signer has given the nonce to another payment, which is not known here: it is left behind for ever.
    NonceSpent {
        reason: String,
    },
    /// The signer, or the rules, will never allow this payment.
    Refused {
        reason: String,
    },
    /// As `Refused`, nothing was signed under what it holds, and that needs no closing.
    RefusedUnsigned {
        reason: String,
    },
    /// The signer refuses even the cancellation and never signed anything at the nonce: it can be handed on.
    NonceUnusable {
        reason: String,
    },
    /// What came back cannot be explained; a person must look.
    Inexplicable {
        reason: String,
    },
    /// An operator gives it up.
    CancelAsked {
        reason: String,
    },
    /// An operator wants it tried now.
    RetryAsked,
    Verdict(Finding),
}

/// What becomes of the nonce the job holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceFate {
    Keep,
    ClosedByPayment,
    ClosedByCancellation,
    ClosedByForeign,
    /// The window closed.
    Expired,
    /// Nothing was ever signed at it: another job may have it.
    Freed,
    /// It belongs to a payment that only the signer knows: nobody here may have it.
    Spent,
}

/// When the job is to be worked on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    No,
    Now,
    /// After the pause of the retry schedule, which a counted try lengthens.
    AfterTry,
    /// After the short pause for things that come back by themselves.
    AfterWait,
    /// After a long pause, for things that somebody will tell us about.
    Rarely,
}

/// The change that an event makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub to: State,
    /// Counted once, here and nowhere else.
    pub count_try: bool,
    pub again: Again,
    pub nonce: NonceFate,
    pub wanted: Option<Wanted>,
    pub giving_up: Option<String>,
    pub retreat: bool,
    /// What happened, for the `error` field; `None` clears it.
    pub note: Option<String>,
}

/// What an event does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It happened before, or no longer matters.
    AlreadyApplied,
    Changed(Change),
}

/// An event that cannot happen in this state.
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
            Self::Claimed => "a claim",
            Self::Blocked { .. } => "a block",
            Self::TryFailed { .. } => "a failed try",
            Self::Sent => "a broadcast",
            Self::Rejected { .. } => "a refusal by every node",
            Self::ApprovalsExpired { .. } => "expired approvals",
            Self::NonceSpent { .. } => "a spent nonce",
            Self::RefusedForNow { .. } => "a refusal for now",
            Self::Refused { .. } => "a refusal",
            Self::RefusedUnsigned { .. } => "a refusal before anything was signed",
            Self::NonceUnusable { .. } => "an unusable nonce",
            Self::Inexplicable { .. } => "an inexplicable answer",
            Self::CancelAsked { .. } => "a cancellation",
            Self::RetryAsked => "a retry",
            Self::Verdict(finding) => finding.name(),
        }
    }
}

impl Finding {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Settled { .. } => "settled",
            Self::Reverted { .. } => "reverted",
            Self::Void { .. } => "void",
            Self::Expired { .. } => "expired",
            Self::Stuck => "stuck",
            Self::Reopened => "reopened",
            Self::Cancelled => "cancelled",
            Self::Contradicted { .. } => "contradicted",
        }
    }
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
