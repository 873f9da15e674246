//! The write-ahead protocol: one payment, whatever step a worker dies in.

use std::time::Duration;

use execution::job::AttemptStatus;
use payment::{GasFee, Price};
use prost::Message as _;
use testkit::Mining;
use types::RawAmount;
use worker::Tick as _;

use crate::chain::{balance, mined_nonce, payments_to, token, token_balance};
use crate::signer::KEYS;
use crate::world::{World, ether, fresh_address, worker_config};

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_is_paid_watched_and_confirming() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    assert_eq!(balance(&world.anvil, &to).await, ether(1).to_u128().unwrap());
    let (_, attempts) = world.job(id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].status, attempts[0].sends), (AttemptStatus::Broadcast, 1));
    assert_eq!(attempts[0].tx_hash, job.tx_hash);
    let watches = world.messages("confirmation.PutWatch").await;
    let watch = proto::confirmation::v1::PutWatchRequest::decode(watches[0].as_slice()).unwrap();
    assert_eq!(watch.job_id, id.to_string());
    assert_eq!(watch.transactions[0].tx_hash, job.tx_hash.unwrap().to_string());
    assert_eq!(watch.transactions[0].nonce, Some(0));
    assert_eq!(watch.effect.unwrap().to_address, to);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_and_a_legacy_price_work_the_same() {
    let world = World::new(Mining::Instant).await;
    let contract = token(&world.anvil, KEYS[0].1, 1_000_000).await;
    world.put_chain(&world.anvil.url(), false).await;
    world.catalogue.put_asset(world.asset("USDT", &contract)).await.unwrap();
    world.hot_wallet(0).await;
    let to = fresh_address();
    let mut new = world.withdrawal(&to, RawAmount::from(250_000u64));
    new.asset = "USDT".parse().unwrap();
    let id = world.jobs.enqueue(new).await.unwrap();
    world.work_until(id, "confirming").await;
    assert_eq!(token_balance(&world.anvil, &contract, &to).await, 250_000);
    let (_, attempts) = world.job(id).await;
    assert!(matches!(attempts[0].price, Some(Price::Gas { fee: GasFee::Legacy { .. }, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_jobs_of_one_wallet_get_a_hundred_nonces_in_one_batch() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let news: Vec<_> = (0..100).map(|_| world.withdrawal(&fresh_address(), ether(1))).collect();
    let calls = news.iter().cloned().map(|new| world.jobs.enqueue(new));
    futures::future::join_all(calls).await.into_iter().for_each(|answer| assert!(answer.is_ok()));
    world.worker().tick().await.unwrap();
    let confirming: i64 = sqlx::query_scalar("SELECT count(*) FROM jobs WHERE status = 'confirming'")
        .fetch_one(&world.pool)
        .await
        .unwrap();
    assert_eq!(confirming, 100);
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 100);
    for new in news {
        assert_eq!(balance(&world.anvil, &new.destination).await, ether(1).to_u128().unwrap());
    }
}

/// The steps after which a worker may die.
const STEPS: [&str; 6] = [
    "execution.after_claim",
    "execution.after_reserve",
    "execution.after_sign",
    "execution.after_persist",
    "execution.after_broadcast",
    "execution.after_confirm",
];

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_at_any_step_another_worker_pays_exactly_once() {
    for step in STEPS {
        let world = World::new(Mining::Instant).await;
        world.hot_wallet(0).await;
        let (id, to) = world.pay_somebody().await;
        let short = execution::worker::WorkerConfig { lease: Duration::from_millis(300), ..worker_config() };
        world.crash_at(step, short).await;
        world.work_until(id, "confirming").await;
        assert_eq!(payments_to(&world.anvil, &to).await.len(), 1, "{step}");
        assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1, "{step}: one nonce");
        assert_eq!(world.signer.signatures(), 1, "{step}: one signature");
        let (_, attempts) = world.job(id).await;
        assert_eq!(attempts.len(), 1, "{step}: one attempt");
        assert_eq!(attempts[0].action.name(), "pay");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_worker_whose_lease_ran_out_can_write_nothing() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    // The first worker stands still after signing; its lease is taken away as a long pause would let happen.
    let checkpoints = worker::Checkpoints::halting_at("execution.after_sign");
    let mut paused = world.worker().with_checkpoints(checkpoints.clone());
    let first = tokio::spawn(async move { paused.tick().await });
    checkpoints.reached().await;
    sqlx::query("UPDATE job_lease SET lease_until = now() - interval '1 s'")
        .execute(&world.pool)
        .await
        .unwrap();
    world.work_until(id, "confirming").await;
    let before = world.job(id).await.1;
    // It wakes up with signed bytes in its hands, and finds that they are no longer its to store or send.
    checkpoints.release();
    first.await.unwrap().unwrap();
    assert_eq!(world.job(id).await.1, before, "the loser wrote something");
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!(world.signer.signatures(), 1, "the second worker got the same bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_kills_its_workers_is_told_apart_from_those_beside_it() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    for _ in 0..4 {
        world.pay_somebody().await;
    }
    // Three workers died over all of them, and nobody knows which one it is.
    sqlx::query("UPDATE job_ready SET lapses = 3").execute(&world.pool).await.unwrap();
    let lapses = || async {
        let query = sqlx::query_scalar("SELECT lapses FROM job_ready ORDER BY 1");
        query.fetch_all(&world.pool).await.unwrap() as Vec<i32>
    };
    world.worker().tick().await.unwrap();
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 2, "half of them were worked on");
    assert_eq!(lapses().await, [0, 0], "the others begin anew");
    // One that is known stands alone.
    sqlx::query("UPDATE job_ready SET due_at = now(), lapses = CASE WHEN job_id = (SELECT min(job_id::text)::uuid FROM job_ready) THEN 3 ELSE 0 END")
        .execute(&world.pool)
        .await
        .unwrap();
    world.worker().tick().await.unwrap();
    assert_eq!((mined_nonce(&world.anvil, KEYS[0].1).await, lapses().await.len()), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workers_at_once_pay_everybody_once() {
    let world = World::new(Mining::Every(100)).await;
    world.hot_wallet(0).await;
    world.hot_wallet(1).await;
    let news: Vec<_> = (0..60).map(|_| world.withdrawal(&fresh_address(), ether(1))).collect();
    let calls = news.iter().cloned().map(|new| world.jobs.enqueue(new));
    futures::future::join_all(calls).await.into_iter().for_each(|answer| assert!(answer.is_ok()));
    let small = std::sync::Arc::new(execution::worker::WorkerConfig { batch: 5, ..worker_config() });
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let mut worker = world.worker_with(std::sync::Arc::clone(&small));
            tokio::spawn(async move { while worker.tick().await.unwrap() == worker::TickOutcome::Worked {} })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    testkit::wait_for("everybody is paid", crate::world::LIMIT, || async {
        let mut paid = 0;
        for new in &news {
            paid += usize::from(balance(&world.anvil, &new.destination).await == ether(1).to_u128().unwrap());
        }
        paid == news.len()
    })
    .await;
    let nonces = mined_nonce(&world.anvil, KEYS[0].1).await + mined_nonce(&world.anvil, KEYS[1].1).await;
    assert_eq!(nonces, 60);
}
