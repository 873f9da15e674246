//! Hundreds of payments in a block among thousands of watches.

use std::time::{Duration, Instant};

use confirmation::config::Follow;
use testkit::FaultProxy;
use types::TxHash;

use crate::env::{DEPTH, TestEnv, TxSpec, native, stranger, tick};

const PAID: u64 = 300;
const WAITING: u64 = 2_000;

/// Watches whose transactions never appear, at nonces from `first` on.
async fn wait_in_vain(env: &TestEnv, first: u64) {
    for number in 0..WAITING {
        let mut hash = [0xee; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        env.put(native(stranger(), 5), vec![TxSpec::at_nonce(TxHash::from(hash), first + number)]).await;
    }
}

#[tokio::test]
async fn a_block_full_of_payments_is_settled_in_one_look() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let mut jobs = Vec::new();
    for nonce in 0..PAID {
        let (job, paid, _) = env.payment(nonce).await;
        jobs.push(job);
        env.send(&paid).await;
    }
    wait_in_vain(&env, PAID).await;
    // Everything new is looked up once.
    tick(&mut replica).await;
    env.mine(1).await;
    let seen = Instant::now();
    replica.tick().await.unwrap();
    let seen = seen.elapsed();
    env.mine(u64::from(DEPTH)).await;
    let settled = Instant::now();
    replica.tick().await.unwrap();
    let settled = settled.elapsed();
    for job in &jobs {
        assert_eq!(env.status(*job).await, "settled");
    }
    assert_eq!(env.outbox("execution.RecordVerdict").await, i64::try_from(PAID).unwrap());
    println!("{PAID} payments among {WAITING} watches: seen in {seen:?}, settled in {settled:?}");
}

#[tokio::test]
async fn new_blocks_cost_nothing_for_watches_they_do_not_hold() {
    let mut env = TestEnv::new().await;
    let node = FaultProxy::http(env.chain.address()).await;
    let url = node.url();
    env.change_settings(|settings| settings.nodes = vec![url]).await;
    let hour = Duration::from_secs(3600);
    let mut replica =
        env.replica_with("one", Follow { void_check: hour, retry: Duration::ZERO, ..Follow::default() });
    wait_in_vain(&env, 0).await;
    tick(&mut replica).await;
    let asked = || node.calls("eth_getTransactionByHash") + node.calls("eth_getTransactionReceipt");
    let before = asked();
    assert!(before >= WAITING, "each was looked up when it was new");
    for _ in 0..10 {
        env.mine(1).await;
        tick(&mut replica).await;
    }
    assert_eq!(asked(), before, "ten blocks later no node was asked about any of them again");
}
