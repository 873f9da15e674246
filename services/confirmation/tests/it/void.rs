//! Nonces used by something else: void needs that transaction, final, on every node.

use confirmation::watch::put::AddError;
use confirmation::watch::{NewTx, WatchError};
use proto::execution::v1::verdict::Finding;
use testkit::{FaultProxy, Rule, Upset};

use crate::desk::{DEPTH, Desk, is_attested, native, stranger, tick, tick_until};

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
        let effect = chain::Transfer { from: stranger(), ..native(stranger(), 5) };
        let hash = types::TxHash(unique());
        let waiting =
            NewTx { hash, is_cancellation: false, nonce: Some(0), expires_at: None, reference_block: 0 };
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
