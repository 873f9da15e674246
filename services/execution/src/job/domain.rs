//! The states of a job and what moves it between them. No I/O, no clock.
//!
//! Owns the one answer to "what may happen to this job next". It never looks at a chain or a database: what it needs to
//! know (does the job hold a nonce, was it asked to give up) is told to it.
//!
//! Invariants:
//! - `Failed` is reached only while no nonce is held: either none was ever taken, or the verdict that closes it says so.
//! - A nonce is let go only by a verdict, or by the signer's word that nothing was ever signed at it.
//! - A replay is `AlreadyApplied`, a value; what cannot be is `IllegalTransition`, an error that names both sides.

use std::fmt;

use types::TxHash;

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
    /// Raise the fee at the same nonce.
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
    /// Whether another nonce could be asked for: nothing was signed so far, or what was is proven never to pay.
    pub may_pay_again: bool,
    /// Whether a final payment of it was undone by a deep reorganisation, and may come back.
    pub contradicted: bool,
    pub tries: u32,
    pub max_tries: u32,
}

/// What confirmation found out, as far as the job's state goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Settled { tx_hash: TxHash },
    Reverted { reason: String, value_moved: bool },
    Void { reason: String },
    Stuck,
    Reopened,
    Cancelled,
    Contradicted { reason: String },
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
    /// The signer refuses for the time being and has signed nothing at the nonce: it waits without one.
    RefusedForNow {
        reason: String,
    },
    /// The signer, or the rules, will never allow this payment.
    Refused {
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
    /// Nothing was ever signed at it: another job may have it.
    Freed,
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
            Self::RefusedForNow { .. } => "a refusal for now",
            Self::Refused { .. } => "a refusal",
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
            Self::Stuck => "stuck",
            Self::Reopened => "reopened",
            Self::Cancelled => "cancelled",
            Self::Contradicted { .. } => "contradicted",
        }
    }
}

impl Standing {
    /// What `event` does to the job.
    pub fn apply(&self, event: &Event) -> Result<Step, IllegalTransition> {
        match event {
            Event::Verdict(finding) => Ok(self.judge(finding)),
            Event::CancelAsked { reason } => self.cancel(reason),
            Event::RetryAsked => self.retry(),
            Event::Claimed
            | Event::Blocked { .. }
            | Event::TryFailed { .. }
            | Event::Sent
            | Event::RefusedForNow { .. }
            | Event::Refused { .. }
            | Event::NonceUnusable { .. }
            | Event::Inexplicable { .. } => self.work(event),
        }
    }

    /// What a worker reports.
    fn work(&self, event: &Event) -> Result<Step, IllegalTransition> {
        match &self.state {
            State::Pending { .. } => match event {
                Event::Claimed => Ok(self.stay(State::Processing)),
                Event::Blocked { .. }
                | Event::TryFailed { .. }
                | Event::Sent
                | Event::RefusedForNow { .. }
                | Event::Refused { .. }
                | Event::NonceUnusable { .. }
                | Event::Inexplicable { .. } => Err(self.illegal(event, "nobody has claimed it")),
                Event::CancelAsked { .. } | Event::RetryAsked | Event::Verdict(_) => Ok(Step::AlreadyApplied),
            },
            State::Processing => Ok(self.work_on_processing(event)),
            State::Confirming => Ok(self.work_on_confirming(event)),
            // A verdict was faster than the worker. What the worker did meanwhile was at the same nonce.
            State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => Ok(Step::AlreadyApplied),
        }
    }

    fn work_on_processing(&self, event: &Event) -> Step {
        match event {
            // The lease of an earlier worker ran out.
            Event::Claimed => Step::AlreadyApplied,
            Event::Blocked { reason } => {
                let to = State::Pending { blocked: Some(reason.clone()) };
                self.changed(to, |change| change.again = Again::AfterWait)
            }
            Event::TryFailed { error } => self.after_try(NonceFate::Keep, error),
            Event::Sent => self.stay(State::Confirming),
            Event::RefusedForNow { reason } => {
                let to = State::Pending { blocked: Some(reason.clone()) };
                self.changed(to, |change| {
                    change.again = Again::AfterWait;
                    change.nonce = if self.holds_nonce { NonceFate::Freed } else { NonceFate::Keep };
                })
            }
            Event::Refused { reason } => self.give_up(reason),
            Event::NonceUnusable { reason } | Event::Inexplicable { reason } => {
                let freed = matches!(event, Event::NonceUnusable { .. });
                self.park(reason, if freed { NonceFate::Freed } else { NonceFate::Keep })
            }
            Event::CancelAsked { .. } | Event::RetryAsked | Event::Verdict(_) => Step::AlreadyApplied,
        }
    }

    /// A bump or a cancellation is under way; the payment itself may land at any moment.
    fn work_on_confirming(&self, event: &Event) -> Step {
        match event {
            Event::Claimed => Step::AlreadyApplied,
            Event::Sent => self.stay(State::Confirming),
            Event::Blocked { reason } => self.changed(State::Confirming, |change| {
                change.again = Again::AfterWait;
                change.wanted = Some(self.wanted_at_nonce());
                change.note = Some(reason.clone());
            }),
            // A bump that cannot be made waits for the next verdict; giving up does not.
            Event::TryFailed { error: reason }
            | Event::RefusedForNow { reason }
            | Event::Refused { reason }
            | Event::NonceUnusable { reason }
            | Event::Inexplicable { reason } => self.changed(State::Confirming, |change| {
                change.note = Some(reason.clone());
                if self.giving_up.is_some() {
                    change.again = Again::AfterTry;
                    change.wanted = Some(Wanted::Cancel);
                }
            }),
            Event::CancelAsked { .. } | Event::RetryAsked | Event::Verdict(_) => Step::AlreadyApplied,
        }
    }

    /// What confirmation reports. Positive evidence is taken in every state; what is final is never undone by itself.
    fn judge(&self, finding: &Finding) -> Step {
        match &self.state {
            State::Pending { .. } | State::Processing | State::Confirming => self.judge_open(finding),
            State::Confirmed { .. } => match finding {
                Finding::Contradicted { reason } => self.park(reason, NonceFate::Keep),
                Finding::Settled { .. }
                | Finding::Reverted { .. }
                | Finding::Void { .. }
                | Finding::Stuck
                | Finding::Reopened
                | Finding::Cancelled => Step::AlreadyApplied,
            },
            State::Failed { .. } => match finding {
                Finding::Settled { tx_hash } => {
                    self.park(&format!("{tx_hash} paid, though the job was called failed"), NonceFate::Keep)
                }
                Finding::Contradicted { reason } => self.park(reason, NonceFate::Keep),
                Finding::Reverted { .. }
                | Finding::Void { .. }
                | Finding::Stuck
                | Finding::Reopened
                | Finding::Cancelled => Step::AlreadyApplied,
            },
            State::Parked { reason: why } => match finding {
                Finding::Settled { tx_hash } => self.settled(*tx_hash),
                // It stays with the person, but what is final about its nonce is noted.
                Finding::Reverted { reason, .. } => {
                    self.note_on_parked(why, reason, NonceFate::ClosedByPayment)
                }
                Finding::Void { reason } => self.note_on_parked(why, reason, NonceFate::ClosedByForeign),
                Finding::Cancelled => self.failed(self.reason_to_give_up(), NonceFate::ClosedByCancellation),
                Finding::Stuck | Finding::Reopened | Finding::Contradicted { .. } => Step::AlreadyApplied,
            },
        }
    }

    fn judge_open(&self, finding: &Finding) -> Step {
        match finding {
            Finding::Settled { tx_hash } => self.settled(*tx_hash),
            Finding::Reverted { reason, value_moved: true } => self.park(reason, NonceFate::ClosedByPayment),
            Finding::Reverted { reason, value_moved: false } => {
                self.after_try(NonceFate::ClosedByPayment, reason)
            }
            Finding::Void { reason } => self.after_try(NonceFate::ClosedByForeign, reason),
            Finding::Cancelled => self.failed(self.reason_to_give_up(), NonceFate::ClosedByCancellation),
            Finding::Contradicted { reason } => self.park(reason, NonceFate::Keep),
            Finding::Stuck if self.state == State::Confirming && self.holds_nonce => {
                self.changed(State::Confirming, |change| {
                    change.again = Again::Now;
                    change.wanted = Some(self.wanted_at_nonce());
                })
            }
            // The resend loop does what has to be done; the state is the same.
            Finding::Stuck | Finding::Reopened => Step::AlreadyApplied,
        }
    }

    fn cancel(&self, reason: &str) -> Result<Step, IllegalTransition> {
        match &self.state {
            State::Confirmed { .. } => Err(self.illegal_cancel("it is paid")),
            State::Failed { .. } => Ok(Step::AlreadyApplied),
            State::Parked { .. } if self.contradicted => {
                Err(self.illegal_cancel("its payment was final once and may come back"))
            }
            State::Pending { .. } | State::Processing | State::Confirming
                if self.giving_up.is_some() && self.holds_nonce =>
            {
                Ok(Step::AlreadyApplied)
            }
            State::Confirming if !self.holds_nonce => {
                Err(self.illegal_cancel("another system sent it, and its nonce is not known here"))
            }
            State::Confirming => Ok(self.changed(State::Confirming, |change| {
                change.again = Again::Now;
                change.wanted = Some(Wanted::Cancel);
                change.giving_up = Some(reason.to_owned());
            })),
            State::Pending { .. } | State::Processing | State::Parked { .. } => Ok(self.give_up(reason)),
        }
    }

    fn retry(&self) -> Result<Step, IllegalTransition> {
        let refuse = |why| Err(IllegalTransition { from: self.state.name(), event: "a retry", why });
        match &self.state {
            State::Pending { blocked } => {
                let to = State::Pending { blocked: blocked.clone() };
                Ok(self.changed(to, |change| {
                    change.again = Again::Now;
                    change.wanted = self.giving_up.as_ref().map(|_| Wanted::Cancel);
                }))
            }
            State::Parked { .. } if self.holds_nonce => refuse("a transaction of it may still land"),
            State::Parked { .. } if !self.may_pay_again => {
                refuse("value may have moved; what is missing is paid by a new withdrawal")
            }
            State::Parked { .. } => {
                Ok(self.changed(State::Pending { blocked: None }, |change| change.again = Again::Now))
            }
            State::Processing => refuse("a worker is on it"),
            State::Confirming => refuse("its transaction may still land"),
            State::Confirmed { .. } => refuse("it is paid"),
            State::Failed { .. } => refuse("it has ended; a new withdrawal is a new request"),
        }
    }

    /// Ends the job now if nothing can be signed for it, and otherwise asks for its nonce to be closed.
    fn give_up(&self, reason: &str) -> Step {
        if !self.holds_nonce {
            return self.failed(reason.to_owned(), NonceFate::Keep);
        }
        self.changed(State::Pending { blocked: None }, |change| {
            change.again = Again::Now;
            change.wanted = Some(Wanted::Cancel);
            change.giving_up = Some(self.giving_up.clone().unwrap_or_else(|| reason.to_owned()));
            change.note = Some(reason.to_owned());
        })
    }

    /// A counted try ended without payment; `nonce` says what became of its nonce.
    fn after_try(&self, nonce: NonceFate, error: &str) -> Step {
        let open = self.holds_nonce && nonce == NonceFate::Keep;
        if let (Some(reason), false) = (&self.giving_up, open) {
            return self.failed(reason.clone(), nonce);
        }
        if self.tries + 1 < self.max_tries {
            return self.changed(State::Pending { blocked: None }, |change| {
                change.count_try = true;
                change.again = Again::AfterTry;
                change.nonce = nonce;
                change.wanted = self.giving_up.as_ref().map(|_| Wanted::Cancel);
                change.note = Some(error.to_owned());
            });
        }
        let exhausted = format!("given up after {} tries: {error}", self.max_tries);
        let mut step = if open { self.give_up(&exhausted) } else { self.failed(exhausted, nonce) };
        if let Step::Changed(change) = &mut step {
            change.count_try = self.tries < self.max_tries;
        }
        step
    }

    fn settled(&self, tx_hash: TxHash) -> Step {
        self.changed(State::Confirmed { tx_hash }, |change| change.nonce = NonceFate::ClosedByPayment)
    }

    fn failed(&self, reason: String, nonce: NonceFate) -> Step {
        self.changed(State::Failed { reason: reason.clone() }, |change| {
            change.nonce = nonce;
            change.note = Some(reason);
        })
    }

    fn park(&self, reason: &str, nonce: NonceFate) -> Step {
        self.changed(State::Parked { reason: reason.to_owned() }, |change| {
            change.nonce = nonce;
            change.note = Some(reason.to_owned());
        })
    }

    fn note_on_parked(&self, parked: &str, news: &str, nonce: NonceFate) -> Step {
        if !self.holds_nonce {
            return Step::AlreadyApplied;
        }
        self.park(&format!("{parked}; {news}"), nonce)
    }

    fn stay(&self, to: State) -> Step {
        self.changed(to, |_| {})
    }

    fn changed(&self, to: State, adjust: impl FnOnce(&mut Change)) -> Step {
        let mut change = Change {
            to,
            count_try: false,
            again: Again::No,
            nonce: NonceFate::Keep,
            wanted: None,
            giving_up: self.giving_up.clone(),
            note: None,
        };
        adjust(&mut change);
        Step::Changed(change)
    }

    fn wanted_at_nonce(&self) -> Wanted {
        if self.giving_up.is_some() { Wanted::Cancel } else { Wanted::Bump }
    }

    fn reason_to_give_up(&self) -> String {
        self.giving_up.clone().unwrap_or_else(|| "its nonce was closed without payment".to_owned())
    }

    fn illegal(&self, event: &Event, why: &'static str) -> IllegalTransition {
        IllegalTransition { from: self.state.name(), event: event.name(), why }
    }

    fn illegal_cancel(&self, why: &'static str) -> IllegalTransition {
        IllegalTransition { from: self.state.name(), event: "a cancellation", why }
    }
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
