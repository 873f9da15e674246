//! Several replicas, crashes, and a database that goes away.

use confirmation::Error;
use confirmation::worker::TickOutcome;
use testkit::{Fault, FaultProxy, Gate, Rule};

use crate::env::{DEPTH, TestEnv, tick, tick_until};

#[tokio::test]
async fn two_replicas_give_one_verdict() {
    let env = TestEnv::new().await;
    let (mut one, mut two) = (env.replica("one"), env.replica("two"));
    let mut jobs = Vec::new();
    for nonce in 0..20 {
        let (job, paid, _) = env.payment(nonce).await;
        jobs.push(job);
        env.send(&paid).await;
    }
    env.mine(u64::from(DEPTH) + 1).await;
    for _ in 0..3 {
        let (first, second) = tokio::join!(one.tick(), two.tick());
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!((first == TickOutcome::NotOurs) != (second == TickOutcome::NotOurs), "{first:?} {second:?}");
    }
    for job in jobs {
        assert_eq!(env.kinds(job).await, ["settled"]);
    }
}

#[tokio::test]
async fn a_replica_that_was_paused_past_its_lease_writes_nothing() {
    let env = TestEnv::new().await;
    let mut paused = env.replica("paused");
    let (job, paid, _) = env.payment(0).await;
    tick(&mut paused).await;
    let mut other = env.replica("other");
    assert_eq!(other.tick().await.unwrap(), TickOutcome::NotOurs);
    sqlx::query("UPDATE chain_loops SET lease_until = now()").execute(&env.pool).await.unwrap();
    tick(&mut other).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 1).await;
    // It comes back with an old token and new evidence.
    let error = paused.tick().await.unwrap_err();
    assert!(matches!(error, Error::LeaseLost { .. }), "{error}");
    assert!(env.kinds(job).await.is_empty());
    tick(&mut other).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
    assert_eq!(paused.tick().await.unwrap(), TickOutcome::NotOurs);
}

#[tokio::test]
async fn a_replica_that_is_stopped_while_a_node_keeps_it_waiting_leaves_the_chain_to_others_at_once() {
    let mut env = TestEnv::new().await;
    let node = FaultProxy::http(env.chain.address()).await;
    let url = node.url();
    env.change_settings(|settings| settings.nodes = vec![url]).await;
    let (mut one, mut two) = (env.replica("one"), env.replica("two"));
    tick(&mut one).await;
    let gate = Gate::new();
    node.rule(Rule::on("eth_getBlockByNumber", Fault::Held(gate.clone())));
    tokio::select! {
        ticked = one.tick() => panic!("it did not wait: {ticked:?}"),
        () = gate.caught(1) => {}
    }
    one.release().await.unwrap();
    gate.release();
    assert_ne!(two.tick().await.unwrap(), TickOutcome::NotOurs);
}

#[tokio::test]
async fn a_restarted_process_does_not_wait_for_its_own_lease() {
    let env = TestEnv::new().await;
    let mut before = env.replica("one");
    tick(&mut before).await;
    let (mut stranger, mut after) = (env.replica("two"), env.replica("one"));
    assert_eq!(stranger.tick().await.unwrap(), TickOutcome::NotOurs);
    tick(&mut after).await;
    env.mine(1).await;
    let error = before.tick().await.unwrap_err();
    assert!(matches!(error, Error::LeaseLost { .. }), "what is left of it is fenced: {error}");
}

#[tokio::test]
async fn a_database_that_cut_all_sessions_loses_nothing() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 1).await;
    env.db.cut_sessions().await;
    tick_until("the verdict", &mut replica, async || {
        let settled: Result<i64, _> =
            sqlx::query_scalar("SELECT count(*) FROM verdicts WHERE kind = 'settled'")
                .fetch_one(&env.pool)
                .await;
        settled.is_ok_and(|count| count == 1)
    })
    .await;
    assert_eq!(env.kinds(job).await, ["settled"]);
}
