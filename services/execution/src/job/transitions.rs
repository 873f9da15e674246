//! What each event does to a job: the whole state machine, one method for each side that speaks. No I/O, no clock.
//!
//! Invariants: those of `domain`; and every state and every event is named in each match, so that a new one does not compile
//! until it is placed.

use super::AttemptKind;
use super::domain::{
    Again, Change, Event, Finding, IllegalTransition, NonceFate, Standing, State, Step, Wanted,
};
use types::TxHash;

/// Why a job whose end was undone is neither tried again nor called failed.
const MAY_COME_BACK: &str = "what was final about it was undone once and may come back";

impl Standing {
    /// What `event` does to the job.
    pub fn apply(&self, event: &Event) -> Result<Step, IllegalTransition> {
        match event {
            Event::Verdict(finding) => Ok(self.judge(finding)),
            Event::CancelAsked { reason } => self.cancel(reason),
            Event::RetryAsked => self.retry(),
            Event::Rejected { kind, reason, last } => Ok(self.reject(*kind, reason, *last)),
            Event::Claimed
            | Event::Blocked { .. }
            | Event::TryFailed { .. }
            | Event::Sent
            | Event::RefusedForNow { .. }
            | Event::ApprovalsExpired { .. }
            | Event::NonceSpent { .. }
            | Event::Refused { .. }
            | Event::RefusedUnsigned { .. }
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
                | Event::ApprovalsExpired { .. }
                | Event::NonceSpent { .. }
                | Event::Refused { .. }
                | Event::RefusedUnsigned { .. }
                | Event::NonceUnusable { .. }
                | Event::Inexplicable { .. } => Err(self.illegal(event, "nobody has claimed it")),
                Event::Rejected { .. }
                | Event::CancelAsked { .. }
                | Event::RetryAsked
                | Event::Verdict(_) => Ok(Step::AlreadyApplied),
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
            Event::RefusedForNow { reason } => self.wait_without_nonce(reason, Again::AfterWait),
            Event::ApprovalsExpired { reason } => self.wait_without_nonce(reason, Again::Rarely),
            Event::NonceSpent { reason } => self.leave_nonce(reason),
            Event::Refused { reason } => self.give_up(reason),
            Event::RefusedUnsigned { reason } => {
                let nonce = if self.holds_nonce { NonceFate::Freed } else { NonceFate::Keep };
                self.failed(self.giving_up.clone().unwrap_or_else(|| reason.clone()), nonce)
            }
            Event::NonceUnusable { reason } | Event::Inexplicable { reason } => {
                let freed = matches!(event, Event::NonceUnusable { .. });
                self.park(reason, if freed { NonceFate::Freed } else { NonceFate::Keep })
            }
            Event::Rejected { .. } | Event::CancelAsked { .. } | Event::RetryAsked | Event::Verdict(_) => {
                Step::AlreadyApplied
            }
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
            // Nobody takes what is there and nothing else can be made: that is the end of this nonce, or of our means.
            Event::TryFailed { error: reason } | Event::Refused { reason } if self.rejected => {
                let kind = if self.giving_up.is_some() { AttemptKind::Cancel } else { AttemptKind::Pay };
                self.reject(kind, reason, true)
            }
            // A bump that cannot be made waits for the next verdict; giving up does not.
            Event::TryFailed { error: reason }
            | Event::RefusedForNow { reason }
            | Event::ApprovalsExpired { reason }
            | Event::NonceSpent { reason }
            | Event::Refused { reason }
            | Event::RefusedUnsigned { reason }
            | Event::NonceUnusable { reason }
            | Event::Inexplicable { reason } => self.changed(State::Confirming, |change| {
                change.note = Some(reason.clone());
                if self.giving_up.is_some() {
                    change.again = Again::AfterTry;
                    change.wanted = Some(Wanted::Cancel);
                }
            }),
            Event::Rejected { .. } | Event::CancelAsked { .. } | Event::RetryAsked | Event::Verdict(_) => {
                Step::AlreadyApplied
            }
        }
    }

    /// No node will ever take the newest bytes at the nonce. They may be replaced there, then closed there; never anything at
    /// another nonce, because a node that changes its mind would make two payments of it.
    fn reject(&self, kind: AttemptKind, reason: &str, last: bool) -> Step {
        // What another system sent is not ours to replace, and a verdict that was faster has decided.
        if self.state != State::Confirming || !self.holds_nonce {
            return Step::AlreadyApplied;
        }
        let again = |wanted| {
            self.changed(State::Confirming, |change| {
                change.again = Again::AfterWait;
                change.wanted = Some(wanted);
                change.note = Some(reason.to_owned());
            })
        };
        match (kind, last) {
            // The cancellation is asked for already.
            (AttemptKind::Pay, _) if self.giving_up.is_some() => Step::AlreadyApplied,
            (AttemptKind::Pay, false) => again(Wanted::Bump),
            (AttemptKind::Pay, true) => self.changed(State::Confirming, |change| {
                change.again = Again::Now;
                change.wanted = Some(Wanted::Cancel);
                change.giving_up = Some(format!("no node takes its transaction: {reason}"));
                change.retreat = true;
                change.note = Some(reason.to_owned());
            }),
            (AttemptKind::Cancel, false) => again(Wanted::Cancel),
            (AttemptKind::Cancel, true) => {
                self.park(&format!("no node takes the cancellation at its nonce: {reason}"), NonceFate::Keep)
            }
        }
    }

    fn wait_without_nonce(&self, reason: &str, again: Again) -> Step {
        let to = State::Pending { blocked: Some(reason.to_owned()) };
        self.changed(to, |change| {
            change.again = again;
            change.nonce = if self.holds_nonce { NonceFate::Freed } else { NonceFate::Keep };
        })
    }

    /// Nothing of this job can be at the nonce: it goes on at once with another, or ends if it was only to close this one.
    fn leave_nonce(&self, reason: &str) -> Step {
        let nonce = if self.holds_nonce { NonceFate::Spent } else { NonceFate::Keep };
        if let (Some(why), false) = (&self.giving_up, self.retreat) {
            return self.failed(why.clone(), nonce);
        }
        self.changed(State::Pending { blocked: None }, |change| {
            change.again = Again::Now;
            change.nonce = nonce;
            change.note = Some(reason.to_owned());
            change.give_nothing_up();
        })
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
                | Finding::Expired { .. }
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
                | Finding::Expired { .. }
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
                Finding::Expired { reason } => self.note_on_parked(why, reason, NonceFate::Expired),
                // Whoever looks may have paid otherwise: they say whether it is tried again.
                Finding::Cancelled if self.retreat => self.note_on_parked(
                    why,
                    "its nonce was closed without payment",
                    NonceFate::ClosedByCancellation,
                ),
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
            Finding::Expired { reason } => self.after_try(NonceFate::Expired, reason),
            Finding::Cancelled if self.retreat => {
                self.after_try(NonceFate::ClosedByCancellation, &self.reason_to_give_up())
            }
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
            State::Parked { .. } if self.contradicted && !self.holds_nonce => {
                Err(self.illegal_cancel(MAY_COME_BACK))
            }
            // "Failed" would say that nothing was paid.
            State::Parked { .. } if !self.holds_nonce && !self.may_pay_again => {
                Err(self.illegal_cancel("value may have moved; what is missing is paid by a new withdrawal"))
            }
            State::Pending { .. } | State::Processing | State::Confirming
                if self.giving_up.is_some() && self.holds_nonce && !self.retreat =>
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
                change.retreat = false;
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
            State::Parked { .. } if self.contradicted => refuse(MAY_COME_BACK),
            State::Parked { .. } if self.holds_nonce => refuse("a transaction of it may still land"),
            State::Parked { .. } if !self.may_pay_again => {
                refuse("value may have moved; what is missing is paid by a new withdrawal")
            }
            State::Parked { .. } => Ok(self.changed(State::Pending { blocked: None }, |change| {
                change.again = Again::Now;
                change.give_nothing_up();
            })),
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
            let known = self.giving_up.clone().filter(|_| !self.retreat);
            change.giving_up = Some(known.unwrap_or_else(|| reason.to_owned()));
            change.retreat = false;
            change.note = Some(reason.to_owned());
        })
    }

    /// A counted try ended without payment; `nonce` says what became of its nonce.
    fn after_try(&self, nonce: NonceFate, error: &str) -> Step {
        let open = self.holds_nonce && nonce == NonceFate::Keep;
        if self.contradicted && !open {
            return self.park(error, nonce);
        }
        if let (Some(reason), false, false) = (&self.giving_up, open, self.retreat) {
            return self.failed(reason.clone(), nonce);
        }
        if self.tries + 1 < self.max_tries {
            return self.changed(State::Pending { blocked: None }, |change| {
                change.count_try = true;
                change.again = Again::AfterTry;
                change.nonce = nonce;
                change.note = Some(error.to_owned());
                if open {
                    change.wanted = self.giving_up.as_ref().map(|_| Wanted::Cancel);
                } else {
                    change.give_nothing_up();
                }
            });
        }
        let exhausted = format!("given up after {} tries: {error}", self.max_tries);
        let mut step = if open { self.give_up(&exhausted) } else { self.failed(exhausted, nonce) };
        if let Step::Changed(change) = &mut step {
            change.count_try = self.tries < self.max_tries;
            // What closes the nonce could not be made either: no sooner than any other try.
            if open && self.giving_up.is_some() {
                change.again = Again::AfterTry;
            }
        }
        step
    }

    fn settled(&self, tx_hash: TxHash) -> Step {
        self.changed(State::Confirmed { tx_hash }, |change| change.nonce = NonceFate::ClosedByPayment)
    }

    fn failed(&self, reason: String, nonce: NonceFate) -> Step {
        // What was ruled out once may land after all: nobody can promise that nothing will be paid.
        if self.contradicted {
            return self.park(&reason, nonce);
        }
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
        let mut step = self.park(&format!("{parked}; {news}"), nonce);
        if let (Step::Changed(change), true) = (&mut step, self.retreat) {
            change.give_nothing_up();
        }
        step
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
            retreat: self.retreat,
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

impl Change {
    /// The nonce that was to be closed is closed, or no longer ours.
    fn give_nothing_up(&mut self) {
        self.giving_up = None;
        self.retreat = false;
        self.wanted = None;
    }
}
