//! Nonces used by something else: void needs that transaction, final, on every node.

use confirmation::Error;
use confirmation::watch::AddError;
use payment::Effect;
use proto::execution::v1::verdict::Finding;
use testkit::{Fault, FaultProxy, Rule};

use crate::env::{
    DEPTH, TestEnv, TxSpec, account, call_data, is_attested, native, stranger, tick, tick_until,
    token_transfer, two_empty_strings,
};

#[tokio::test]
async fn a_foreign_transaction_makes_all_of_a_round_void_only_when_final() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let ours = env.sign(0, to, 5, &[]).await;
    let bumped = env.sign_at(0, to, 5, 3_000_000_000).await;
    let job = env.put(native(to, 5), vec![ours.watched(), bumped.watched()]).await;
    let foreign = env.sign_at(0, stranger(), 1, 4_000_000_000).await;
    env.send(&foreign).await;
    env.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert!(env.kinds(job).await.is_empty(), "a foreign transaction that is not final proves nothing");
    env.mine(1).await;
    tick(&mut replica).await;
    let [Finding::Void(void)] = &env.verdicts(job).await[..] else { panic!("{:?}", env.kinds(job).await) };
    assert_eq!(void.foreign_tx_hash, foreign.hash.to_string());
    assert_eq!(void.tx_hashes, [ours.hash.to_string(), bumped.hash.to_string()]);
    assert!(is_attested(job, &[ours.hash, bumped.hash], &void.attestation, void.attested_at));

    // The next attempt has a nonce of its own and is a round of its own.
    let again = env.sign(1, to, 5, &[]).await;
    env.extend(job, native(to, 5), vec![again.watched()]).await.unwrap();
    assert_eq!(env.status(job).await, "waiting");
    env.send(&again).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["void", "settled"]);
    let third = env.sign(2, to, 5, &[]).await;
    let refused = env.extend(job, native(to, 5), vec![third.watched()]).await.unwrap_err();
    assert!(matches!(refused, Error::Add(AddError::Settled { .. })), "{refused}");
}

#[tokio::test]
async fn our_own_bump_that_was_mined_before_it_was_registered_is_never_called_foreign() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let first = env.sign(0, to, 5, &[]).await;
    let bumped = env.sign_at(0, to, 5, 3_000_000_000).await;
    let job = env.put(native(to, 5), vec![first.watched()]).await;
    env.send(&bumped).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it says what it waits for", &mut replica, async || {
        env.delayed(job).await.contains("has made the payment")
    })
    .await;
    assert!(env.kinds(job).await.is_empty());
    env.extend(job, native(to, 5), vec![first.watched(), bumped.watched()]).await.unwrap();
    tick_until("it settles", &mut replica, async || !env.kinds(job).await.is_empty()).await;
    let [Finding::Settled(settled)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!(settled.tx_hash, bumped.hash.to_string());
}

#[tokio::test]
async fn a_foreign_transaction_with_the_effect_of_a_registered_bump_proves_nothing_void() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let (first, bumped) = (env.sign(0, to, 10, &[]).await, env.sign_at(0, to, 7, 3_000_000_000).await);
    let bump = TxSpec { effect: Some(Effect::Moves(native(to, 7))), ..bumped.watched() };
    let job = env.put(native(to, 10), vec![first.watched(), bump]).await;
    env.send(&env.sign_at(0, to, 7, 4_000_000_000).await).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it says so", &mut replica, async || env.delayed(job).await.contains("has made the payment"))
        .await;
    assert!(env.kinds(job).await.is_empty());
}

#[tokio::test]
async fn a_cancellation_that_was_registered_after_it_ended_the_round_as_void_is_judged_again() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let payment = env.sign(0, to, 5, &[]).await;
    let cancel = env.sign_at(0, account(0), 0, 3_000_000_000).await;
    let job = env.put(native(to, 5), vec![payment.watched()]).await;
    env.send(&cancel).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it is void", &mut replica, async || env.kinds(job).await == ["void"]).await;
    env.extend(job, native(to, 5), vec![payment.watched(), cancel.cancelling()]).await.unwrap();
    assert_eq!(env.status(job).await, "waiting");
    tick_until("it is judged again", &mut replica, async || env.kinds(job).await.len() == 2).await;
    let [Finding::Void(void), Finding::Cancelled(cancelled)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!(void.foreign_tx_hash, cancel.hash.to_string());
    let closed = [payment.hash, cancel.hash];
    assert_eq!(cancelled.void_tx_hashes, closed.map(|hash| hash.to_string()));
    assert!(is_attested(job, &closed, &cancelled.attestation, cancelled.attested_at));
    assert!(env.halted().await.is_none());
}

#[tokio::test]
async fn a_bump_that_is_registered_after_the_first_bytes_reverted_is_ruled_out_with_them() {
    let env = TestEnv::new().await;
    let token = env.token("Token", &two_empty_strings()).await;
    let mut replica = env.replica("one");
    let (to, effect) = (stranger(), |to| token_transfer(token, to, 1_000_001));
    let sent = env.sign(0, token, 0, &call_data("a9059cbb", to, 1_000_001)).await;
    let late = env.sign_at(0, token, 0, 3_000_000_000).await;
    let job = env.put(effect(to), vec![sent.watched()]).await;
    env.send(&sent).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it reverted", &mut replica, async || env.kinds(job).await == ["reverted"]).await;
    env.extend(job, effect(to), vec![sent.watched(), late.watched()]).await.unwrap();
    tick_until("it is judged again", &mut replica, async || env.kinds(job).await.len() == 2).await;
    let [_, Finding::Reverted(again)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!(again.void_tx_hashes, [sent.hash, late.hash].map(|hash| hash.to_string()));
}

#[tokio::test]
async fn nothing_is_attested_on_the_callers_word() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let (ours, named) = (env.sign(0, to, 5, &[]).await, env.sign_at(0, to, 5, 3_000_000_000).await);
    let unproven = TxSpec { proven: false, ..named.watched() };
    let job = env.put(native(to, 5), vec![ours.watched(), unproven]).await;
    env.send(&env.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it is void", &mut replica, async || !env.kinds(job).await.is_empty()).await;
    let [Finding::Void(void)] = &env.verdicts(job).await[..] else { panic!("{:?}", env.kinds(job).await) };
    assert_eq!(void.tx_hashes.len(), 2);
    assert!(
        void.attestation.is_empty() && void.attested_at.is_none(),
        "one of them is only what the caller said"
    );
}

#[tokio::test]
async fn a_payment_that_is_called_a_cancellation_proves_nothing_void() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let payment = env.sign(0, to, 5, &[]).await;
    let job = env.put(native(to, 5), vec![payment.cancelling()]).await;
    env.send(&payment).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it is judged", &mut replica, async || !env.kinds(job).await.is_empty()).await;
    let [Finding::Reverted(reverted)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert!(reverted.value_moved && reverted.attestation.is_empty() && reverted.void_tx_hashes.is_empty());
}

#[tokio::test]
async fn a_nonce_that_was_used_long_before_the_watch_began_is_void() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let foreign = env.sign(0, stranger(), 1, &[]).await;
    env.send(&foreign).await;
    env.mine(300).await;
    tick(&mut replica).await;
    let (job, _, _) = env.payment(0).await;
    for _ in 0..8 {
        tick(&mut replica).await;
    }
    let [Finding::Void(void)] = &env.verdicts(job).await[..] else { panic!("{:?}", env.kinds(job).await) };
    assert_eq!(void.foreign_tx_hash, foreign.hash.to_string());
}

#[tokio::test]
async fn every_nonce_a_foreign_wallet_used_is_found_one_after_the_other() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let mut jobs = Vec::new();
    for nonce in 0..4 {
        let (job, _, _) = env.payment(nonce).await;
        jobs.push(job);
    }
    for nonce in 0..3 {
        env.send(&env.sign(nonce, stranger(), 1, &[]).await).await;
    }
    env.mine(u64::from(DEPTH) + 1).await;
    for _ in 0..3 {
        tick(&mut replica).await;
    }
    for (nonce, job) in jobs.iter().enumerate() {
        let expected: &[&str] = if nonce < 3 { &["void"] } else { &[] };
        assert_eq!(env.kinds(*job).await, expected, "nonce {nonce}");
    }
}

#[tokio::test]
async fn a_foreign_transaction_of_which_nobody_tells_what_it_did_proves_nothing() {
    let mut env = TestEnv::new().await;
    let node = FaultProxy::http(env.chain.address()).await;
    let url = node.url();
    env.change_settings(|settings| settings.nodes = vec![url]).await;
    let mut replica = env.replica("one");
    let (job, _, _) = env.payment(0).await;
    tick(&mut replica).await;
    env.send(&env.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    env.mine(u64::from(DEPTH) + 1).await;
    // There is a receipt, and not the transaction itself, without which nobody can tell who got what.
    node.rule(Rule::on("eth_getTransactionByHash", Fault::RpcResult(serde_json::Value::Null)));
    tick_until("it says so", &mut replica, async || env.delayed(job).await.contains("do not tell")).await;
    assert!(env.kinds(job).await.is_empty());
    node.pass().await;
    tick_until("the verdict", &mut replica, async || env.kinds(job).await == ["void"]).await;
}

#[tokio::test]
async fn a_payment_that_a_token_took_its_fee_from_is_never_called_foreign() {
    let env = TestEnv::new().await;
    let token = env.token("FeeToken", &[]).await;
    let mut replica = env.replica("one");
    let (to, data) = (stranger(), |to| call_data("a9059cbb", to, 1_000));
    let registered = env.sign(0, token, 0, &data(to)).await;
    let unregistered = env.sign(0, token, 0, &[data(to), vec![0]].concat()).await;
    let job = env.put(token_transfer(token, to, 1_000), vec![registered.watched()]).await;
    env.send(&unregistered).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("it says so", &mut replica, async || {
        env.delayed(job).await.contains("has brought the receiver 990")
    })
    .await;
    assert!(env.kinds(job).await.is_empty());
}

#[tokio::test]
async fn a_nonce_in_doubt_does_not_keep_those_above_it_from_being_asked_about() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (doubted, _, to) = env.payment(0).await;
    let second = env.sign(1, to, 6, &[]).await;
    let void = env.put(native(to, 6), vec![second.watched()]).await;
    let third = env.sign(2, to, 7, &[]).await;
    let open = env.put(native(to, 7), vec![third.watched()]).await;
    // The first one's payment, which nobody registered, and a foreign one.
    env.send(&env.sign_at(0, to, 5, 3_000_000_000).await).await;
    env.send(&env.sign(1, stranger(), 1, &[]).await).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick_until("the verdict", &mut replica, async || env.kinds(void).await == ["void"]).await;
    assert!(env.delayed(doubted).await.contains("has made the payment"));
    tick(&mut replica).await;
    assert_eq!((env.status(doubted).await, env.status(open).await), ("waiting", "waiting"));
    assert_eq!(env.delayed(open).await, "");
}

#[tokio::test]
async fn the_search_begins_where_a_nonce_was_last_known_to_be_open() {
    let mut env = TestEnv::new().await;
    let node = FaultProxy::http(env.chain.address()).await;
    let url = node.url();
    env.change_settings(|settings| settings.nodes = vec![url]).await;
    let mut replica = env.replica("one");
    let to = stranger();
    let mut jobs = Vec::new();
    for nonce in 0..2 {
        let ours = env.sign(nonce, to, 5, &[]).await;
        jobs.push(env.put(native(to, 5), vec![ours.watched()]).await);
    }
    tick(&mut replica).await;
    env.mine(200).await;
    tick(&mut replica).await;
    let (open_at, asked) = (env.height().await - u64::from(DEPTH), node.seen(COUNT).len());
    for nonce in 0..2 {
        env.send(&env.sign(nonce, stranger(), 1, &[]).await).await;
    }
    env.mine(u64::from(DEPTH) + 3).await;
    tick_until("both are void", &mut replica, async || {
        env.status(jobs[0]).await == "void" && env.status(jobs[1]).await == "void"
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
    let mut env = TestEnv::new().await;
    let lagging = FaultProxy::http(env.chain.address()).await;
    let nodes = vec![env.chain.url(), lagging.url()];
    env.change_settings(|settings| settings.nodes = nodes).await;
    let mut replica = env.replica("one");
    let (job, _, _) = env.payment(0).await;
    tick(&mut replica).await;
    // From here on the second node knows no block at all beyond its own view.
    lagging.rule(Rule::on("eth_getBlockByNumber", Fault::RpcResult(serde_json::Value::Null)));
    env.send(&env.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    env.mine(u64::from(DEPTH) + 10).await;
    for _ in 0..5 {
        tick(&mut replica).await;
        assert!(env.kinds(job).await.is_empty());
    }
    lagging.pass().await;
    // A node that failed rests for a while; then it agrees.
    tick_until("the verdict", &mut replica, async || !env.kinds(job).await.is_empty()).await;
    assert_eq!(env.status(job).await, "void");
}

#[tokio::test]
async fn a_missing_receipt_is_never_evidence() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, _, _) = env.payment(0).await;
    for _ in 0..10 {
        env.mine(20).await;
        tick(&mut replica).await;
    }
    assert_eq!(env.status(job).await, "waiting");
    assert!(env.kinds(job).await.is_empty());
}

#[tokio::test]
async fn nonces_that_stay_open_do_not_keep_others_from_being_looked_at() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    // More senders than one look asks about, all older and all undecided.
    for _ in 0..70 {
        let effect = payment::Transfer { from: stranger(), ..native(stranger(), 5) };
        env.put(effect, vec![TxSpec::at_nonce(types::TxHash::from(unique()), 0)]).await;
    }
    let (job, _, _) = env.payment(0).await;
    env.send(&env.sign_at(0, stranger(), 1, 4_000_000_000).await).await;
    env.mine(u64::from(DEPTH) + 1).await;
    for _ in 0..4 {
        tick(&mut replica).await;
    }
    assert_eq!(env.status(job).await, "void");
}

/// A hash of its own each time.
fn unique() -> [u8; 32] {
    let id = types::JobId::new().as_uuid();
    let mut hash = [0; 32];
    hash[..16].copy_from_slice(id.as_bytes());
    hash
}
