//! Taking withdrawals: once each, by the right wallet, never promised twice.

use std::collections::HashSet;

use execution::job::{JobError, State};
use testkit::Mining;
use types::{JobId, RawAmount};
use worker::Tick as _;

use crate::signer::KEYS;
use crate::world::{World, bsc, ether, fresh_address};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_parallel_calls_for_one_withdrawal_make_one_job() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let new = world.withdrawal(&fresh_address(), ether(1));
    let calls = (0..20).map(|_| world.jobs.enqueue(new.clone()));
    let answers: HashSet<JobId> =
        futures::future::join_all(calls).await.into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(answers.len(), 1);
    let jobs: i64 = sqlx::query_scalar("SELECT count(*) FROM jobs").fetch_one(&world.pool).await.unwrap();
    assert_eq!(jobs, 1);
    let wallet = world.wallets.list(Some(&bsc()), None).await.unwrap().pop().unwrap();
    assert_eq!(wallet.holdings[0].reserved, ether(1), "reserved once");
    assert_eq!(world.messages("intent.RecordProgress").await.len(), 1, "told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_payload_under_the_same_id_is_refused_by_field() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let new = world.withdrawal(&fresh_address(), ether(1));
    world.jobs.enqueue(new.clone()).await.unwrap();
    let mut other = new.clone();
    other.amount = ether(2);
    assert!(matches!(world.jobs.enqueue(other).await, Err(JobError::OtherPayload { field: "amount_raw" })));
    let mut other = new.clone();
    other.destination = fresh_address();
    assert!(matches!(world.jobs.enqueue(other).await, Err(JobError::OtherPayload { field: "destination" })));
    let mut other = new;
    other.requested_by = "mallory".to_owned();
    assert!(matches!(world.jobs.enqueue(other).await, Err(JobError::OtherPayload { field: "requested_by" })));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_destinations_are_refused_before_anything_is_stored() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let bad = [
        "0x0000000000000000000000000000000000000000",
        KEYS[0].1,
        "0x1234",
        "TJRabPrwbZy45sbavfcjinPJC18kjpRTv8",
    ];
    for destination in bad {
        let refused = world.jobs.enqueue(world.withdrawal(destination, ether(1))).await;
        assert!(matches!(refused, Err(JobError::Invalid { field: "destination", .. })), "{destination}");
    }
    let jobs: i64 = sqlx::query_scalar("SELECT count(*) FROM jobs").fetch_one(&world.pool).await.unwrap();
    assert_eq!(jobs, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn wallets_take_turns_and_are_never_promised_more_than_they_hold() {
    let world = World::new(Mining::Instant).await;
    let first = world.hot_wallet(0).await;
    let second = world.hot_wallet(1).await;
    sqlx::query("UPDATE wallet_holdings SET balance_raw = 10").execute(&world.pool).await.unwrap();
    let calls =
        (0..30).map(|_| world.jobs.enqueue(world.withdrawal(&fresh_address(), RawAmount::from(1u64))));
    let jobs: Vec<JobId> =
        futures::future::join_all(calls).await.into_iter().map(|answer| answer.unwrap()).collect();
    let (mut by_first, mut by_second, mut waiting) = (0, 0, 0);
    for id in jobs {
        let (job, _) = world.job(id).await;
        match job.payer {
            Some(payer) if payer.wallet == first.id => by_first += 1,
            Some(payer) if payer.wallet == second.id => by_second += 1,
            Some(_) => panic!("an unknown wallet"),
            None => {
                waiting += 1;
                let State::Pending { blocked: Some(reason), .. } = job.state else { panic!("not blocked") };
                assert_eq!(reason, "no hot wallet with 0.000000000000000001 BNB on bsc");
            }
        }
    }
    assert_eq!((by_first, by_second, waiting), (10, 10, 10));
    let over: i64 =
        sqlx::query_scalar("SELECT count(*) FROM wallet_holdings WHERE reserved_raw > balance_raw")
            .fetch_one(&world.pool)
            .await
            .unwrap();
    assert_eq!(over, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_liquidity_goes_on_when_money_arrives() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    sqlx::query("UPDATE wallet_holdings SET balance_raw = 0").execute(&world.pool).await.unwrap();
    let (job, to) = world.pay_somebody().await;
    let (waiting, _) = world.job(job).await;
    assert!(waiting.payer.is_none() && waiting.tries == 0);
    let refreshed = world.wallets.refresh(&bsc(), &[]).await.unwrap();
    assert!(refreshed > 0);
    let paid = world.work_until(job, "confirming").await;
    assert!(paid.payer.is_some() && paid.blocked.is_none() && paid.tries == 0);
    assert_eq!(crate::chain::payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_while_a_wallet_is_looked_for_keeps_nobody_else_waiting() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    sqlx::query("UPDATE wallet_holdings SET balance_raw = 0").execute(&world.pool).await.unwrap();
    let (cancelled, nobody) = world.pay_somebody().await;
    let (other, to) = world.pay_somebody().await;
    world.wallets.refresh(&bsc(), &[]).await.unwrap();
    let checkpoints = worker::Checkpoints::halting_at("execution.after_claim");
    let mut worker = world.worker().with_checkpoints(checkpoints.clone());
    let working = tokio::spawn(async move { worker.tick().await });
    tokio::time::timeout(crate::world::LIMIT, checkpoints.reached()).await.unwrap();
    world.jobs.cancel(cancelled, "never mind".to_owned()).await.unwrap();
    checkpoints.release();
    working.await.unwrap().unwrap();
    assert_eq!(world.job(other).await.0.state.name(), "confirming");
    assert_eq!(crate::chain::payments_to(&world.anvil, &to).await.len(), 1);
    let (job, attempts) = world.job(cancelled).await;
    assert!(job.state.name() == "failed" && job.payer.is_none() && !job.reserved && attempts.is_empty());
    assert!(crate::chain::payments_to(&world.anvil, &nobody).await.is_empty());
    let wallet = world.wallets.list(Some(&bsc()), None).await.unwrap().pop().unwrap();
    assert_eq!(wallet.holdings[0].reserved, ether(1), "for the other alone");
}
