//! Reorganisations: below the depth they reopen, beyond it they contradict and halt.

use std::time::Duration;

use confirmation::config::Follow;
use proto::execution::v1::verdict::Finding;
use serde_json::json;
use testkit::{Fault, FaultProxy, Rule};

use crate::env::{DEPTH, TestEnv, account, native, stranger, tick};

#[tokio::test]
async fn a_reorg_below_the_depth_reopens_and_the_payment_settles_once_at_its_new_height() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "included");

    env.reorg(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "waiting");
    assert_eq!(env.kinds(job).await, ["reopened"]);
    env.mine(5).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "waiting", "depth is counted anew, and nothing is there to count");

    env.send(&paid).await;
    env.mine(1).await;
    let height = env.height().await;
    env.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    let verdicts = env.verdicts(job).await;
    let [Finding::Reopened(_), Finding::Settled(settled)] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!(settled.block_number, height);
    env.mine(10).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await.len(), 2);
}

#[tokio::test]
async fn a_reorg_that_moves_a_payment_between_two_looks_settles_it_once() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(1).await;
    tick(&mut replica).await;
    env.reorg(1).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["reopened", "settled"]);
    assert!(env.halted().await.is_none());
}

#[tokio::test]
async fn a_reorg_beyond_the_depth_contradicts_and_halts_until_a_person_has_looked() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 3).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);

    env.reorg(u64::from(DEPTH) + 4).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled", "contradicted"]);
    assert!(env.halted().await.is_some());
    assert_eq!(env.status(job).await, "settled", "nothing is paid again by itself");

    // While halted there are no verdicts, but the chain is still followed.
    let other_to = stranger();
    let other = env.sign(0, other_to, 6, &[]).await;
    let waiting = env.put(native(other_to, 6), vec![other.watched()]).await;
    env.send(&other).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(env.status(waiting).await, "included");
    assert!(env.kinds(waiting).await.is_empty());

    env.chains.resume(&crate::env::chain_name(), "operator").await.unwrap();
    // The loop learns of it when it next proves its lease.
    env.mine(1).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(waiting).await, ["settled"]);
    assert_eq!(env.kinds(job).await, ["settled", "contradicted"], "reported once");
}

#[tokio::test]
async fn a_reorg_that_a_restarted_replica_finds_reopens_too() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(2).await;
    tick(&mut replica).await;
    replica.release().await.unwrap();
    env.reorg(2).await;
    let mut restarted = env.replica("two");
    tick(&mut restarted).await;
    assert_eq!(env.kinds(job).await, ["reopened"]);
}

#[tokio::test]
async fn a_payment_whose_block_was_undone_unseen_waits_again_though_a_pool_still_has_it() {
    let mut env = TestEnv::new().await;
    let node = FaultProxy::http(env.chain.address()).await;
    let url = node.url();
    env.change_settings(|settings| settings.nodes = vec![url]).await;
    let mut replica = env.replica("one");
    let (job, paid, to) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(1).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "included");
    replica.release().await.unwrap();
    // What was remembered of the chain is gone, as after a long time without anybody who followed it.
    sqlx::query("DELETE FROM heads").execute(&env.pool).await.unwrap();
    env.reorg(1).await;
    env.mine(u64::from(DEPTH) + 1).await;
    let pending = json!({
        "hash": paid.hash.to_string(), "from": account(0).to_string(), "to": to.to_string(), "nonce": "0x0",
        "value": "0x5", "input": "0x", "gasPrice": "0x1", "blockHash": null, "blockNumber": null,
    });
    node.rule(Rule::on("eth_getTransactionByHash", Fault::RpcResult(pending)));
    let mut later = env.replica("two");
    tick(&mut later).await;
    assert_eq!((env.status(job).await, env.kinds(job).await), ("waiting", vec!["reopened"]));
    node.pass().await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut later).await;
    assert_eq!(env.kinds(job).await, ["reopened", "settled"]);
}

#[tokio::test]
async fn a_reorg_deeper_than_everything_remembered_halts_and_contradicts_what_it_can_tell() {
    let env = TestEnv::new().await;
    let short =
        Follow { ring_blocks: 6, retry: Duration::ZERO, void_check: Duration::ZERO, ..Follow::default() };
    let mut replica = env.replica_with("one", short);
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 2).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
    env.reorg(8).await;
    tick(&mut replica).await;
    assert!(env.halted().await.unwrap().contains("deeper"), "{:?}", env.halted().await);
    assert_eq!(env.kinds(job).await, ["settled", "contradicted"]);
}

#[tokio::test]
async fn a_foreign_transaction_that_is_undone_after_it_was_final_contradicts_the_void() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, _, _) = env.payment(0).await;
    env.send(&env.sign(0, stranger(), 1, &[]).await).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["void"]);
    // The nonce is open again: what was ruled out could land.
    env.reorg(u64::from(DEPTH) + 2).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["void", "contradicted"]);
    assert!(env.halted().await.is_some());
}
