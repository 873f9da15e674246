use chrono::Utc;
use types::{
    Address, AddressFormat, AssetId, AttemptId, Decimals, JobId, Priority, RawAmount, TxHash, WalletGroupId,
    WalletId, WithdrawalId,
};

use super::*;
use crate::job::{Fee, JobQueue, Payer, VoidProof, Window};

fn address(byte: u8) -> Address {
    Address::from_body(AddressFormat::Evm, [byte; 20])
}

fn job(state: State) -> Job {
    Job {
        id: JobId::new(),
        queue: JobQueue::Withdrawal,
        withdrawal: Some(WithdrawalId::new()),
        chain: "bsc".parse().unwrap(),
        asset: AssetId::new(),
        symbol: "BNB".parse().unwrap(),
        decimals: Decimals::new(18).unwrap(),
        contract: None,
        asset_enabled: true,
        payer: Some(Payer {
            wallet: WalletId::new(),
            address: address(1),
            group: WalletGroupId::new(),
            index: 0,
        }),
        to: address(2),
        amount: RawAmount::from(1u64),
        priority: Priority::Normal,
        state,
        tries: 0,
        max_tries: 5,
        waits: 0,
        error: None,
        blocked: None,
        wanted: None,
        cancel_reason: None,
        retreating: false,
        rejected: false,
        tx_hash: None,
        requested_by: String::new(),
        on_behalf_of: String::new(),
        approvals: Vec::new(),
        void_proof: None,
        reserved: true,
        fee_paid: RawAmount::ZERO,
        imported: false,
        filler: false,
        trace: telemetry::TraceContext::default(),
        nonce: None,
        ever_signed: false,
        contradicted: false,
        due_at: None,
        created_at: Utc::now(),
        updated_at: Utc::now(),
        broadcast_at: None,
        finished_at: None,
    }
}

fn attempt(job: &Job, number: u32, kind: AttemptKind, status: AttemptStatus) -> Attempt {
    let signed = status != AttemptStatus::Reserved;
    Attempt {
        id: AttemptId::new(),
        job: job.id,
        number,
        kind,
        status,
        address: address(1),
        nonce: Some(7),
        window: None,
        reference_block: 0,
        fee: Some(Fee { gas_limit: 21_000, max_fee_per_gas: 1, max_priority_fee_per_gas: None }),
        void_proof: None,
        raw: signed.then(|| vec![1]),
        tx_hash: signed.then_some(TxHash([1; 32])),
        last_error: None,
        rejected: false,
        sends: 0,
        created_at: Utc::now(),
        broadcast_at: None,
        gas_used: None,
        gas_price: None,
        block_number: None,
    }
}

fn holding(state: State) -> Job {
    Job { nonce: Some(7), ..job(state) }
}

#[test]
fn a_fresh_job_is_assigned_and_then_paid() {
    let fresh = job(State::Processing);
    assert_eq!(plan(&Job { payer: None, ..fresh.clone() }, &[]), Next::Assign);
    assert_eq!(plan(&fresh, &[]), Next::Pay);
}

#[test]
fn what_was_begun_is_resumed_and_never_begun_again() {
    for state in [State::Pending { blocked: None }, State::Processing] {
        let job = holding(state);
        let begun = attempt(&job, 1, AttemptKind::Pay, AttemptStatus::Reserved);
        assert_eq!(plan(&job, std::slice::from_ref(&begun)), Next::Resume(begun));
        for status in [AttemptStatus::Signed, AttemptStatus::Broadcast] {
            let signed = attempt(&job, 1, AttemptKind::Pay, status);
            let known = Job { ever_signed: true, ..job.clone() };
            assert_eq!(plan(&known, std::slice::from_ref(&signed)), Next::Send(signed));
        }
    }
}

#[test]
fn nothing_new_is_signed_while_something_old_may_land() {
    let job = Job { ever_signed: true, ..job(State::Processing) };
    let dead = attempt(&job, 1, AttemptKind::Pay, AttemptStatus::Reverted);
    assert!(matches!(plan(&job, std::slice::from_ref(&dead)), Next::End(Event::Inexplicable { .. })));
    let proof =
        VoidProof { tx_hashes: vec![TxHash([1; 32])], signature: String::new(), attested_at: Utc::now() };
    let proven = Job { void_proof: Some(proof), ..job.clone() };
    assert_eq!(plan(&proven, &[dead]), Next::Pay);
    let odd = holding(State::Processing);
    assert!(matches!(plan(&odd, &[]), Next::End(Event::Inexplicable { .. })));
}

#[test]
fn giving_up_closes_the_nonce_and_nothing_else() {
    let base = Job {
        wanted: Some(Wanted::Cancel),
        cancel_reason: Some("stop".into()),
        ..holding(State::Processing)
    };
    let begun = attempt(&base, 1, AttemptKind::Pay, AttemptStatus::Reserved);
    assert_eq!(
        plan(&base, std::slice::from_ref(&begun)),
        Next::Cancel(None),
        "in no pool, so nothing to outbid"
    );
    let signed = attempt(&base, 1, AttemptKind::Pay, AttemptStatus::Signed);
    assert_eq!(plan(&base, std::slice::from_ref(&signed)), Next::Cancel(Some(signed.clone())));
    let closing = attempt(&base, 2, AttemptKind::Cancel, AttemptStatus::Reserved);
    assert_eq!(plan(&base, &[signed.clone(), closing.clone()]), Next::Resume(closing));
    let closed = attempt(&base, 2, AttemptKind::Cancel, AttemptStatus::Signed);
    assert_eq!(plan(&base, &[signed, closed.clone()]), Next::Send(closed));
    let free = Job { nonce: None, ..base };
    assert!(matches!(plan(&free, &[]), Next::End(Event::Refused { .. })));
}

#[test]
fn a_watched_job_is_touched_only_when_asked() {
    let watched = holding(State::Confirming);
    let sent = attempt(&watched, 1, AttemptKind::Pay, AttemptStatus::Broadcast);
    assert_eq!(plan(&watched, std::slice::from_ref(&sent)), Next::Nothing);
    let stuck = Job { wanted: Some(Wanted::Bump), ..watched.clone() };
    assert_eq!(plan(&stuck, std::slice::from_ref(&sent)), Next::Bump(sent.clone()));
    let begun = attempt(&watched, 2, AttemptKind::Pay, AttemptStatus::Reserved);
    assert_eq!(plan(&stuck, &[sent.clone(), begun.clone()]), Next::Resume(begun));
    let stored = attempt(&watched, 2, AttemptKind::Pay, AttemptStatus::Signed);
    assert_eq!(plan(&stuck, &[sent.clone(), stored.clone()]), Next::Send(stored.clone()));
    let offered = Attempt { sends: 1, ..stored };
    assert_eq!(plan(&stuck, &[sent, offered.clone()]), Next::Bump(offered));
    for state in [
        State::Confirmed { tx_hash: TxHash([1; 32]) },
        State::Failed { reason: String::new() },
        State::Parked { reason: String::new() },
    ] {
        assert_eq!(plan(&Job { wanted: Some(Wanted::Bump), ..holding(state) }, &[]), Next::Nothing);
    }
}

#[test]
fn what_nobody_takes_is_not_outbid_and_a_refused_cancellation_is() {
    let base = Job {
        wanted: Some(Wanted::Cancel),
        cancel_reason: Some("no node takes it".into()),
        retreating: true,
        ..holding(State::Confirming)
    };
    let refused = |number, kind| Attempt {
        rejected: true,
        sends: 1,
        ..attempt(&base, number, kind, AttemptStatus::Signed)
    };
    let (first, second) = (refused(1, AttemptKind::Pay), refused(2, AttemptKind::Pay));
    assert_eq!(plan(&base, &[first.clone(), second.clone()]), Next::Cancel(None));
    let closing = refused(3, AttemptKind::Cancel);
    assert_eq!(plan(&base, &[first.clone(), second, closing.clone()]), Next::Cancel(Some(closing)));
    let taken = attempt(&base, 2, AttemptKind::Pay, AttemptStatus::Broadcast);
    assert_eq!(plan(&base, &[first, taken.clone()]), Next::Cancel(Some(taken)));
}

fn windowed(job: &Job, status: AttemptStatus) -> Attempt {
    let reference = chain::BlockRef { number: 9, hash: TxHash([9; 32]) };
    let window = Window { reference, expiration_ms: 2_000, made_ms: 1_000 };
    Attempt { window: Some(window), ..attempt(job, 1, AttemptKind::Pay, status) }
}

#[test]
fn within_a_window_what_was_begun_is_finished_and_nothing_replaces_it() {
    for cancel_reason in [None, Some("an operator's wish".to_owned())] {
        for state in [State::Pending { blocked: None }, State::Processing] {
            let job = Job {
                wanted: cancel_reason.as_ref().map(|_| Wanted::Cancel),
                cancel_reason: cancel_reason.clone(),
                ..holding(state)
            };
            let begun = windowed(&job, AttemptStatus::Reserved);
            assert_eq!(plan(&job, std::slice::from_ref(&begun)), Next::Resume(begun.clone()));
            let stored = windowed(&job, AttemptStatus::Signed);
            assert_eq!(plan(&job, std::slice::from_ref(&stored)), Next::Send(stored.clone()));
        }
    }
    for wanted in [None, Some(Wanted::Bump), Some(Wanted::Cancel)] {
        let watched = Job { wanted, ..holding(State::Confirming) };
        let sent = windowed(&watched, AttemptStatus::Broadcast);
        assert_eq!(plan(&watched, &[sent]), Next::Nothing, "only a verdict ends it");
    }
}

#[test]
fn after_a_window_has_closed_a_job_needs_its_proof_to_be_paid_again() {
    let ended = Job { ever_signed: true, ..job(State::Processing) };
    let dead = windowed(&ended, AttemptStatus::Void);
    assert!(matches!(plan(&ended, std::slice::from_ref(&dead)), Next::End(Event::Inexplicable { .. })));
    let proof =
        VoidProof { tx_hashes: vec![TxHash([1; 32])], signature: String::new(), attested_at: Utc::now() };
    let proven = Job { void_proof: Some(proof), ..ended };
    assert_eq!(plan(&proven, &[dead]), Next::Pay);
}
