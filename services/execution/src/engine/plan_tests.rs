use chrono::Utc;
use payment::{Action, Binding, BlockReference, GasFee, Price, Window};
use types::{
    Address, AddressFormat, AssetId, AttemptId, Decimals, JobId, Priority, RawAmount, WalletGroupId,
    WalletId, WithdrawalId,
};

use super::*;
use crate::job::{AfterClosing, Exit, Newest, Payer};
use crate::queue::JobQueue;

fn address(byte: u8) -> Address {
    Address::from_body(AddressFormat::Evm, [byte; 20])
}

fn processing(exposure: Exposure, closing: Option<Closing>) -> State {
    State::Processing { exposure, closing }
}

fn waiting(exposure: Exposure, closing: Option<Closing>) -> State {
    State::Pending { blocked: None, exposure, closing }
}

fn confirming(closing: Option<Closing>, requested: bool) -> State {
    State::Confirming { newest: Newest::Live, closing, requested }
}

fn closing() -> Option<Closing> {
    Some(Closing { reason: "stop".into(), then: AfterClosing::Fail })
}

fn job(state: State) -> Job {
    let nonce = (state.exposure() == Exposure::Held).then_some(7);
    Job {
        id: JobId::new(),
        queue: JobQueue::WITHDRAWAL,
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
        nonce,
        ever_signed: false,
        due_at: None,
        created_at: Utc::now(),
        updated_at: Utc::now(),
        broadcast_at: None,
        finished_at: None,
    }
}

fn attempt(job: &Job, number: u32, action: Option<Action>, status: AttemptStatus) -> Attempt {
    let signed = status != AttemptStatus::Reserved;
    Attempt {
        id: AttemptId::new(),
        job: job.id,
        number,
        action: action.unwrap(),
        status,
        nonce: Some(7),
        binding: Some(Binding::Nonce { sender: address(1), nonce: 7 }),
        reference_block: 0,
        price: Some(Price::Gas { limit: 21_000, fee: GasFee::Legacy { gas_price: 1 } }),
        void_proof: None,
        raw: signed.then(|| vec![1]),
        tx_hash: signed.then_some([1; 32].into()),
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

fn pay(job: &Job, number: u32, status: AttemptStatus) -> Attempt {
    attempt(job, number, job.action(), status)
}

fn cancel(job: &Job, number: u32, status: AttemptStatus) -> Attempt {
    attempt(job, number, job.cancellation(), status)
}

fn windowed(job: &Job, status: AttemptStatus) -> Attempt {
    let reference = BlockReference { number_end: [9; 2], hash_middle: [9; 8] };
    let window = Window { reference, expiration_ms: 2_000, made_ms: 1_000 };
    Attempt { binding: Some(Binding::Window { sender: address(1), window }), ..pay(job, 1, status) }
}

#[test]
fn a_fresh_job_is_assigned_and_then_paid() {
    let fresh = job(processing(Exposure::Clear, None));
    assert_eq!(plan(&Job { payer: None, ..fresh.clone() }, &[]), Next::Assign);
    assert_eq!(plan(&fresh, &[]), Next::Pay);
}

#[test]
fn what_was_begun_is_resumed_and_never_begun_again() {
    for state in [waiting(Exposure::Held, None), processing(Exposure::Held, None)] {
        let job = job(state);
        let begun = pay(&job, 1, AttemptStatus::Reserved);
        assert_eq!(plan(&job, std::slice::from_ref(&begun)), Next::Resume(begun));
        for status in [AttemptStatus::Signed, AttemptStatus::Broadcast] {
            let signed = pay(&job, 1, status);
            assert_eq!(plan(&job, std::slice::from_ref(&signed)), Next::Send(signed));
        }
    }
}

#[test]
fn nothing_new_is_signed_while_something_old_may_land() {
    let unproven = job(processing(Exposure::Unproven, None));
    let dead = pay(&unproven, 1, AttemptStatus::Reverted);
    assert!(matches!(
        plan(&unproven, std::slice::from_ref(&dead)),
        Next::End(WorkEvent::Inexplicable { .. })
    ));
    assert_eq!(plan(&job(processing(Exposure::Clear, None)), &[dead]), Next::Pay, "proven");
    let odd = job(processing(Exposure::Held, None));
    assert!(matches!(plan(&odd, &[]), Next::End(WorkEvent::Inexplicable { .. })));
}

#[test]
fn giving_up_closes_the_nonce_and_nothing_else() {
    let base = job(processing(Exposure::Held, closing()));
    let begun = pay(&base, 1, AttemptStatus::Reserved);
    assert_eq!(
        plan(&base, std::slice::from_ref(&begun)),
        Next::Cancel(None),
        "in no pool, so nothing to outbid"
    );
    let signed = pay(&base, 1, AttemptStatus::Signed);
    assert_eq!(plan(&base, std::slice::from_ref(&signed)), Next::Cancel(Some(signed.clone())));
    let begun = cancel(&base, 2, AttemptStatus::Reserved);
    assert_eq!(plan(&base, &[signed.clone(), begun.clone()]), Next::Resume(begun));
    let closed = cancel(&base, 2, AttemptStatus::Signed);
    assert_eq!(plan(&base, &[signed, closed.clone()]), Next::Send(closed));
    let free = job(processing(Exposure::Clear, closing()));
    assert!(matches!(plan(&free, &[]), Next::End(WorkEvent::Refused { .. })));
}

#[test]
fn a_watched_job_is_touched_only_when_requested() {
    let watched = job(confirming(None, false));
    let sent = pay(&watched, 1, AttemptStatus::Broadcast);
    assert_eq!(plan(&watched, std::slice::from_ref(&sent)), Next::Nothing);
    let stuck = job(confirming(None, true));
    assert_eq!(plan(&stuck, std::slice::from_ref(&sent)), Next::Bump(sent.clone()));
    let begun = pay(&watched, 2, AttemptStatus::Reserved);
    assert_eq!(plan(&stuck, &[sent.clone(), begun.clone()]), Next::Resume(begun));
    let stored = pay(&watched, 2, AttemptStatus::Signed);
    assert_eq!(plan(&stuck, &[sent.clone(), stored.clone()]), Next::Send(stored.clone()));
    let offered = Attempt { sends: 1, ..stored };
    assert_eq!(plan(&stuck, &[sent, offered.clone()]), Next::Bump(offered));
    for state in [
        State::Confirmed { tx_hash: [1; 32].into() },
        State::Failed { reason: String::new() },
        State::Parked { reason: String::new(), exit: Exit::Close { reason: None, then: AfterClosing::Fail } },
    ] {
        assert_eq!(plan(&job(state), &[]), Next::Nothing);
    }
}

#[test]
fn what_nobody_takes_is_not_outbid_and_a_refused_cancellation_is() {
    let retreat = Closing { reason: "no node takes it".into(), then: AfterClosing::Retry };
    let base = job(confirming(Some(retreat), true));
    let refused = |attempt: Attempt| Attempt { rejected: true, sends: 1, ..attempt };
    let first = refused(pay(&base, 1, AttemptStatus::Signed));
    let second = refused(pay(&base, 2, AttemptStatus::Signed));
    assert_eq!(plan(&base, &[first.clone(), second.clone()]), Next::Cancel(None));
    let closing = refused(cancel(&base, 3, AttemptStatus::Signed));
    assert_eq!(plan(&base, &[first.clone(), second, closing.clone()]), Next::Cancel(Some(closing)));
    let taken = pay(&base, 2, AttemptStatus::Broadcast);
    assert_eq!(plan(&base, &[first, taken.clone()]), Next::Cancel(Some(taken)));
}

#[test]
fn within_a_window_what_was_begun_is_finished_and_nothing_replaces_it() {
    for closing in [None, closing()] {
        for state in [waiting(Exposure::Held, closing.clone()), processing(Exposure::Held, closing.clone())] {
            let job = job(state);
            let begun = windowed(&job, AttemptStatus::Reserved);
            assert_eq!(plan(&job, std::slice::from_ref(&begun)), Next::Resume(begun.clone()));
            let stored = windowed(&job, AttemptStatus::Signed);
            assert_eq!(plan(&job, std::slice::from_ref(&stored)), Next::Send(stored.clone()));
        }
    }
    for state in [confirming(None, false), confirming(None, true), confirming(closing(), true)] {
        let watched = job(state);
        let sent = windowed(&watched, AttemptStatus::Broadcast);
        assert_eq!(plan(&watched, &[sent]), Next::Nothing, "only a verdict ends it");
    }
}

#[test]
fn after_a_window_has_closed_a_job_needs_its_proof_to_be_paid_again() {
    let ended = job(processing(Exposure::Unproven, None));
    let dead = windowed(&ended, AttemptStatus::Void);
    assert!(matches!(plan(&ended, std::slice::from_ref(&dead)), Next::End(WorkEvent::Inexplicable { .. })));
    assert_eq!(plan(&job(processing(Exposure::Clear, None)), &[dead]), Next::Pay);
}
