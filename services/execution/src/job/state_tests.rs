use proptest::prelude::*;

use super::*;

const HASH: TxHash = TxHash([7; 32]);

fn states() -> Vec<State> {
    vec![
        State::Pending { blocked: None },
        State::Pending { blocked: Some("no liquidity".into()) },
        State::Processing,
        State::Confirming,
        State::Confirmed { tx_hash: HASH },
        State::Failed { reason: "gone".into() },
        State::Parked { reason: "look".into() },
    ]
}

fn events() -> Vec<Event> {
    let text = || "why".to_owned();
    let mut events = vec![
        Event::Claimed,
        Event::Blocked { reason: text() },
        Event::TryFailed { error: text() },
        Event::Sent,
        Event::RefusedForNow { reason: text() },
        Event::Refused { reason: text() },
        Event::RefusedUnsigned { reason: text() },
        Event::NonceUnusable { reason: text() },
        Event::Inexplicable { reason: text() },
        Event::ApprovalsExpired { reason: text() },
        Event::NonceSpent { reason: text() },
        Event::Rejected { kind: AttemptKind::Pay, reason: text(), last: false },
        Event::Rejected { kind: AttemptKind::Pay, reason: text(), last: true },
        Event::Rejected { kind: AttemptKind::Cancel, reason: text(), last: false },
        Event::Rejected { kind: AttemptKind::Cancel, reason: text(), last: true },
        Event::CancelAsked { reason: text() },
        Event::RetryAsked,
    ];
    let findings = [
        Finding::Settled { tx_hash: HASH },
        Finding::Reverted { reason: text(), value_moved: false },
        Finding::Reverted { reason: text(), value_moved: true },
        Finding::Void { reason: text() },
        Finding::Expired { reason: text() },
        Finding::Stuck,
        Finding::Reopened,
        Finding::Cancelled,
        Finding::Contradicted { reason: text() },
    ];
    events.extend(findings.map(Event::Verdict));
    events
}

fn standing(state: State) -> Standing {
    Standing {
        state,
        holds_nonce: false,
        giving_up: None,
        retreat: false,
        rejected: false,
        may_pay_again: true,
        contradicted: false,
        tries: 0,
        max_tries: 5,
    }
}

/// What the database would hold after the step.
fn after(standing: &Standing, event: &Event, step: &Step) -> Standing {
    // Noted whether it changes anything or not.
    let undone = matches!(event, Event::Verdict(Finding::Contradicted { .. }));
    let contradicted = standing.contradicted || undone;
    let Step::Changed(change) = step else { return Standing { contradicted, ..standing.clone() } };
    Standing {
        state: change.to.clone(),
        holds_nonce: standing.holds_nonce && change.nonce == NonceFate::Keep,
        giving_up: change.giving_up.clone(),
        retreat: change.retreat,
        rejected: standing.rejected,
        may_pay_again: standing.may_pay_again,
        contradicted,
        tries: standing.tries + u32::from(change.count_try),
        max_tries: standing.max_tries,
    }
}

fn check(before: &Standing, event: &Event) {
    let Ok(step) = before.apply(event) else { return };
    let Step::Changed(change) = &step else { return };
    let next = after(before, event, &step);
    if let State::Failed { .. } = next.state {
        assert!(!next.holds_nonce, "{before:?} failed on {event:?} with a nonce open");
        assert!(!next.contradicted, "{before:?} failed on {event:?}, and may still be paid");
    }
    if before.holds_nonce && !next.holds_nonce {
        let allowed = matches!(
            event,
            Event::Verdict(_)
                | Event::NonceUnusable { .. }
                | Event::RefusedForNow { .. }
                | Event::RefusedUnsigned { .. }
                | Event::ApprovalsExpired { .. }
                | Event::NonceSpent { .. }
        );
        assert!(allowed, "{event:?} let a nonce go");
    }
    match &before.state {
        State::Confirmed { .. } => assert!(
            matches!(event, Event::Verdict(Finding::Contradicted { .. })),
            "{event:?} moved a confirmed job"
        ),
        State::Failed { .. } => {
            assert!(matches!(next.state, State::Parked { .. }), "{event:?} revived a failed job")
        }
        State::Pending { .. } | State::Processing | State::Confirming | State::Parked { .. } => {}
    }
    if let State::Confirmed { .. } = next.state {
        assert!(matches!(event, Event::Verdict(Finding::Settled { .. })), "{event:?} confirmed a job");
    }
    assert!(next.tries <= next.max_tries, "more tries than allowed");
    let waits = matches!(next.state, State::Pending { .. }) && change.to != before.state;
    assert!(!waits || change.again != Again::No, "{event:?} left a pending job that nobody will take");
}

#[test]
fn every_state_takes_every_event_without_breaking_the_promise() {
    for state in states() {
        for event in events() {
            for bits in 0..64u8 {
                for tries in [0, 4, 5] {
                    let mut before = standing(state.clone());
                    before.holds_nonce = bits & 1 != 0 && !matches!(state, State::Failed { .. });
                    before.giving_up = (bits & 2 != 0).then(|| "asked".to_owned());
                    before.may_pay_again = bits & 4 != 0;
                    before.retreat = bits & 8 != 0 && before.giving_up.is_some();
                    before.rejected = bits & 16 != 0 && before.holds_nonce;
                    before.contradicted = bits & 32 != 0;
                    before.tries = tries;
                    check(&before, &event);
                }
            }
        }
    }
}

#[test]
fn a_revert_is_a_counted_try_and_the_fifth_fails() {
    let mut job = Standing { holds_nonce: true, ..standing(State::Confirming) };
    let reverted = Event::Verdict(Finding::Reverted { reason: "out of gas".into(), value_moved: false });
    for tries in 1..5 {
        let Step::Changed(change) = job.apply(&reverted).unwrap() else { panic!("nothing changed") };
        assert_eq!((change.to, change.again), (State::Pending { blocked: None }, Again::AfterTry));
        assert_eq!(change.nonce, NonceFate::ClosedByPayment);
        job = Standing { holds_nonce: true, tries, ..standing(State::Confirming) };
    }
    let Step::Changed(change) = job.apply(&reverted).unwrap() else { panic!("nothing changed") };
    assert!(matches!(change.to, State::Failed { .. }) && change.count_try);
}

#[test]
fn a_job_with_a_nonce_is_cancelled_on_chain_before_it_fails() {
    for state in [State::Pending { blocked: None }, State::Processing, State::Confirming] {
        let job = Standing { holds_nonce: true, ..standing(state) };
        let Step::Changed(change) = job.apply(&Event::CancelAsked { reason: "stop".into() }).unwrap() else {
            panic!("nothing changed")
        };
        assert_eq!(change.wanted, Some(Wanted::Cancel));
        assert!(!matches!(change.to, State::Failed { .. }));
        let closing = Standing { giving_up: change.giving_up, ..job };
        let Step::Changed(end) = closing.apply(&Event::Verdict(Finding::Cancelled)).unwrap() else {
            panic!("nothing changed")
        };
        assert_eq!(end.to, State::Failed { reason: "stop".into() });
    }
    let job = standing(State::Pending { blocked: None });
    let Step::Changed(change) = job.apply(&Event::CancelAsked { reason: "stop".into() }).unwrap() else {
        panic!("nothing changed")
    };
    assert_eq!(change.to, State::Failed { reason: "stop".into() });
}

#[test]
fn what_nobody_takes_is_replaced_then_closed_then_tried_again_and_never_elsewhere_before() {
    let job = Standing { holds_nonce: true, ..standing(State::Confirming) };
    let rejected = |kind, last| Event::Rejected { kind, reason: "gas".into(), last };
    let Step::Changed(change) = job.apply(&rejected(AttemptKind::Pay, false)).unwrap() else {
        panic!("nothing changed")
    };
    assert_eq!(
        (change.to, change.wanted, change.nonce),
        (State::Confirming, Some(Wanted::Bump), NonceFate::Keep)
    );
    let last_refusal = rejected(AttemptKind::Pay, true);
    let closing = after(&job, &last_refusal, &job.apply(&last_refusal).unwrap());
    assert!(closing.retreat && closing.holds_nonce && closing.state == State::Confirming);
    let Step::Changed(parked) = closing.apply(&rejected(AttemptKind::Cancel, true)).unwrap() else {
        panic!("nothing changed")
    };
    assert!(matches!(parked.to, State::Parked { .. }) && parked.nonce == NonceFate::Keep);
    let Step::Changed(again) = closing.apply(&Event::Verdict(Finding::Cancelled)).unwrap() else {
        panic!("nothing changed")
    };
    assert_eq!((again.to, again.giving_up, again.retreat), (State::Pending { blocked: None }, None, false));
    assert!(again.count_try && again.nonce == NonceFate::ClosedByCancellation);
    let last = Standing { tries: 4, ..closing };
    let Step::Changed(end) = last.apply(&Event::Verdict(Finding::Cancelled)).unwrap() else {
        panic!("nothing changed")
    };
    assert!(matches!(end.to, State::Failed { .. }));
}

#[test]
fn expired_approvals_wait_without_a_nonce_and_without_a_try() {
    let job = Standing { holds_nonce: true, ..standing(State::Processing) };
    let Step::Changed(change) = job.apply(&Event::ApprovalsExpired { reason: "0 of 2 hold".into() }).unwrap()
    else {
        panic!("nothing changed")
    };
    assert_eq!(change.to, State::Pending { blocked: Some("0 of 2 hold".into()) });
    assert_eq!((change.nonce, change.count_try), (NonceFate::Freed, false));
}

#[test]
fn a_payment_that_lands_during_its_cancellation_is_confirmed() {
    let job = Standing { holds_nonce: true, giving_up: Some("stop".into()), ..standing(State::Confirming) };
    let Step::Changed(change) = job.apply(&Event::Verdict(Finding::Settled { tx_hash: HASH })).unwrap()
    else {
        panic!("nothing changed")
    };
    assert_eq!(change.to, State::Confirmed { tx_hash: HASH });
}

#[test]
fn nobody_retries_what_may_still_land() {
    for state in [State::Processing, State::Confirming, State::Confirmed { tx_hash: HASH }] {
        assert!(standing(state).apply(&Event::RetryAsked).is_err());
    }
    let parked = standing(State::Parked { reason: "look".into() });
    assert!(parked.apply(&Event::RetryAsked).is_ok());
    assert!(Standing { holds_nonce: true, ..parked.clone() }.apply(&Event::RetryAsked).is_err());
    assert!(Standing { may_pay_again: false, ..parked.clone() }.apply(&Event::RetryAsked).is_err());
}

#[test]
fn what_was_undone_neither_pays_again_nor_fails_and_its_nonce_can_still_be_closed() {
    let undone = Standing { contradicted: true, ..standing(State::Parked { reason: "look".into() }) };
    let cancel = Event::CancelAsked { reason: "stop".into() };
    assert!(undone.apply(&Event::RetryAsked).is_err());
    assert!(undone.apply(&cancel).is_err());
    let holding = Standing { holds_nonce: true, ..undone };
    assert!(holding.apply(&Event::RetryAsked).is_err());
    let closing = after(&holding, &cancel, &holding.apply(&cancel).unwrap());
    assert!(closing.holds_nonce && closing.giving_up.is_some());
    let Step::Changed(closed) = closing.apply(&Event::Verdict(Finding::Cancelled)).unwrap() else {
        panic!("nothing changed")
    };
    assert!(matches!(closed.to, State::Parked { .. }), "{closed:?}");
    assert_eq!(closed.nonce, NonceFate::ClosedByCancellation);
    let Step::Changed(reverted) =
        closing.apply(&Event::Verdict(Finding::Reverted { reason: "x".into(), value_moved: false })).unwrap()
    else {
        panic!("nothing changed")
    };
    assert!(matches!(reverted.to, State::Parked { .. }), "{reverted:?}");
}

#[test]
fn a_block_costs_no_try() {
    let job = standing(State::Processing);
    let Step::Changed(change) = job.apply(&Event::Blocked { reason: "node away".into() }).unwrap() else {
        panic!("nothing changed")
    };
    assert!(!change.count_try);
    assert_eq!(change.again, Again::AfterWait);
}

proptest! {
    /// Random lives: the promise holds after every step, and a job that took a nonce without proof never fails.
    #[test]
    fn any_sequence_of_events_keeps_the_promise(
        script in prop::collection::vec((prop::sample::select(events()), any::<bool>()), 0..60),
    ) {
        let mut job = standing(State::Pending { blocked: None });
        for (event, takes_nonce) in script {
            if takes_nonce && job.state == State::Processing && job.giving_up.is_none() {
                job.holds_nonce = true;
            }
            check(&job, &event);
            if let Ok(step) = job.apply(&event) {
                job = after(&job, &event, &step);
            }
        }
    }
}

#[test]
fn a_nonce_that_cannot_be_closed_is_tried_again_at_the_pace_of_tries_and_not_in_a_loop() {
    let stuck = Standing {
        holds_nonce: true,
        giving_up: Some("stop".into()),
        tries: 5,
        max_tries: 5,
        ..standing(State::Processing)
    };
    let Ok(Step::Changed(change)) = stuck.apply(&Event::TryFailed { error: "the fee is at its cap".into() })
    else {
        panic!("nothing follows");
    };
    assert_eq!(
        (change.to.name(), change.again, change.wanted),
        ("pending", Again::AfterTry, Some(Wanted::Cancel))
    );
}

#[test]
fn what_a_person_lets_go_on_is_no_longer_given_up() {
    let parked = Standing {
        giving_up: Some("the signer refused".into()),
        may_pay_again: true,
        ..standing(State::Parked { reason: "look".into() })
    };
    let Ok(Step::Changed(change)) = parked.apply(&Event::RetryAsked) else { panic!("refused") };
    assert_eq!((change.to.name(), change.giving_up, change.wanted), ("pending", None, None));
}
