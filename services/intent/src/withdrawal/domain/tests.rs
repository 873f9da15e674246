//! Every state with every event, and random sequences of events.

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use strum::VariantArray as _;
use types::{JobId, TxHash};

use super::{Blockage, Event, Handover, State, Status, Step};

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap()
}

const PAID: TxHash = TxHash::from_array([1; 32]);
const OTHER: TxHash = TxHash::from_array([2; 32]);

fn handover() -> Handover {
    Handover { approved_at: Some(at(1)), queued_at: at(2) }
}

fn queued(reason: Option<&str>, changed: Option<i64>) -> State {
    let blockage = Blockage { reason: reason.map(str::to_owned), changed_at: changed.map(at) };
    State::Queued { handover: handover(), blockage }
}

fn states() -> [State; 7] {
    [
        State::Pending,
        State::Approved { approved_at: at(1), refused: None },
        queued(None, None),
        State::Completed { handover: handover(), tx_hash: PAID, block: 7, finished_at: at(3) },
        State::Failed { handover: handover(), reason: "no".to_owned(), finished_at: at(3) },
        State::Rejected { reason: "no".to_owned(), finished_at: at(3) },
        State::Cancelled { reason: "no".to_owned(), finished_at: at(3) },
    ]
}

fn events() -> [Event; 10] {
    [
        Event::QuorumReached,
        Event::Reject { reason: "r".to_owned() },
        Event::Cancel { reason: "c".to_owned() },
        Event::Queue { job: JobId::new() },
        Event::Block { reason: "b".to_owned(), at: at(5) },
        Event::Unblock { at: at(5) },
        Event::Complete { tx_hash: PAID, block: 7 },
        Event::Complete { tx_hash: OTHER, block: 8 },
        Event::Fail { reason: "f".to_owned() },
        Event::RefuseHandover { reason: "h".to_owned() },
    ]
}

/// What a pair leads to: the statuses passed, `=` for a replay, `x` for illegal, `!` for a contradiction.
fn outcome(state: &State, event: &Event) -> String {
    match state.apply(event, at(9)) {
        Ok(Step::AlreadyApplied) => "=".to_owned(),
        Ok(Step::Changed(changes)) => {
            let names: Vec<_> = changes.iter().map(|change| change.to.status().into_str()).collect();
            names.join(">")
        }
        Err(illegal) => if illegal.contradiction { "!" } else { "x" }.to_owned(),
    }
}

#[test]
fn every_state_answers_every_event() {
    let expected = [
        ("pending", ["approved", "rejected", "cancelled", "!", "!", "!", "!", "!", "!", "!"]),
        (
            "approved",
            [
                "=",
                "x",
                "x",
                "queued",
                "queued>queued",
                "queued>queued",
                "queued>completed",
                "queued>completed",
                "queued>failed",
                "approved",
            ],
        ),
        ("queued", ["=", "x", "x", "=", "queued", "queued", "completed", "completed", "failed", "="]),
        ("completed", ["=", "x", "x", "=", "=", "=", "=", "!", "!", "="]),
        ("failed", ["=", "x", "x", "=", "=", "=", "!", "!", "=", "="]),
        ("rejected", ["x", "=", "x", "!", "!", "!", "!", "!", "!", "!"]),
        ("cancelled", ["x", "x", "=", "!", "!", "!", "!", "!", "!", "!"]),
    ];
    for (state, (name, row)) in states().iter().zip(expected) {
        assert_eq!(state.status().into_str(), name);
        let got: Vec<String> = events().iter().map(|event| outcome(state, event)).collect();
        assert_eq!(got, row, "{name}");
    }
}

#[test]
fn reports_of_being_blocked_are_ordered_by_their_senders_time() {
    let block = |reason: &str, second| Event::Block { reason: reason.to_owned(), at: at(second) };
    assert_eq!(outcome(&queued(Some("a"), Some(5)), &block("a", 5)), "=", "replay");
    assert_eq!(outcome(&queued(Some("a"), Some(5)), &block("b", 4)), "=", "late");
    assert_eq!(outcome(&queued(Some("a"), Some(5)), &block("b", 6)), "queued");
    assert_eq!(outcome(&queued(None, Some(5)), &block("a", 4)), "=", "unblocked since");
    assert_eq!(outcome(&queued(Some("a"), Some(5)), &Event::Unblock { at: at(4) }), "=", "late");
    assert_eq!(outcome(&queued(Some("a"), Some(5)), &Event::Unblock { at: at(6) }), "queued");
}

#[test]
fn a_refused_handover_shows_until_execution_takes_the_request() {
    let refuse = |reason: &str| Event::RefuseHandover { reason: reason.to_owned() };
    let refused = run(states()[1].clone(), &[refuse("no such chain")]);
    assert_eq!((refused.status(), refused.blocked_reason()), (Status::Approved, Some("no such chain")));
    assert_eq!(outcome(&refused, &refuse("no such chain")), "=", "refused again");
    assert_eq!(run(refused.clone(), &[refuse("too late")]).blocked_reason(), Some("too late"));
    let taken = run(refused, &[Event::Queue { job: JobId::new() }]);
    assert_eq!((taken.status(), taken.blocked_reason()), (Status::Queued, None));
    assert_eq!(outcome(&taken, &refuse("late report")), "=");

    let handover = Handover { approved_at: None, queued_at: at(2) };
    let imported = State::Queued { handover, blockage: Blockage::default() };
    let refused = run(imported, &[refuse("no such chain")]);
    assert_eq!((refused.status(), refused.blocked_reason()), (Status::Queued, Some("no such chain")));
    assert_eq!(run(refused.clone(), &[Event::Queue { job: JobId::new() }]).blocked_reason(), None);
    let blocked = Event::Block { reason: "b".to_owned(), at: at(5) };
    let known = run(refused, &[blocked]);
    assert_eq!(known.blocked_reason(), Some("b"));
    assert_eq!(outcome(&known, &refuse("late report")), "=", "execution has it");
}

#[test]
fn statuses_read_back() {
    for status in Status::VARIANTS {
        assert_eq!(status.into_str().parse(), Ok(*status));
    }
    assert!("PENDING".parse::<Status>().is_err());
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::QuorumReached),
        Just(Event::Reject { reason: "r".to_owned() }),
        Just(Event::Cancel { reason: "c".to_owned() }),
        Just(Event::Queue { job: JobId::from(uuid::Uuid::nil()) }),
        (0_i64..9, "[ab]").prop_map(|(second, reason)| Event::Block { reason, at: at(second) }),
        (0_i64..9).prop_map(|second| Event::Unblock { at: at(second) }),
        prop_oneof![Just(PAID), Just(OTHER)].prop_map(|tx_hash| Event::Complete { tx_hash, block: 1 }),
        Just(Event::Fail { reason: "f".to_owned() }),
        "[ab]".prop_map(|reason| Event::RefuseHandover { reason }),
    ]
}

fn run(start: State, events: &[Event]) -> State {
    events.iter().enumerate().fold(start, |state, (index, event)| {
        match state.apply(event, at(100 + i64::try_from(index).unwrap())) {
            Ok(Step::Changed(changes)) => changes.last().unwrap().to.clone(),
            Ok(Step::AlreadyApplied) | Err(_) => state,
        }
    })
}

proptest! {
    #[test]
    fn whatever_happens_an_end_is_an_end(events in prop::collection::vec(any_event(), 0..40)) {
        let mut state = State::Pending;
        let mut paid_by = None;
        let mut was_approved = false;
        for (index, event) in events.iter().enumerate() {
            let before = state.clone();
            if let Ok(Step::Changed(changes)) = state.apply(event, at(index as i64)) {
                prop_assert!(!changes.is_empty());
                prop_assert!(!before.status().is_terminal(), "{before:?} moved on {event:?}");
                for change in changes {
                    prop_assert!(edge(state.status(), change.to.status()), "{state:?} to {:?}", change.to);
                    state = change.to;
                }
                // A repeated event changes nothing.
                prop_assert_eq!(state.apply(event, at(99)), Ok(Step::AlreadyApplied));
            }
            was_approved |= state.status() == Status::Approved;
            if let State::Completed { tx_hash, .. } = &state {
                prop_assert!(was_approved, "paid without approval");
                prop_assert_eq!(*paid_by.get_or_insert(*tx_hash), *tx_hash, "paid twice");
            }
        }
    }

    #[test]
    fn the_order_of_progress_does_not_matter(
        seconds in prop::collection::btree_set(0_i64..50, 0..6),
        blocks in prop::collection::vec(any::<bool>(), 6),
        end in prop_oneof![
            Just(None),
            Just(Some(Event::Complete { tx_hash: PAID, block: 1 })),
            Just(Some(Event::Fail { reason: "f".to_owned() })),
        ],
        order in any::<prop::sample::Index>(),
    ) {
        let mut story = vec![Event::Queue { job: JobId::from(uuid::Uuid::nil()) }];
        story.extend(seconds.iter().zip(&blocks).map(|(second, block)| {
            if *block { Event::Block { reason: format!("r{second}"), at: at(*second) } } else { Event::Unblock { at: at(*second) } }
        }));
        story.extend(end);
        let approved = State::Approved { approved_at: at(0), refused: None };
        let in_order = run(approved.clone(), &story);
        let mut twice: Vec<Event> = story.iter().chain(&story).cloned().collect();
        let turn = order.index(twice.len());
        twice.rotate_left(turn);
        twice.reverse();
        let shuffled = run(approved, &twice);
        prop_assert_eq!(shuffled.status(), in_order.status());
        if let (State::Queued { blockage: one, .. }, State::Queued { blockage: two, .. }) = (&shuffled, &in_order) {
            prop_assert_eq!(one, two);
        }
    }
}

fn edge(from: Status, to: Status) -> bool {
    use Status::{Approved, Cancelled, Completed, Failed, Pending, Queued, Rejected};
    matches!(
        (from, to),
        (Pending, Approved | Rejected | Cancelled)
            | (Approved, Approved)
            | (Approved | Queued, Queued)
            | (Queued, Completed | Failed)
    )
}
