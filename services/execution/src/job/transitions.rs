//! What each event does to a job: the whole state machine. No I/O, no clock.
//!
//! Invariants: those of `state`; and every state and every event is named in each match, so that a new one does not compile
//! until it is placed.

use payment::Finding;
use types::TxHash;

use super::state::{
    AfterClosing, BindingFate, Change, ClosedBy, Closing, Due, Event, Exit, Exposure, IllegalTransition,
    Newest, RefusedAction, State, Step, WorkEvent,
};

const MAY_COME_BACK: &str = "what was final about it was undone once and may come back";
const VALUE_MAY_HAVE_MOVED: &str = "value may have moved; what is missing is paid by a new withdrawal";
const CLOSED_WITHOUT_PAYMENT: &str = "its nonce was closed without payment";

/// How often a job was tried, and how often it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    pub made: u32,
    pub allowed: u32,
}

impl State {
    pub fn apply(&self, event: &Event, tries: Tries) -> Result<Step, IllegalTransition> {
        Machine { state: self, tries }.apply(event)
    }
}

struct Machine<'a> {
    state: &'a State,
    tries: Tries,
}

impl Machine<'_> {
    fn apply(&self, event: &Event) -> Result<Step, IllegalTransition> {
        match event {
            Event::Verdict(finding) => Ok(self.judge(finding)),
            Event::CancelRequested { reason } => self.cancel(reason).map_err(|why| self.illegal(event, why)),
            Event::RetryRequested => self.retry().map_err(|why| self.illegal(event, why)),
            Event::Rejected { action, reason, last } => Ok(self.reject(*action, reason, *last)),
            Event::Work(work) => self.work(work).map_err(|why| self.illegal(event, why)),
        }
    }

    /// What a worker reports.
    fn work(&self, event: &WorkEvent) -> Result<Step, &'static str> {
        match self.state {
            State::Pending { exposure, closing, .. } => match event {
                WorkEvent::Claimed => {
                    let to = State::Processing { exposure: *exposure, closing: closing.clone() };
                    Ok(changed(to, Due::Never))
                }
                WorkEvent::Blocked { .. }
                | WorkEvent::TryFailed { .. }
                | WorkEvent::Sent
                | WorkEvent::RefusedForNow { .. }
                | WorkEvent::ApprovalsExpired { .. }
                | WorkEvent::NonceSpent { .. }
                | WorkEvent::Refused { .. }
                | WorkEvent::RefusedUnsigned { .. }
                | WorkEvent::NonceUnusable { .. }
                | WorkEvent::Inexplicable { .. } => Err("nobody has claimed it"),
            },
            State::Processing { .. } => self.work_on_processing(event),
            State::Confirming { newest, .. } => Ok(self.work_on_confirming(*newest, event)),
            // A verdict was faster than the worker, which acted under the same binding meanwhile.
            State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => Ok(Step::AlreadyApplied),
        }
    }

    fn work_on_processing(&self, event: &WorkEvent) -> Result<Step, &'static str> {
        Ok(match event {
            // The lease of an earlier worker expired.
            WorkEvent::Claimed => Step::AlreadyApplied,
            WorkEvent::Blocked { reason } => {
                changed(self.pending(Some(reason), self.state.exposure()), Due::AfterWait)
            }
            WorkEvent::TryFailed { error } => self.after_try(BindingFate::Keep, error),
            WorkEvent::Sent if self.holds() => {
                let closing = self.state.closing().cloned();
                changed(State::Confirming { newest: Newest::Live, closing, requested: false }, Due::Never)
            }
            WorkEvent::Sent => return Err("it holds no binding under which anything could be sent"),
            WorkEvent::RefusedForNow { reason } => self.wait_without_binding(reason, Due::AfterWait),
            WorkEvent::ApprovalsExpired { reason } => self.wait_without_binding(reason, Due::Rarely),
            WorkEvent::NonceSpent { reason } => self.abandon_nonce(reason),
            WorkEvent::Refused { reason } => self.give_up(reason),
            WorkEvent::RefusedUnsigned { reason } => {
                let known = self.state.closing().map(|closing| &closing.reason);
                self.failed(known.unwrap_or(reason), self.released(BindingFate::Freed))
            }
            WorkEvent::NonceUnusable { reason } => self.park(reason, self.released(BindingFate::Freed)),
            WorkEvent::Inexplicable { reason } => self.park(reason, BindingFate::Keep),
        })
    }

    /// A bump or a cancellation is being made; the payment itself may land at any moment.
    fn work_on_confirming(&self, newest: Newest, event: &WorkEvent) -> Step {
        let closing = self.state.closing();
        match event {
            WorkEvent::Claimed => Step::AlreadyApplied,
            WorkEvent::Sent => changed(self.confirming(false), Due::Never),
            WorkEvent::Blocked { reason } => noted(self.confirming(true), Due::AfterWait, reason),
            // Nobody takes what is there and nothing else can be made: that is the end of this nonce, or of our means.
            WorkEvent::TryFailed { error: reason } | WorkEvent::Refused { reason }
                if newest == Newest::Rejected =>
            {
                let action =
                    if closing.is_some() { RefusedAction::Cancellation } else { RefusedAction::Payment };
                self.reject(action, reason, true)
            }
            // A bump that cannot be made waits for the next verdict; a cancellation is tried again.
            WorkEvent::TryFailed { error: reason }
            | WorkEvent::RefusedForNow { reason }
            | WorkEvent::ApprovalsExpired { reason }
            | WorkEvent::NonceSpent { reason }
            | WorkEvent::Refused { reason }
            | WorkEvent::RefusedUnsigned { reason }
            | WorkEvent::NonceUnusable { reason }
            | WorkEvent::Inexplicable { reason } => {
                let due = if closing.is_some() { Due::AfterTry } else { Due::Never };
                noted(self.confirming(closing.is_some()), due, reason)
            }
        }
    }

    /// No node will ever take the newest bytes at the nonce. They may be replaced there, then closed there; nothing is signed at
    /// another nonce, because a node that changes its mind would make two payments of it.
    fn reject(&self, action: RefusedAction, reason: &str, last: bool) -> Step {
        // What another system sent is not ours to replace, and a verdict that was faster has decided.
        let State::Confirming { newest: newest @ (Newest::Live | Newest::Rejected), closing, .. } =
            self.state
        else {
            return Step::AlreadyApplied;
        };
        match (action, last) {
            // The cancellation is requested already.
            (RefusedAction::Payment, _) if closing.is_some() => Step::AlreadyApplied,
            (RefusedAction::Payment, true) => {
                let reason_to_close = format!("no node takes its transaction: {reason}");
                let closing = Some(Closing { reason: reason_to_close, then: AfterClosing::Retry });
                noted(State::Confirming { newest: *newest, closing, requested: true }, Due::Now, reason)
            }
            (RefusedAction::Payment | RefusedAction::Cancellation, false) => {
                noted(self.confirming(true), Due::AfterWait, reason)
            }
            (RefusedAction::Cancellation, true) => self
                .park(&format!("no node takes the cancellation at its nonce: {reason}"), BindingFate::Keep),
        }
    }

    fn wait_without_binding(&self, reason: &str, due: Due) -> Step {
        let fate = self.released(BindingFate::Freed);
        let to = self.pending(Some(reason), self.exposure_after(fate));
        changed(to, due).with(|change| change.binding = fate)
    }

    /// Nothing of this job can be at the nonce: it goes on at once with another, or ends if it was only to close this one.
    fn abandon_nonce(&self, reason: &str) -> Step {
        let fate = self.released(BindingFate::Spent);
        match self.state.closing() {
            Some(Closing { reason, then: AfterClosing::Fail | AfterClosing::Park }) => {
                self.failed(reason, fate)
            }
            Some(Closing { then: AfterClosing::Retry, .. }) | None => {
                let to = State::Pending { blocked: None, exposure: self.exposure_after(fate), closing: None };
                noted(to, Due::Now, reason).with(|change| change.binding = fate)
            }
        }
    }

    /// What confirmation reports. Positive evidence counts in every state; what is final is never undone by itself.
    fn judge(&self, finding: &Finding) -> Step {
        match self.state {
            State::Pending { .. } | State::Processing { .. } | State::Confirming { .. } => {
                self.judge_open(finding)
            }
            State::Confirmed { .. } | State::Failed { .. } => match finding {
                Finding::Contradicted { reason, .. } => self.park_undone(reason),
                Finding::Settled(inclusion) if matches!(self.state, State::Failed { .. }) => {
                    self.park_undone(&format!("{} paid, though the job was called failed", inclusion.tx))
                }
                Finding::Settled(_)
                | Finding::Reverted { .. }
                | Finding::Void { .. }
                | Finding::Stuck { .. }
                | Finding::Reopened { .. }
                | Finding::Cancelled { .. } => Step::AlreadyApplied,
            },
            State::Parked { reason, .. } => self.judge_parked(reason, finding),
        }
    }

    /// A parked job stays with the person, but what is final about its binding is recorded.
    fn judge_parked(&self, why: &str, finding: &Finding) -> Step {
        match finding {
            Finding::Settled(inclusion) => settled(inclusion.tx),
            Finding::Reverted { .. } | Finding::Void { .. } | Finding::Cancelled { .. } if !self.holds() => {
                Step::AlreadyApplied
            }
            Finding::Reverted { reason, .. } | Finding::Void { reason, .. } => {
                self.park(&format!("{why}; {reason}"), fate_of(finding))
            }
            // The person may have paid otherwise and says whether it is tried again.
            Finding::Cancelled { proof: Some(_), .. } if self.closing_so_far().1 == AfterClosing::Retry => {
                self.park(&format!("{why}; {CLOSED_WITHOUT_PAYMENT}"), fate_of(finding))
            }
            Finding::Cancelled { .. } => self.failed(self.reason_to_close(), fate_of(finding)),
            // The repository derives the exit from the recorded verdicts, so recording a contradiction is enough.
            Finding::Stuck { .. } | Finding::Reopened { .. } | Finding::Contradicted { .. } => {
                Step::AlreadyApplied
            }
        }
    }

    fn judge_open(&self, finding: &Finding) -> Step {
        match finding {
            Finding::Settled(inclusion) => settled(inclusion.tx),
            Finding::Reverted { reason, value_moved: true, .. } => self.park(reason, fate_of(finding)),
            Finding::Reverted { reason, value_moved: false, .. } | Finding::Void { reason, .. } => {
                self.after_try(fate_of(finding), reason)
            }
            Finding::Cancelled { .. } => match self.state.closing() {
                // Another nonce needs confirmation's attestation; without it the closed nonce is the end.
                Some(Closing { reason, then: AfterClosing::Retry }) if finding.proof().is_some() => {
                    self.after_try(fate_of(finding), reason)
                }
                Some(_) | None => self.failed(self.reason_to_close(), fate_of(finding)),
            },
            Finding::Contradicted { reason, .. } => self.park_undone(reason),
            Finding::Stuck { .. } if matches!(self.state, State::Confirming { .. }) && self.holds() => {
                changed(self.confirming(true), Due::Now)
            }
            // The resend loop does what has to be done; the state is the same.
            Finding::Stuck { .. } | Finding::Reopened { .. } => Step::AlreadyApplied,
        }
    }

    fn cancel(&self, reason: &str) -> Result<Step, &'static str> {
        match self.state {
            State::Confirmed { .. } => Err("it is paid"),
            State::Failed { .. } => Ok(Step::AlreadyApplied),
            State::Parked { exit: Exit::Undone, .. } => Err(MAY_COME_BACK),
            // "Failed" would say that nothing was paid.
            State::Parked { exit: Exit::Unproven, .. } => Err(VALUE_MAY_HAVE_MOVED),
            State::Parked { exit: Exit::Decide | Exit::Close { .. }, .. } => Ok(self.give_up(reason)),
            State::Pending { closing: Some(closing), .. }
            | State::Processing { closing: Some(closing), .. }
            | State::Confirming { closing: Some(closing), .. }
                if closing.then != AfterClosing::Retry && self.holds() =>
            {
                Ok(Step::AlreadyApplied)
            }
            State::Confirming { newest: Newest::Imported, .. } => {
                Err("another system sent it, and its nonce is not known here")
            }
            State::Confirming { newest, .. } => {
                let closing = Some(Closing { reason: reason.to_owned(), then: AfterClosing::Fail });
                let to = State::Confirming { newest: *newest, closing, requested: true };
                Ok(changed(to, Due::Now))
            }
            State::Pending { .. } | State::Processing { .. } => Ok(self.give_up(reason)),
        }
    }

    fn retry(&self) -> Result<Step, &'static str> {
        match self.state {
            State::Pending { .. } => Ok(changed(self.state.clone(), Due::Now)),
            State::Parked { exit: Exit::Undone | Exit::Close { then: AfterClosing::Park, .. }, .. } => {
                Err(MAY_COME_BACK)
            }
            State::Parked { exit: Exit::Close { .. }, .. } => Err("a transaction of it may still land"),
            State::Parked { exit: Exit::Unproven, .. } => Err(VALUE_MAY_HAVE_MOVED),
            State::Parked { exit: Exit::Decide, .. } => {
                let to = State::Pending { blocked: None, exposure: Exposure::Clear, closing: None };
                Ok(changed(to, Due::Now))
            }
            State::Processing { .. } => Err("a worker is on it"),
            State::Confirming { .. } => Err("its transaction may still land"),
            State::Confirmed { .. } => Err("it is paid"),
            State::Failed { .. } => Err("it has ended; a new withdrawal is a new request"),
        }
    }

    /// Ends the job now if it holds no binding, and otherwise requests that the binding is closed.
    fn give_up(&self, reason: &str) -> Step {
        if !self.holds() {
            return self.failed(reason, BindingFate::Keep);
        }
        let (known, then) = self.closing_so_far();
        let known = known.filter(|_| then != AfterClosing::Retry);
        let closing = Closing {
            reason: known.unwrap_or(reason).to_owned(),
            then: if then == AfterClosing::Park { AfterClosing::Park } else { AfterClosing::Fail },
        };
        let to = State::Pending { blocked: None, exposure: Exposure::Held, closing: Some(closing) };
        noted(to, Due::Now, reason)
    }

    /// A counted try ended without payment.
    fn after_try(&self, fate: BindingFate, error: &str) -> Step {
        let held = self.exposure_after(fate) == Exposure::Held;
        let closing = self.state.closing();
        let proven = !matches!(fate, BindingFate::Closed { proven: false, .. });
        match closing {
            Some(Closing { then: AfterClosing::Park, .. }) if !held => return self.park(error, fate),
            Some(Closing { reason, then: AfterClosing::Fail }) if !held => return self.failed(reason, fate),
            Some(Closing { reason, then: AfterClosing::Retry }) if !held && !proven => {
                return self.failed(reason, fate);
            }
            Some(_) | None => {}
        }
        let Tries { made, allowed } = self.tries;
        if made + 1 < allowed {
            let closing = closing.filter(|_| held).cloned();
            let to = State::Pending { blocked: None, exposure: self.exposure_after(fate), closing };
            return noted(to, Due::AfterTry, error).with(|change| {
                change.count_try = true;
                change.binding = fate;
            });
        }
        let exhausted = format!("given up after {allowed} tries: {error}");
        let step = if held { self.give_up(&exhausted) } else { self.failed(&exhausted, fate) };
        step.with(|change| {
            change.count_try = made < allowed;
            // The transaction that closes the nonce could not be made either: no sooner than any other try.
            if held && closing.is_some() {
                change.due = Due::AfterTry;
            }
        })
    }

    fn failed(&self, reason: &str, fate: BindingFate) -> Step {
        // What was ruled out once may land after all: nobody can promise that nothing will be paid.
        if self.is_undone() {
            return self.park(reason, fate);
        }
        noted(State::Failed { reason: reason.to_owned() }, Due::Never, reason)
            .with(|change| change.binding = fate)
    }

    fn park(&self, reason: &str, fate: BindingFate) -> Step {
        let exit = match (self.exposure_after(fate), self.is_undone()) {
            (Exposure::Held, _) => {
                let (known, then) = self.closing_so_far();
                Exit::Close { reason: known.map(str::to_owned), then }
            }
            (Exposure::Clear | Exposure::Unproven, true) => Exit::Undone,
            (Exposure::Clear, false) => Exit::Decide,
            (Exposure::Unproven, false) => Exit::Unproven,
        };
        noted(State::Parked { reason: reason.to_owned(), exit }, Due::Never, reason)
            .with(|change| change.binding = fate)
    }

    /// Parks a job of which something final was undone.
    fn park_undone(&self, reason: &str) -> Step {
        let exit = if self.holds() {
            let (known, _) = self.closing_so_far();
            Exit::Close { reason: known.map(str::to_owned), then: AfterClosing::Park }
        } else {
            Exit::Undone
        };
        noted(State::Parked { reason: reason.to_owned(), exit }, Due::Never, reason)
    }

    fn pending(&self, blocked: Option<&str>, exposure: Exposure) -> State {
        let closing = self.state.closing().cloned();
        State::Pending { blocked: blocked.map(str::to_owned), exposure, closing }
    }

    fn confirming(&self, requested: bool) -> State {
        let newest = if let State::Confirming { newest, .. } = self.state { *newest } else { Newest::Live };
        State::Confirming { newest, closing: self.state.closing().cloned(), requested }
    }

    fn holds(&self) -> bool {
        self.state.exposure() == Exposure::Held
    }

    /// `fate` where a binding is held; a job without one keeps what it has.
    fn released(&self, fate: BindingFate) -> BindingFate {
        if self.holds() { fate } else { BindingFate::Keep }
    }

    fn exposure_after(&self, fate: BindingFate) -> Exposure {
        match fate {
            BindingFate::Keep => self.state.exposure(),
            // A binding is taken only while the job is clear, and nothing was signed under this one.
            BindingFate::Freed | BindingFate::Spent => Exposure::Clear,
            BindingFate::Closed { proven: true, .. } => Exposure::Clear,
            BindingFate::Closed { proven: false, .. } => Exposure::Unproven,
        }
    }

    /// Why the binding is being closed, or was when the job was parked, and what was to follow.
    fn closing_so_far(&self) -> (Option<&str>, AfterClosing) {
        if let State::Parked { exit: Exit::Close { reason, then }, .. } = self.state {
            return (reason.as_deref(), *then);
        }
        let closing = self.state.closing();
        closing.map_or((None, AfterClosing::Fail), |closing| (Some(&closing.reason), closing.then))
    }

    fn is_undone(&self) -> bool {
        self.closing_so_far().1 == AfterClosing::Park
            || matches!(self.state, State::Parked { exit: Exit::Undone, .. })
    }

    fn reason_to_close(&self) -> &str {
        self.closing_so_far().0.unwrap_or(CLOSED_WITHOUT_PAYMENT)
    }

    fn illegal(&self, event: &Event, why: &'static str) -> IllegalTransition {
        IllegalTransition { from: self.state.name(), event: event.name(), why }
    }
}

/// How a finding that ends a binding closed it.
fn fate_of(finding: &Finding) -> BindingFate {
    let by = match finding {
        Finding::Settled(_) | Finding::Reverted { .. } => ClosedBy::Payment,
        Finding::Void { foreign: Some(_), .. } => ClosedBy::Foreign,
        Finding::Void { foreign: None, .. } => ClosedBy::Expired,
        Finding::Cancelled { .. } => ClosedBy::Cancellation,
        Finding::Stuck { .. } | Finding::Reopened { .. } | Finding::Contradicted { .. } => {
            return BindingFate::Keep;
        }
    };
    BindingFate::Closed { by, proven: finding.proof().is_some() }
}

fn settled(tx_hash: TxHash) -> Step {
    changed(State::Confirmed { tx_hash }, Due::Never)
        .with(|change| change.binding = BindingFate::Closed { by: ClosedBy::Payment, proven: false })
}

fn changed(to: State, due: Due) -> Step {
    Step::Changed(Change { to, count_try: false, due, binding: BindingFate::Keep, note: None })
}

fn noted(to: State, due: Due, note: &str) -> Step {
    changed(to, due).with(|change| change.note = Some(note.to_owned()))
}

impl Step {
    fn with(mut self, adjust: impl FnOnce(&mut Change)) -> Self {
        if let Self::Changed(change) = &mut self {
            adjust(change);
        }
        self
    }
}
