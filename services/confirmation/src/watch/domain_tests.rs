use payment::AssetRef;
use proptest::prelude::*;
use types::{Address, AddressFormat, RawAmount};

use super::super::put::{AddError, Added, NewTx};
use super::*;

fn address(byte: u8) -> Address {
    Address::from_body(AddressFormat::Evm, [byte; 20])
}

fn hash(byte: u8) -> TxHash {
    TxHash([byte; 32])
}

fn block(number: u64) -> BlockRef {
    BlockRef { number, hash: hash(u8::try_from(number).unwrap()) }
}

fn cost() -> Cost {
    Cost { units: 21_000, unit_price: 1, fee: RawAmount::ZERO }
}

fn tx(hash: TxHash, nonce: u64) -> NewTx {
    NewTx {
        hash,
        is_cancellation: false,
        nonce: Some(nonce),
        expires_at: None,
        reference_block: 0,
        proven: true,
    }
}

/// A job with transactions 1 and 2 at nonce 7, nothing seen.
fn watch() -> Watch {
    let effect =
        Transfer { asset: AssetRef::Native, from: address(1), to: address(2), amount: RawAmount::ZERO };
    let mut watch = Watch {
        job: JobId::new(),
        withdrawal: None,
        chain: "bsc".parse().unwrap(),
        effect,
        transactions: Vec::new(),
        round: 1,
        state: State::Waiting,
        contradicted: false,
        since_block: 0,
    };
    for byte in [1, 2] {
        assert_eq!(watch.add(&tx(hash(byte), 7)), Ok(Added::ToOpenRound));
    }
    watch
}

fn events() -> Vec<Event> {
    let last = |outcome| Event::Final { tx: hash(1), block: block(5), cost: cost(), outcome };
    vec![
        Event::Seen { tx: hash(1), block: block(5) },
        Event::Seen { tx: hash(2), block: block(6) },
        Event::Undone { block: block(5) },
        Event::Undone { block: block(9) },
        last(Outcome::Paid),
        last(Outcome::Failed { reason: "reverted".into(), value_moved: false }),
        last(Outcome::Failed { reason: "fee taken".into(), value_moved: true }),
        last(Outcome::Cancelled),
        Event::Final { tx: hash(2), block: block(6), cost: cost(), outcome: Outcome::Paid },
        Event::Closed { foreign: Some(hash(9)), block: block(5), reason: "foreign".into() },
        Event::Overdue { newest: hash(2), waited: TimeDelta::seconds(60) },
        Event::Overturned { reason: "undone".into() },
        Event::NewRound,
    ]
}

fn states() -> Vec<State> {
    let (tx, block) = (hash(1), block(5));
    vec![
        State::Waiting,
        State::Included { tx, block },
        State::Ended(Ending::Settled { tx, block }),
        State::Ended(Ending::Reverted { tx, block, value_moved: false }),
        State::Ended(Ending::Void { foreign: Some(hash(9)), block }),
        State::Ended(Ending::Cancelled { tx, block }),
    ]
}

/// The whole table: `.` nothing new, `!` illegal, a letter for the state afterwards, and `+kind` for what is reported.
fn cell(state: State, event: Event) -> String {
    let mut watch = Watch { state, ..watch() };
    match watch.apply(event) {
        Err(_) => "!".to_owned(),
        Ok(Applied::AlreadyApplied) => ".".to_owned(),
        Ok(Applied::Step(None)) => watch.status().to_owned(),
        Ok(Applied::Step(Some(finding))) => format!("{}+{}", watch.status(), finding.kind()),
    }
}

#[test]
fn every_state_takes_every_event_as_the_table_says() {
    #[rustfmt::skip]
    let table = [
        // waiting, included, settled, reverted, void, cancelled
        ["included", ".", ".", ".", ".", "."],                                                              // seen
        ["included", "included+reopened", ".", ".", ".", "."],                                              // other seen
        [".", "waiting+reopened", ".", ".", ".", "."],                                                      // undone
        [".", ".", ".", ".", ".", "."],                                                                     // other undone
        ["settled+settled", "settled+settled", ".", ".", "void+contradicted", "."],                         // paid
        ["reverted+reverted", "reverted+reverted", ".", ".", "void+contradicted", "."],                     // reverted
        ["reverted+reverted", "reverted+reverted", ".", ".", "void+contradicted", "."],                     // moved
        ["cancelled+cancelled", "cancelled+cancelled", ".", ".", "void+contradicted", "."],                 // cancelled
        ["settled+settled", "settled+settled", "settled+contradicted", "reverted+contradicted",
         "void+contradicted", "cancelled+contradicted"],                                                    // other paid
        ["void+void", "!", "!", "!", ".", "!"],                                                             // closed
        ["waiting+stuck", ".", ".", ".", ".", "."],                                                         // overdue
        ["!", "!", "settled+contradicted", "reverted+contradicted", "void+contradicted",
         "cancelled+contradicted"],                                                                         // overturned
        ["!", "!", "!", "waiting", "waiting", "waiting"],                                                   // new round
    ];
    for (event, row) in events().into_iter().zip(table) {
        for (state, expected) in states().into_iter().zip(row) {
            assert_eq!(cell(state, event.clone()), expected, "{state:?} with {event:?}");
        }
    }
    assert_eq!(events().len(), table.len());
}

#[test]
fn a_contradiction_is_reported_once() {
    for state in states().into_iter().skip(2) {
        let mut watch = Watch { state, ..watch() };
        let overturned = Event::Overturned { reason: "undone".into() };
        assert!(matches!(
            watch.apply(overturned.clone()),
            Ok(Applied::Step(Some(Finding::Contradicted { .. })))
        ));
        assert_eq!(watch.state, state, "a contradiction changes no state");
        assert_eq!(watch.apply(overturned), Ok(Applied::AlreadyApplied));
    }
}

#[test]
fn only_positive_evidence_of_a_payment_settles() {
    let moved = RawAmount::ZERO;
    let outcomes = [
        (EffectCheck::Happened, Some("settled")),
        (EffectCheck::Reverted, Some("reverted")),
        (EffectCheck::NoEffect { why: NoEffect::NoTransferLog }, Some("reverted, parked")),
        (EffectCheck::NoEffect { why: NoEffect::OtherTransaction }, Some("reverted, parked")),
        (EffectCheck::NoEffect { why: NoEffect::NoStatus }, None),
        (EffectCheck::NoEffect { why: NoEffect::NoTransaction }, None),
        (EffectCheck::WrongAmount { moved }, Some("reverted, parked")),
    ];
    for (effect, expected) in outcomes {
        let told = Outcome::of(&effect, false).map(|outcome| match outcome {
            Outcome::Paid => "settled",
            Outcome::Failed { value_moved: false, .. } => "reverted",
            Outcome::Failed { value_moved: true, .. } => "reverted, parked",
            Outcome::Cancelled => "cancelled",
        });
        assert_eq!(told, expected, "{effect:?}");
        // What is called a cancellation is compared with sending nothing to oneself.
        let cancelling = match effect {
            EffectCheck::Happened | EffectCheck::Reverted => Some("cancelled"),
            EffectCheck::NoEffect { why: NoEffect::NoStatus | NoEffect::NoTransaction } => None,
            EffectCheck::NoEffect { why: NoEffect::NoTransferLog | NoEffect::OtherTransaction }
            | EffectCheck::WrongAmount { .. } => Some("reverted, parked"),
        };
        let told = Outcome::of(&effect, true).map(|outcome| match outcome {
            Outcome::Cancelled => "cancelled",
            Outcome::Failed { value_moved: true, .. } => "reverted, parked",
            Outcome::Paid | Outcome::Failed { value_moved: false, .. } => "wrong",
        });
        assert_eq!(told, cancelling, "a cancellation with {effect:?}");
    }
}

#[test]
fn a_late_fee_bump_opens_an_end_without_payment_again_with_all_that_has_its_nonce() {
    let closed = || Event::Closed { foreign: Some(hash(3)), block: block(5), reason: String::new() };
    let mut watch = watch();
    watch.apply(closed()).unwrap();
    assert_eq!(watch.add(&tx(hash(3), 7)), Ok(Added::Reopened));
    assert_eq!((watch.status(), watch.round, watch.present().count()), ("waiting", 2, 3));
    assert!(matches!(watch.add(&tx(hash(4), 8)), Err(AddError::OtherBinding { .. })));
    watch.apply(closed()).unwrap();
    assert_eq!(watch.add(&tx(hash(4), 8)), Ok(Added::ToNewRound));
    assert_eq!((watch.status(), watch.round, watch.nonce()), ("waiting", 3, Some(8)));
    assert_eq!(watch.add(&tx(hash(5), 7)), Ok(Added::ToEndedRound), "its successor is open");
    assert_eq!(watch.add(&tx(hash(4), 8)), Ok(Added::Known));
}

#[test]
fn nothing_opens_a_settled_watch_or_one_that_a_person_must_look_at() {
    for state in states().into_iter().skip(2) {
        let mut watch = Watch { state, contradicted: true, ..watch() };
        assert_eq!(watch.add(&tx(hash(5), 7)), Ok(Added::ToEndedRound));
        assert_eq!(watch.state, state);
    }
    for contradicted in [false, true] {
        let state = states()[2];
        let mut settled = Watch { state, contradicted, ..watch() };
        assert_eq!(settled.add(&tx(hash(5), 7)), Ok(Added::ToEndedRound));
        assert_eq!(settled.add(&tx(hash(6), 8)), Err(AddError::Settled { hash: hash(6) }));
        assert_eq!(settled.state, state);
    }
}

#[test]
fn another_nonce_is_refused_while_the_round_is_open_and_for_ever_once_settled() {
    let mut watch = watch();
    let refused = Err(AddError::OtherBinding { hash: hash(3), given: 8, open: 7 });
    assert_eq!(watch.add(&tx(hash(3), 8)), refused);
    watch.apply(Event::Seen { tx: hash(1), block: block(5) }).unwrap();
    assert_eq!(watch.add(&tx(hash(3), 8)), refused);
    watch.apply(Event::Final { tx: hash(1), block: block(5), cost: cost(), outcome: Outcome::Paid }).unwrap();
    assert_eq!(watch.add(&tx(hash(3), 8)), Err(AddError::Settled { hash: hash(3) }));
    assert_eq!(watch.transactions.len(), 2, "what is refused is not kept");
}

#[test]
fn a_known_hash_cannot_change_its_meaning() {
    let mut watch = watch();
    let changed = NewTx { is_cancellation: true, ..tx(hash(1), 7) };
    assert_eq!(watch.add(&changed), Err(AddError::Differs { hash: hash(1), field: "is_cancellation" }));
    assert_eq!(watch.add(&tx(hash(1), 8)), Err(AddError::Differs { hash: hash(1), field: "nonce" }));
}

#[test]
fn a_void_transaction_that_lands_in_a_later_round_is_a_contradiction() {
    let mut watch = watch();
    watch.apply(Event::Closed { foreign: None, block: block(5), reason: String::new() }).unwrap();
    watch.add(&tx(hash(3), 8)).unwrap();
    let landed = Event::Final { tx: hash(1), block: block(9), cost: cost(), outcome: Outcome::Paid };
    assert!(matches!(watch.apply(landed), Ok(Applied::Step(Some(Finding::Contradicted { .. })))));
    assert_eq!(watch.status(), "waiting", "the present round goes on being watched");
}

fn any_action() -> impl Strategy<Value = (u8, u8, u64)> {
    (0_u8..9, 1_u8..6, 1_u64..6)
}

proptest! {
    /// Whatever arrives in whatever order: a round ends at most once, the job settles at most once, and an end is only
    /// ever left by a new round.
    #[test]
    fn a_round_ends_once_and_a_job_settles_once(actions in prop::collection::vec(any_action(), 0..60)) {
        let mut watch = watch();
        let mut ends = std::collections::BTreeMap::<u32, u32>::new();
        let (mut settled, mut contradicted) = (0, 0);
        for (what, byte, number) in actions {
            let (before, round) = (watch.state, watch.round);
            let (tx_hash, at) = (hash(byte), block(number));
            let last = |outcome| Event::Final { tx: tx_hash, block: at, cost: cost(), outcome };
            let event = match what {
                0 => Event::Seen { tx: tx_hash, block: at },
                1 => Event::Undone { block: at },
                2 => last(Outcome::Paid),
                3 => last(Outcome::Failed { reason: String::new(), value_moved: false }),
                4 => last(Outcome::Cancelled),
                5 => Event::Closed { foreign: None, block: at, reason: String::new() },
                6 => Event::Overdue { newest: tx_hash, waited: TimeDelta::seconds(1) },
                7 => Event::Overturned { reason: String::new() },
                _ => {
                    watch.add(&tx(tx_hash, 6 + number)).ok();
                    continue;
                }
            };
            // Evidence is about transactions of this job.
            if matches!(event, Event::Seen { .. } | Event::Final { .. }) && watch.transaction(&tx_hash).is_none() {
                continue;
            }
            if let Ok(Applied::Step(Some(finding))) = watch.apply(event) {
                if finding.is_end() {
                    *ends.entry(round).or_default() += 1;
                }
                settled += u32::from(finding.kind() == "settled");
                contradicted += u32::from(finding.kind() == "contradicted");
            }
            if let State::Ended(ending) = before {
                prop_assert_eq!(watch.state, State::Ended(ending));
            }
        }
        prop_assert!(ends.values().all(|count| *count == 1));
        prop_assert!(contradicted <= 1);
        prop_assert!(settled <= 1);
    }
}

#[test]
fn a_failure_rules_out_what_shares_its_nonce_and_in_a_window_nothing_but_itself() {
    assert_eq!(watch().ruled_out_by(&hash(1)), [hash(1), hash(2)]);
    let mut windows = watch();
    windows.transactions.clear();
    for byte in [1, 2] {
        let expires_at = DateTime::from_timestamp_millis(1_000 * i64::from(byte));
        windows.add(&NewTx { nonce: None, expires_at, ..tx(hash(byte), 0) }).unwrap();
    }
    assert_eq!(windows.ruled_out_by(&hash(1)), [hash(1)]);
    assert_eq!(windows.closing(), Some(Closing::Window { expiration_ms: 2_000 }), "open until the last ends");
}
