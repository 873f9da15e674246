//! Reorganisations: below the depth they reopen, beyond it they contradict and halt.

use std::time::Duration;

use confirmation::config::Follow;
use proto::execution::v1::verdict::Finding;
use serde_json::json;
use testkit::{Fault, FaultProxy, Rule};

use crate::desk::{DEPTH, Desk, account, native, stranger, tick};

#[tokio::test]
async fn a_reorg_below_the_depth_reopens_and_the_payment_settles_once_at_its_new_height() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert_eq!(desk.status(job).await, "included");

    desk.reorg(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert_eq!(desk.status(job).await, "waiting");
    assert_eq!(desk.kinds(job).await, ["reopened"]);
    desk.mine(5).await;
    tick(&mut replica).await;
    assert_eq!(desk.status(job).await, "waiting", "depth is counted anew, and nothing is there to count");

    desk.send(&paid).await;
    desk.mine(1).await;
    let height = desk.height().await;
    desk.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    let verdicts = desk.verdicts(job).await;
    let [Finding::Reopened(_), Finding::Settled(settled)] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!(settled.block_number, height);
    desk.mine(10).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await.len(), 2);
}

#[tokio::test]
async fn a_reorg_that_moves_a_payment_between_two_looks_settles_it_once() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(1).await;
    tick(&mut replica).await;
    desk.reorg(1).await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["reopened", "settled"]);
    assert!(desk.halted().await.is_none());
}

#[tokio::test]
async fn a_reorg_beyond_the_depth_contradicts_and_halts_until_a_person_has_looked() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH) + 3).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["settled"]);

    desk.reorg(u64::from(DEPTH) + 4).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["settled", "contradicted"]);
    assert!(desk.halted().await.is_some());
    assert_eq!(desk.status(job).await, "settled", "nothing is paid again by itself");

    // While halted there are no verdicts, but the chain is still followed.
    let other_to = stranger();
    let other = desk.sign(0, other_to, 6, &[]).await;
    let waiting = desk.put(native(other_to, 6), vec![other.watched()]).await;
    desk.send(&other).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(desk.status(waiting).await, "included");
    assert!(desk.kinds(waiting).await.is_empty());

    desk.chains.resume(&crate::desk::chain_name(), "operator").await.unwrap();
    // The loop learns of it when it next proves its lease.
    desk.mine(1).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(waiting).await, ["settled"]);
    assert_eq!(desk.kinds(job).await, ["settled", "contradicted"], "reported once");
}

#[tokio::test]
async fn a_reorg_that_a_restarted_replica_finds_reopens_too() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(2).await;
    tick(&mut replica).await;
    replica.release().await.unwrap();
    desk.reorg(2).await;
    let mut restarted = desk.replica("two");
    tick(&mut restarted).await;
    assert_eq!(desk.kinds(job).await, ["reopened"]);
}

#[tokio::test]
async fn a_payment_whose_block_was_undone_unseen_waits_again_though_a_pool_still_has_it() {
    let mut desk = Desk::new().await;
    let node = FaultProxy::http(desk.chain.address()).await;
    let url = node.url();
    desk.settle_in(|settings| settings.nodes = vec![url]).await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(1).await;
    tick(&mut replica).await;
    assert_eq!(desk.status(job).await, "included");
    replica.release().await.unwrap();
    // What was remembered of the chain is gone, as after a long time without anybody who followed it.
    sqlx::query("DELETE FROM heads").execute(&desk.pool).await.unwrap();
    desk.reorg(1).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    let pending = json!({
        "hash": paid.hash.to_string(), "from": account(0).to_string(), "to": to.to_string(), "nonce": "0x0",
        "value": "0x5", "input": "0x", "gasPrice": "0x1", "blockHash": null, "blockNumber": null,
    });
    node.rule(Rule::on("eth_getTransactionByHash", Fault::RpcResult(pending)));
    let mut later = desk.replica("two");
    tick(&mut later).await;
    assert_eq!((desk.status(job).await, desk.kinds(job).await), ("waiting", vec!["reopened"]));
    node.pass().await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick(&mut later).await;
    assert_eq!(desk.kinds(job).await, ["reopened", "settled"]);
}

#[tokio::test]
async fn a_reorg_deeper_than_everything_remembered_halts_and_contradicts_what_it_can_tell() {
    let desk = Desk::new().await;
    let short =
        Follow { ring_blocks: 6, retry: Duration::ZERO, void_check: Duration::ZERO, ..Follow::default() };
    let mut replica = desk.replica_with("one", short);
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH) + 2).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["settled"]);
    desk.reorg(8).await;
    tick(&mut replica).await;
    assert!(desk.halted().await.unwrap().contains("deeper"), "{:?}", desk.halted().await);
    assert_eq!(desk.kinds(job).await, ["settled", "contradicted"]);
}

#[tokio::test]
async fn a_foreign_transaction_that_is_undone_after_it_was_final_contradicts_the_void() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let ours = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![ours.watched()]).await;
    desk.send(&desk.sign(0, stranger(), 1, &[]).await).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["void"]);
    // The nonce is open again: what was ruled out could land.
    desk.reorg(u64::from(DEPTH) + 2).await;
    tick(&mut replica).await;
    assert_eq!(desk.kinds(job).await, ["void", "contradicted"]);
    assert!(desk.halted().await.is_some());
}
