//! Nonces used by something else: void needs that transaction, final, on every node.

use confirmation::watch::put::AddError;
use confirmation::watch::{NewTx, WatchError};
use proto::execution::v1::verdict::Finding;
use testkit::{FaultProxy, Rule, Upset};

use crate::desk::{
    DEPTH, Desk, account, call_data, is_attested, native, stranger, tick, tick_until, token_transfer,
    two_empty_strings,
};

#[tokio::test]
async fn a_foreign_transaction_makes_all_of_a_round_void_only_when_final() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let ours = desk.sign(0, to, 5, &[]).await;
    let bumped = desk.sign_at(0, to, 5, 3_000_000_000).await;
    let job = desk.put(native(to, 5), vec![ours.watched(), bumped.watched()]).await;
    let foreign = desk.sign_at(0, stranger(), 1, 4_000_000_000).await;
    desk.send(&foreign).await;
    desk.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert!(desk.kinds(job).await.is_empty(), "a foreign transaction that is not final proves nothing");
    desk.mine(1).await;
    tick(&mut replica).await;
    let [Finding::Void(void)] = &desk.verdicts(job).await[..] else { panic!("{:?}", desk.kinds(job).await) };
    assert_eq!(void.foreign_tx_hash, foreign.hash.to_string());
    assert_eq!(void.tx_hashes, [ours.hash.to_string(), bumped.hash.to_string()]);
    assert!(is_attested(job, &[ours.hash, bumped.hash], &void.attestation, void.attested_at));

    // The next attempt has a nonce of its own and is a round of its own.
    let again = desk.sign(1, to, 5, &[]).await;
    desk.extend(job, native(to, 5), vec![again.watched()]).await.unwrap();
    assert_eq!(desk.status(job).await, "waiting");
    desk.send(&again).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["void", "settled"]);
    let third = desk.sign(2, to, 5, &[]).await;
    let refused = desk.extend(job, native(to, 5), vec![third.watched()]).await.unwrap_err();
    assert!(matches!(refused, WatchError::Add(AddError::Settled { .. })), "{refused}");
}

#[tokio::test]
async fn our_own_bump_that_was_mined_before_it_was_told_is_never_called_foreign() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let first = desk.sign(0, to, 5, &[]).await;
    let bumped = desk.sign_at(0, to, 5, 3_000_000_000).await;
    let job = desk.put(native(to, 5), vec![first.watched()]).await;
    desk.send(&bumped).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("it says what it waits for", &mut replica, async || {
        desk.delayed(job).await.contains("has made the payment")
    })
    .await;
    assert!(desk.kinds(job).await.is_empty());
    desk.extend(job, native(to, 5), vec![first.watched(), bumped.watched()]).await.unwrap();
    tick_until("it settles", &mut replica, async || !desk.kinds(job).await.is_empty()).await;
    let [Finding::Settled(settled)] = &desk.verdicts(job).await[..] else {
        panic!("{:?}", desk.kinds(job).await)
    };
    assert_eq!(settled.tx_hash, bumped.hash.to_string());
}

#[tokio::test]
async fn a_cancellation_that_was_told_after_it_ended_the_round_as_void_is_judged_again() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let payment = desk.sign(0, to, 5, &[]).await;
    let cancel = desk.sign_at(0, account(0), 0, 3_000_000_000).await;
    let job = desk.put(native(to, 5), vec![payment.watched()]).await;
    desk.send(&cancel).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("it is void", &mut replica, async || desk.kinds(job).await == ["void"]).await;
    desk.extend(job, native(to, 5), vec![payment.watched(), cancel.cancelling()]).await.unwrap();
    assert_eq!(desk.status(job).await, "waiting");
    tick_until("it is judged again", &mut replica, async || desk.kinds(job).await.len() == 2).await;
    let [Finding::Void(void), Finding::Cancelled(cancelled)] = &desk.verdicts(job).await[..] else {
        panic!("{:?}", desk.kinds(job).await)
    };
    assert_eq!(void.foreign_tx_hash, cancel.hash.to_string());
    let closed = [payment.hash, cancel.hash];
    assert_eq!(cancelled.void_tx_hashes, closed.map(|hash| hash.to_string()));
    assert!(is_attested(job, &closed, &cancelled.attestation, cancelled.attested_at));
    assert!(desk.halted().await.is_none());
}

#[tokio::test]
async fn a_bump_that_is_told_after_the_first_bytes_reverted_is_ruled_out_with_them() {
    let desk = Desk::new().await;
    let token = desk.token("Token", &two_empty_strings()).await;
    let mut replica = desk.replica("one");
    let (to, effect) = (stranger(), |to| token_transfer(token, to, 1_000_001));
    let sent = desk.sign(0, token, 0, &call_data("a9059cbb", to, 1_000_001)).await;
    let late = desk.sign_at(0, token, 0, 3_000_000_000).await;
    let job = desk.put(effect(to), vec![sent.watched()]).await;
    desk.send(&sent).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("it reverted", &mut replica, async || desk.kinds(job).await == ["reverted"]).await;
    desk.extend(job, effect(to), vec![sent.watched(), late.watched()]).await.unwrap();
    tick_until("it is judged again", &mut replica, async || desk.kinds(job).await.len() == 2).await;
    let [_, Finding::Reverted(again)] = &desk.verdicts(job).await[..] else {
        panic!("{:?}", desk.kinds(job).await)
    };
    assert_eq!(again.void_tx_hashes, [sent.hash, late.hash].map(|hash| hash.to_string()));
}

#[tokio::test]
async fn nothing_is_attested_on_the_callers_word() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let (ours, named) = (desk.sign(0, to, 5, &[]).await, desk.sign_at(0, to, 5, 3_000_000_000).await);
    let unproven = NewTx { proven: false, ..named.watched() };
    let job = desk.put(native(to, 5), vec![ours.watched(), unproven]).await;
    desk.send(&desk.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("it is void", &mut replica, async || !desk.kinds(job).await.is_empty()).await;
    let [Finding::Void(void)] = &desk.verdicts(job).await[..] else { panic!("{:?}", desk.kinds(job).await) };
    assert_eq!(void.tx_hashes.len(), 2);
    assert!(void.attestation.is_empty() && void.attested_at.is_none(), "one of them is hearsay");
}

#[tokio::test]
async fn a_payment_that_is_called_a_cancellation_proves_nothing_void() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let payment = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![payment.cancelling()]).await;
    desk.send(&payment).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("it is judged", &mut replica, async || !desk.kinds(job).await.is_empty()).await;
    let [Finding::Reverted(reverted)] = &desk.verdicts(job).await[..] else {
        panic!("{:?}", desk.kinds(job).await)
    };
    assert!(reverted.value_moved && reverted.attestation.is_empty() && reverted.void_tx_hashes.is_empty());
}

#[tokio::test]
async fn a_nonce_that_was_used_long_before_the_watch_began_is_void() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let foreign = desk.sign(0, stranger(), 1, &[]).await;
    desk.send(&foreign).await;
    desk.mine(300).await;
    tick(&mut replica).await;
    let to = stranger();
    let ours = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![ours.watched()]).await;
    for _ in 0..8 {
        tick(&mut replica).await;
    }
    let [Finding::Void(void)] = &desk.verdicts(job).await[..] else { panic!("{:?}", desk.kinds(job).await) };
    assert_eq!(void.foreign_tx_hash, foreign.hash.to_string());
}

#[tokio::test]
async fn every_nonce_a_foreign_wallet_used_is_found_one_after_the_other() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let mut jobs = Vec::new();
    for nonce in 0..4 {
        let to = stranger();
        let ours = desk.sign(nonce, to, 5, &[]).await;
        jobs.push(desk.put(native(to, 5), vec![ours.watched()]).await);
    }
    for nonce in 0..3 {
        desk.send(&desk.sign(nonce, stranger(), 1, &[]).await).await;
    }
    desk.mine(u64::from(DEPTH) + 1).await;
    for _ in 0..3 {
        tick(&mut replica).await;
    }
    for (nonce, job) in jobs.iter().enumerate() {
        let expected: &[&str] = if nonce < 3 { &["void"] } else { &[] };
        assert_eq!(desk.kinds(*job).await, expected, "nonce {nonce}");
    }
}

#[tokio::test]
async fn a_foreign_transaction_of_which_nobody_tells_what_it_did_proves_nothing() {
    let mut desk = Desk::new().await;
    let node = FaultProxy::http(desk.chain.address()).await;
    let url = node.url();
    desk.settle_in(|settings| settings.nodes = vec![url]).await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let ours = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![ours.watched()]).await;
    tick(&mut replica).await;
    desk.send(&desk.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    // There is a receipt, and not the transaction itself, without which nobody can tell who got what.
    node.rule(Rule::on("eth_getTransactionByHash", Upset::RpcResult(serde_json::Value::Null)));
    tick_until("it says so", &mut replica, async || desk.delayed(job).await.contains("do not tell")).await;
    assert!(desk.kinds(job).await.is_empty());
    node.pass().await;
    tick_until("the verdict", &mut replica, async || desk.kinds(job).await == ["void"]).await;
}

#[tokio::test]
async fn a_payment_that_a_token_took_its_fee_from_is_never_called_foreign() {
    let desk = Desk::new().await;
    let token = desk.token("FeeToken", &[]).await;
    let mut replica = desk.replica("one");
    let (to, data) = (stranger(), |to| call_data("a9059cbb", to, 1_000));
    let told = desk.sign(0, token, 0, &data(to)).await;
    let untold = desk.sign(0, token, 0, &[data(to), vec![0]].concat()).await;
    let job = desk.put(token_transfer(token, to, 1_000), vec![told.watched()]).await;
    desk.send(&untold).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("it says so", &mut replica, async || {
        desk.delayed(job).await.contains("has brought the receiver 990")
    })
    .await;
    assert!(desk.kinds(job).await.is_empty());
}

#[tokio::test]
async fn a_nonce_in_doubt_does_not_keep_those_above_it_from_being_asked_about() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let first = desk.sign(0, to, 5, &[]).await;
    let doubted = desk.put(native(to, 5), vec![first.watched()]).await;
    let second = desk.sign(1, to, 6, &[]).await;
    let void = desk.put(native(to, 6), vec![second.watched()]).await;
    let third = desk.sign(2, to, 7, &[]).await;
    let open = desk.put(native(to, 7), vec![third.watched()]).await;
    // The first one's payment, of which nobody has told; and somebody else's.
    desk.send(&desk.sign_at(0, to, 5, 3_000_000_000).await).await;
    desk.send(&desk.sign(1, stranger(), 1, &[]).await).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick_until("the verdict", &mut replica, async || desk.kinds(void).await == ["void"]).await;
    assert!(desk.delayed(doubted).await.contains("has made the payment"));
    tick(&mut replica).await;
    assert_eq!((desk.status(doubted).await, desk.status(open).await), ("waiting", "waiting"));
    assert_eq!(desk.delayed(open).await, "");
}

#[tokio::test]
async fn the_search_begins_where_a_nonce_was_last_known_to_be_open() {
    let mut desk = Desk::new().await;
    let node = FaultProxy::http(desk.chain.address()).await;
    let url = node.url();
    desk.settle_in(|settings| settings.nodes = vec![url]).await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let mut jobs = Vec::new();
    for nonce in 0..2 {
        let ours = desk.sign(nonce, to, 5, &[]).await;
        jobs.push(desk.put(native(to, 5), vec![ours.watched()]).await);
    }
    tick(&mut replica).await;
    desk.mine(200).await;
    tick(&mut replica).await;
    let (open_at, asked) = (desk.height().await - u64::from(DEPTH), node.seen(COUNT).len());
    for nonce in 0..2 {
        desk.send(&desk.sign(nonce, stranger(), 1, &[]).await).await;
    }
    desk.mine(u64::from(DEPTH) + 3).await;
    tick_until("both are void", &mut replica, async || {
        desk.status(jobs[0]).await == "void" && desk.status(jobs[1]).await == "void"
    })
    .await;
    // Most nodes keep the state of recent blocks only.
    for question in &node.seen(COUNT)[asked..] {
        let number = question[1].as_str().unwrap().trim_start_matches("0x");
        assert!(u64::from_str_radix(number, 16).unwrap() >= open_at, "{question} is older than {open_at}");
    }
}

const COUNT: &str = "eth_getTransactionCount";

#[tokio::test]
async fn nothing_is_void_while_a_node_lags() {
    let mut desk = Desk::new().await;
    let lagging = FaultProxy::http(desk.chain.address()).await;
    let nodes = vec![desk.chain.url(), lagging.url()];
    desk.settle_in(|settings| settings.nodes = nodes).await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let ours = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![ours.watched()]).await;
    tick(&mut replica).await;
    // From here on the second node knows no block at all beyond its own view.
    lagging.rule(Rule::on("eth_getBlockByNumber", Upset::RpcResult(serde_json::Value::Null)));
    desk.send(&desk.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    desk.mine(u64::from(DEPTH) + 10).await;
    for _ in 0..5 {
        tick(&mut replica).await;
        assert!(desk.kinds(job).await.is_empty());
    }
    lagging.pass().await;
    // A node that failed rests for a while; then it agrees.
    tick_until("the verdict", &mut replica, async || !desk.kinds(job).await.is_empty()).await;
    assert_eq!(desk.status(job).await, "void");
}

#[tokio::test]
async fn a_missing_receipt_is_never_evidence() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let never_sent = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![never_sent.watched()]).await;
    for _ in 0..10 {
        desk.mine(20).await;
        tick(&mut replica).await;
    }
    assert_eq!(desk.status(job).await, "waiting");
    assert!(desk.kinds(job).await.is_empty());
}

#[tokio::test]
async fn nonces_that_stay_open_do_not_keep_others_from_being_looked_at() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    // More senders than one look asks about, all older and all undecided.
    for _ in 0..70 {
        let effect = payment::Transfer { from: stranger(), ..native(stranger(), 5) };
        let hash = types::TxHash(unique());
        let waiting = NewTx {
            hash,
            is_cancellation: false,
            nonce: Some(0),
            expires_at: None,
            reference_block: 0,
            proven: true,
        };
        desk.put(effect, vec![waiting]).await;
    }
    let to = stranger();
    let ours = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![ours.watched()]).await;
    desk.send(&desk.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    for _ in 0..4 {
        tick(&mut replica).await;
    }
    assert_eq!(desk.status(job).await, "void");
}

/// A hash of its own each time.
fn unique() -> [u8; 32] {
    let id = types::JobId::new().as_uuid();
    let mut hash = [0; 32];
    hash[..16].copy_from_slice(id.as_bytes());
    hash
}
