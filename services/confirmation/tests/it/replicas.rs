//! Several replicas, crashes, and a database that goes away.

use confirmation::watch::WatchError;
use confirmation::worker::{LoopError, Ticked};
use testkit::{Fault, FaultProxy, Gate, Rule};

use crate::desk::{DEPTH, Desk, native, stranger, tick, tick_until};

#[tokio::test]
async fn two_replicas_give_one_verdict() {
    let desk = Desk::new().await;
    let (mut one, mut two) = (desk.replica("one"), desk.replica("two"));
    let mut jobs = Vec::new();
    for nonce in 0..20 {
        let to = stranger();
        let paid = desk.sign(nonce, to, 5, &[]).await;
        jobs.push(desk.put(native(to, 5), vec![paid.watched()]).await);
        desk.send(&paid).await;
    }
    desk.mine(u64::from(DEPTH) + 1).await;
    for _ in 0..3 {
        let (first, second) = tokio::join!(one.tick(), two.tick());
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!((first == Ticked::NotOurs) != (second == Ticked::NotOurs), "{first:?} {second:?}");
    }
    for job in jobs {
        assert_eq!(desk.kinds(job).await, ["settled"]);
    }
}

#[tokio::test]
async fn a_replica_that_was_paused_past_its_lease_writes_nothing() {
    let desk = Desk::new().await;
    let mut paused = desk.replica("paused");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    tick(&mut paused).await;
    let mut other = desk.replica("other");
    assert_eq!(other.tick().await.unwrap(), Ticked::NotOurs);
    sqlx::query("UPDATE chain_loops SET lease_until = now()").execute(&desk.pool).await.unwrap();
    tick(&mut other).await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    // It comes back with an old token and new evidence.
    let error = paused.tick().await.unwrap_err();
    assert!(matches!(error, LoopError::Watch(WatchError::LeaseLost { .. })), "{error}");
    assert!(desk.kinds(job).await.is_empty());
    tick(&mut other).await;
    assert_eq!(desk.kinds(job).await, ["settled"]);
    assert_eq!(paused.tick().await.unwrap(), Ticked::NotOurs);
}

#[tokio::test]
async fn a_replica_that_is_stopped_while_a_node_keeps_it_waiting_leaves_the_chain_to_others_at_once() {
    let mut desk = Desk::new().await;
    let node = FaultProxy::http(desk.chain.address()).await;
    let url = node.url();
    desk.settle_in(|settings| settings.nodes = vec![url]).await;
    let (mut one, mut two) = (desk.replica("one"), desk.replica("two"));
    tick(&mut one).await;
    let hold = Gate::new();
    node.rule(Rule::on("eth_getBlockByNumber", Fault::Held(hold.clone())));
    tokio::select! {
        ticked = one.tick() => panic!("it did not wait: {ticked:?}"),
        () = hold.caught(1) => {}
    }
    one.release().await.unwrap();
    hold.release();
    assert_ne!(two.tick().await.unwrap(), Ticked::NotOurs);
}

#[tokio::test]
async fn a_restarted_process_does_not_wait_for_its_own_lease() {
    let desk = Desk::new().await;
    let mut before = desk.replica("one");
    tick(&mut before).await;
    let (mut stranger, mut after) = (desk.replica("two"), desk.replica("one"));
    assert_eq!(stranger.tick().await.unwrap(), Ticked::NotOurs);
    tick(&mut after).await;
    desk.mine(1).await;
    let error = before.tick().await.unwrap_err();
    assert!(
        matches!(error, LoopError::Watch(WatchError::LeaseLost { .. })),
        "what is left of it is fenced: {error}"
    );
}

#[tokio::test]
async fn a_database_that_cut_all_sessions_loses_nothing() {
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let to = stranger();
    let paid = desk.sign(0, to, 5, &[]).await;
    let job = desk.put(native(to, 5), vec![paid.watched()]).await;
    desk.send(&paid).await;
    desk.mine(u64::from(DEPTH) + 1).await;
    desk.db.cut_sessions().await;
    tick_until("the verdict", &mut replica, async || {
        let settled: Result<i64, _> =
            sqlx::query_scalar("SELECT count(*) FROM verdicts WHERE kind = 'settled'")
                .fetch_one(&desk.pool)
                .await;
        settled.is_ok_and(|count| count == 1)
    })
    .await;
    assert_eq!(desk.kinds(job).await, ["settled"]);
}
