//! Nonces: gaps, foreign transactions, halted lanes.

use std::time::Duration;

use execution::job::State;
use execution::worker::lanes::LaneWorker;
use execution::worker::resend::ResendWorker;
use testkit::Mining;
use uuid::Uuid;
use worker::Tick as _;

use crate::chain::{foreign_send, mined_nonce, payments_to};
use crate::findings::void;
use crate::signer::KEYS;
use crate::world::{World, bsc};

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_continues_above_nonces_that_somebody_else_used() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (first, _) = world.pay_somebody().await;
    world.work_until(first, "confirming").await;
    foreign_send(&world.anvil, KEYS[0].1, None).await;
    foreign_send(&world.anvil, KEYS[0].1, None).await;
    let (second, to) = world.pay_somebody().await;
    world.work_until(second, "confirming").await;
    assert_eq!(world.job(second).await.1[0].nonce, Some(3));
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    let foreign: i64 =
        sqlx::query_scalar("SELECT foreign_seen FROM lanes").fetch_one(&world.pool).await.unwrap();
    assert_eq!(foreign, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_that_nobody_holds_is_closed_by_a_filler() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    // Somebody else's transaction sits in the pool; ours goes above it; then theirs disappears.
    let hash = foreign_send(&world.anvil, KEYS[0].1, None).await;
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    assert_eq!(world.job(id).await.1[0].nonce, Some(1));
    world.anvil.call("anvil_dropTransaction", serde_json::json!([hash])).await;
    world.anvil.mine(1).await;
    assert!(payments_to(&world.anvil, &to).await.is_empty(), "jammed");
    let mut lanes = LaneWorker::new(world.pool.clone(), bsc(), world.chains.clone(), Duration::ZERO);
    lanes.tick().await.unwrap();
    world.worker().tick().await.unwrap();
    world.anvil.mine(1).await;
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1, "the filler closed the gap");
    // The node dropped ours together with the one below it; the same bytes go out again.
    let mut resend = ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone());
    let mut patience = testkit::Patience::of(crate::world::LIMIT);
    while mined_nonce(&world.anvil, KEYS[0].1).await < 2 {
        assert!(!patience.is_over(), "the payment never lands");
        resend.tick().await.unwrap();
        world.anvil.mine(1).await;
    }
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    // The filler ends like any cancellation.
    let filler: Uuid =
        sqlx::query_scalar("SELECT id FROM jobs WHERE filler").fetch_one(&world.pool).await.unwrap();
    let (job, attempts) = world.job(filler.into()).await;
    assert_eq!((job.state.name(), attempts[0].action.name()), ("confirming", "cancel"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_transaction_at_our_nonce_halts_the_lane_until_a_person_looks() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.jobs.record_verdict(&void(id, vec![job.tx_hash.unwrap()])).await.unwrap();
    let lane = world.jobs.lanes(None).await.unwrap().pop().unwrap();
    assert!(lane.halted_reason.is_some());
    world.worker().tick().await.unwrap();
    // The pool still has the bytes that were called void; here nothing foreign was really mined.
    let mut worker = world.worker();
    let held_up =
        |state: &State| matches!(state, State::Pending { blocked: Some(why), .. } if why.contains("halted"));
    let mut patience = testkit::Patience::of(crate::world::LIMIT);
    while !held_up(&world.job(id).await.0.state) {
        assert!(!patience.is_over(), "the halted lane holds nothing up");
        worker.tick().await.unwrap();
    }
    world.jobs.resume_lane(&bsc(), KEYS[0].1).await.unwrap();
    world.work_until(id, "confirming").await;
    let (_, attempts) = world.job(id).await;
    assert_eq!(attempts.len(), 2);
    assert_ne!(attempts[0].nonce, attempts[1].nonce);
    assert!(attempts[1].void_proof.is_some());
    let _ = to;
}
