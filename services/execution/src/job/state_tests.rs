use chrono::Utc;
use payment::{Cost, Finding, Inclusion, VoidProof};
use proptest::prelude::*;
use types::{RawAmount, TxHash};

use super::*;
use crate::job::Tries;

fn hash() -> TxHash {
    [7; 32].into()
}

fn closing(then: AfterClosing) -> Option<Closing> {
    Some(Closing { reason: "asked".into(), then })
}

fn closings() -> Vec<Option<Closing>> {
    vec![None, closing(AfterClosing::Fail), closing(AfterClosing::Retry), closing(AfterClosing::Park)]
}

fn pending(exposure: Exposure) -> State {
    State::Pending { blocked: None, exposure, closing: None }
}

fn processing(exposure: Exposure) -> State {
    State::Processing { exposure, closing: None }
}

fn confirming(closing: Option<Closing>) -> State {
    State::Confirming { newest: Newest::Live, closing, requested: false }
}

fn parked(exit: Exit) -> State {
    State::Parked { reason: "look".into(), exit }
}

/// Every state with every combination of what it carries.
fn states() -> Vec<State> {
    let mut states = vec![State::Confirmed { tx_hash: hash() }, State::Failed { reason: "gone".into() }];
    for closing in closings() {
        for exposure in [Exposure::Clear, Exposure::Held, Exposure::Unproven] {
            for blocked in [None, Some("no liquidity".to_owned())] {
                states.push(State::Pending { blocked, exposure, closing: closing.clone() });
            }
            states.push(State::Processing { exposure, closing: closing.clone() });
        }
        for newest in [Newest::Live, Newest::Rejected, Newest::Imported] {
            for requested in [false, true] {
                states.push(State::Confirming { newest, closing: closing.clone(), requested });
            }
        }
        let then = closing.as_ref().map_or(AfterClosing::Fail, |closing| closing.then);
        states.push(parked(Exit::Close { reason: closing.map(|closing| closing.reason), then }));
    }
    states.extend([Exit::Decide, Exit::Unproven, Exit::Undone].map(parked));
    states
}

fn inclusion() -> Inclusion {
    let cost = Cost { units: 21_000, unit_price: 1, fee: RawAmount::from(21_000u64) };
    Inclusion { tx: hash(), block_number: 1, block_hash: None, cost }
}

fn proof() -> VoidProof {
    VoidProof { tx_hashes: vec![hash()], signature: vec![1], attested_at: Utc::now() }
}

fn settled() -> Event {
    Event::Verdict(Finding::Settled(inclusion()))
}

fn reverted(value_moved: bool, proven: bool) -> Event {
    Event::Verdict(Finding::Reverted {
        inclusion: inclusion(),
        reason: "out of gas".into(),
        value_moved,
        void: vec![hash()],
        proof: proven.then(proof),
    })
}

fn cancelled(proven: bool) -> Event {
    let proof = proven.then(proof);
    Event::Verdict(Finding::Cancelled { inclusion: inclusion(), void: vec![hash()], proof })
}

fn void(foreign: bool, proven: bool) -> Event {
    Event::Verdict(Finding::Void {
        void: vec![hash()],
        foreign: foreign.then(hash),
        reason: "why".into(),
        proof: proven.then(proof),
    })
}

fn contradicted() -> Event {
    Event::Verdict(Finding::Contradicted { tx: None, reason: "why".into() })
}

fn cancel() -> Event {
    Event::CancelRequested { reason: "stop".into() }
}

fn refused_by_all(action: RefusedAction, last: bool) -> Event {
    Event::Rejected { action, reason: "gas".into(), last }
}

fn events() -> Vec<Event> {
    let text = || "why".to_owned();
    let work = [
        WorkEvent::Claimed,
        WorkEvent::Blocked { reason: text() },
        WorkEvent::TryFailed { error: text() },
        WorkEvent::Sent,
        WorkEvent::RefusedForNow { reason: text() },
        WorkEvent::Refused { reason: text() },
        WorkEvent::RefusedUnsigned { reason: text() },
        WorkEvent::NonceUnusable { reason: text() },
        WorkEvent::Inexplicable { reason: text() },
        WorkEvent::ApprovalsExpired { reason: text() },
        WorkEvent::NonceSpent { reason: text() },
    ];
    let mut events: Vec<Event> = work.into_iter().map(Event::Work).collect();
    events.extend([
        cancel(),
        Event::RetryRequested,
        settled(),
        contradicted(),
        Event::Verdict(Finding::Stuck { newest: hash(), waited: chrono::TimeDelta::seconds(1) }),
        Event::Verdict(Finding::Reopened { tx: hash(), block_hash: None }),
    ]);
    for yes in [false, true] {
        events.push(refused_by_all(RefusedAction::Payment, yes));
        events.push(refused_by_all(RefusedAction::Cancellation, yes));
        events.push(cancelled(yes));
        for proven in [false, true] {
            events.push(reverted(yes, proven));
            events.push(void(yes, proven));
        }
    }
    events
}

const FRESH: Tries = Tries { made: 0, allowed: 5 };

fn is_undone(state: &State) -> bool {
    match state {
        State::Parked { exit, .. } => {
            matches!(exit, Exit::Undone | Exit::Close { then: AfterClosing::Park, .. })
        }
        other => other.closing().is_some_and(|closing| closing.then == AfterClosing::Park),
    }
}

fn changed(state: &State, event: &Event, tries: Tries) -> Change {
    match state.apply(event, tries) {
        Ok(Step::Changed(change)) => change,
        other => panic!("{event:?} changed nothing of {state:?}: {other:?}"),
    }
}

/// What the database would hold after the step.
fn after(state: &State, event: &Event, step: &Step) -> State {
    let next = match step {
        Step::AlreadyApplied => state.clone(),
        Step::Changed(change) => change.to.clone(),
    };
    // A contradiction is recorded whether it changes anything or not.
    match (event, next) {
        (Event::Verdict(Finding::Contradicted { .. }), State::Parked { reason, exit }) => {
            let exit = match exit {
                Exit::Close { reason, .. } => Exit::Close { reason, then: AfterClosing::Park },
                Exit::Decide | Exit::Unproven | Exit::Undone => Exit::Undone,
            };
            State::Parked { reason, exit }
        }
        (_, next) => next,
    }
}

fn check(before: &State, event: &Event, tries: Tries) {
    let Ok(step) = before.apply(event, tries) else { return };
    let Step::Changed(change) = &step else { return };
    let next = after(before, event, &step);
    let held = before.exposure() == Exposure::Held;
    if let State::Failed { .. } = next {
        let released = !held || change.binding != BindingFate::Keep;
        assert!(released, "{before:?} failed on {event:?} with a nonce open");
        assert!(!is_undone(before), "{before:?} failed on {event:?}, and may still be paid");
    }
    if change.binding == BindingFate::Keep && !matches!(next, State::Confirmed { .. }) {
        assert!(!held || next.exposure() == Exposure::Held, "{before:?} forgot its nonce on {event:?}");
    } else if held {
        let allowed = matches!(
            event,
            Event::Verdict(_)
                | Event::Work(
                    WorkEvent::NonceUnusable { .. }
                        | WorkEvent::RefusedForNow { .. }
                        | WorkEvent::RefusedUnsigned { .. }
                        | WorkEvent::ApprovalsExpired { .. }
                        | WorkEvent::NonceSpent { .. }
                )
        );
        assert!(allowed, "{event:?} let a nonce go");
        assert_ne!(next.exposure(), Exposure::Held, "{before:?} still holds what it released on {event:?}");
    }
    match before {
        State::Confirmed { .. } => assert!(
            matches!(event, Event::Verdict(Finding::Contradicted { .. })),
            "{event:?} moved a confirmed job"
        ),
        State::Failed { .. } => {
            assert!(matches!(next, State::Parked { .. }), "{event:?} revived a failed job")
        }
        State::Pending { .. }
        | State::Processing { .. }
        | State::Confirming { .. }
        | State::Parked { .. } => {}
    }
    if let State::Confirmed { .. } = next {
        assert!(matches!(event, Event::Verdict(Finding::Settled(_))), "{event:?} confirmed a job");
    } else {
        assert!(!is_undone(before) || is_undone(&next), "{before:?} forgot on {event:?} that it was undone");
    }
    assert!(tries.made + u32::from(change.count_try) <= tries.allowed, "more tries than allowed");
    let waits = matches!(next, State::Pending { .. }) && change.to != *before;
    assert!(!waits || change.due != Due::Never, "{event:?} left a pending job that nobody will take");
}

#[test]
fn every_state_takes_every_event_without_breaking_the_promise() {
    for state in states() {
        for event in events() {
            for made in [0, 4, 5] {
                check(&state, &event, Tries { made, allowed: 5 });
            }
        }
    }
}

#[test]
fn a_revert_is_a_counted_try_and_the_fifth_fails() {
    let job = confirming(None);
    for made in 0..4 {
        let change = changed(&job, &reverted(false, true), Tries { made, allowed: 5 });
        assert_eq!((change.to, change.due), (pending(Exposure::Clear), Due::AfterTry));
        assert_eq!(change.binding, BindingFate::Closed { by: ClosedBy::Payment, proven: true });
    }
    let change = changed(&job, &reverted(false, true), Tries { made: 4, allowed: 5 });
    assert!(matches!(change.to, State::Failed { .. }) && change.count_try);
}

#[test]
fn a_job_with_a_nonce_is_cancelled_on_chain_before_it_fails() {
    for job in [pending(Exposure::Held), processing(Exposure::Held), confirming(None)] {
        let change = changed(&job, &cancel(), FRESH);
        assert_eq!(change.to.request(), Some(Request::Cancel));
        assert!(!matches!(change.to, State::Failed { .. }));
        let end = changed(&change.to, &cancelled(false), FRESH);
        assert_eq!(end.to, State::Failed { reason: "stop".into() });
    }
    let change = changed(&pending(Exposure::Clear), &cancel(), FRESH);
    assert_eq!(change.to, State::Failed { reason: "stop".into() });
}

#[test]
fn what_nobody_takes_is_replaced_then_closed_then_tried_again_and_never_elsewhere_before() {
    let job = confirming(None);
    let change = changed(&job, &refused_by_all(RefusedAction::Payment, false), FRESH);
    assert_eq!((change.to.status(), change.binding), (Status::Confirming, BindingFate::Keep));
    assert_eq!(change.to.request(), Some(Request::Bump));
    let closing = changed(&job, &refused_by_all(RefusedAction::Payment, true), FRESH).to;
    assert_eq!(closing.closing().map(|closing| closing.then), Some(AfterClosing::Retry));
    assert_eq!((closing.status(), closing.exposure()), (Status::Confirming, Exposure::Held));
    let parked = changed(&closing, &refused_by_all(RefusedAction::Cancellation, true), FRESH);
    assert!(matches!(parked.to, State::Parked { .. }) && parked.binding == BindingFate::Keep);
    let again = changed(&closing, &cancelled(true), FRESH);
    assert_eq!(again.to, pending(Exposure::Clear));
    assert!(again.count_try);
    assert_eq!(again.binding, BindingFate::Closed { by: ClosedBy::Cancellation, proven: true });
    let end = changed(&closing, &cancelled(true), Tries { made: 4, allowed: 5 });
    assert!(matches!(end.to, State::Failed { .. }));
    let unproven = changed(&closing, &cancelled(false), FRESH);
    assert!(matches!(unproven.to, State::Failed { .. }), "another nonce needs the proof");
}

#[test]
fn expired_approvals_wait_without_a_nonce_and_without_a_try() {
    let event = Event::Work(WorkEvent::ApprovalsExpired { reason: "0 of 2 hold".into() });
    let change = changed(&processing(Exposure::Held), &event, FRESH);
    let blocked = Some("0 of 2 hold".into());
    assert_eq!(change.to, State::Pending { blocked, exposure: Exposure::Clear, closing: None });
    assert_eq!((change.binding, change.count_try), (BindingFate::Freed, false));
}

#[test]
fn a_payment_that_lands_during_its_cancellation_is_confirmed() {
    let change = changed(&confirming(closing(AfterClosing::Fail)), &settled(), FRESH);
    assert_eq!(change.to, State::Confirmed { tx_hash: hash() });
}

#[test]
fn nobody_retries_what_may_still_land() {
    let paid = State::Confirmed { tx_hash: hash() };
    for state in [processing(Exposure::Clear), confirming(None), paid] {
        assert!(state.apply(&Event::RetryRequested, FRESH).is_err());
    }
    assert!(parked(Exit::Decide).apply(&Event::RetryRequested, FRESH).is_ok());
    let held = Exit::Close { reason: None, then: AfterClosing::Fail };
    assert!(parked(held).apply(&Event::RetryRequested, FRESH).is_err());
    assert!(parked(Exit::Unproven).apply(&Event::RetryRequested, FRESH).is_err());
}

#[test]
fn what_was_undone_neither_pays_again_nor_fails_and_its_nonce_can_still_be_closed() {
    let undone = parked(Exit::Undone);
    assert!(undone.apply(&Event::RetryRequested, FRESH).is_err());
    assert!(undone.apply(&cancel(), FRESH).is_err());
    let holding = parked(Exit::Close { reason: None, then: AfterClosing::Park });
    assert!(holding.apply(&Event::RetryRequested, FRESH).is_err());
    let closing = changed(&holding, &cancel(), FRESH).to;
    assert!(closing.exposure() == Exposure::Held && closing.closing().is_some());
    let closed = changed(&closing, &cancelled(true), FRESH);
    assert_eq!(closed.to, State::Parked { reason: "stop".into(), exit: Exit::Undone });
    assert_eq!(closed.binding, BindingFate::Closed { by: ClosedBy::Cancellation, proven: true });
    let reverted = changed(&closing, &reverted(false, true), FRESH);
    assert!(matches!(reverted.to, State::Parked { .. }), "{reverted:?}");
}

#[test]
fn a_block_costs_no_try() {
    let blocked = Event::Work(WorkEvent::Blocked { reason: "node away".into() });
    let change = changed(&processing(Exposure::Clear), &blocked, FRESH);
    assert!(!change.count_try);
    assert_eq!(change.due, Due::AfterWait);
}

proptest! {
    /// Random lives: the promise holds after every step, and a job that took a nonce without proof never fails.
    #[test]
    fn any_sequence_of_events_keeps_the_promise(
        script in prop::collection::vec((prop::sample::select(events()), any::<bool>()), 0..60),
    ) {
        let mut job = pending(Exposure::Clear);
        let mut tries = FRESH;
        for (event, takes_nonce) in script {
            if let (true, State::Processing { exposure: exposure @ Exposure::Clear, closing: None }) =
                (takes_nonce, &mut job)
            {
                *exposure = Exposure::Held;
            }
            check(&job, &event, tries);
            if let Ok(step) = job.apply(&event, tries) {
                if let Step::Changed(Change { count_try: true, .. }) = step {
                    tries.made += 1;
                }
                job = after(&job, &event, &step);
            }
        }
    }
}

#[test]
fn a_nonce_that_cannot_be_closed_is_tried_again_at_the_pace_of_tries_and_not_in_a_loop() {
    let stuck = State::Processing { exposure: Exposure::Held, closing: closing(AfterClosing::Fail) };
    let failed = Event::Work(WorkEvent::TryFailed { error: "the fee is at its cap".into() });
    let change = changed(&stuck, &failed, Tries { made: 5, allowed: 5 });
    assert_eq!((change.to.name(), change.due), ("pending", Due::AfterTry));
    assert_eq!(change.to.request(), Some(Request::Cancel));
}

#[test]
fn what_a_person_lets_go_on_is_no_longer_given_up() {
    let change = changed(&parked(Exit::Decide), &Event::RetryRequested, FRESH);
    assert_eq!((change.to.name(), change.to.closing(), change.to.request()), ("pending", None, None));
}

#[test]
fn a_stuck_cancellation_is_raised_and_the_retry_after_it_is_not_forgotten() {
    let stuck = Event::Verdict(Finding::Stuck { newest: hash(), waited: chrono::TimeDelta::seconds(1) });
    let change = changed(&confirming(closing(AfterClosing::Retry)), &stuck, FRESH);
    assert_eq!(change.to.request(), Some(Request::Cancel));
    assert_eq!(change.to.closing().map(|closing| closing.then), Some(AfterClosing::Retry));
}
