//! What no node will take, and nonces that the signer will not give: the job goes on by itself, at the same nonce first, and at
//! another one only after something is final at the old one.

use std::time::Duration;

use execution::job::{Attempt, AttemptStatus, Job, State};
use execution::worker::WorkerConfig;
use execution::worker::resend::ResendWorker;
use payment::{Price, Verdict};
use testkit::{Fault, FaultProxy, Mining, Rule};
use types::JobId;
use uuid::Uuid;
use worker::Tick as _;

use crate::chain::{self, mined_nonce, payments_to};
use crate::findings;
use crate::signer::{KEYS, Script};
use crate::world::{LIMIT, World, bsc, worker_config};

const GAS: &str = "intrinsic gas too low: gas 21000, minimum needed 23000";

/// A world whose node is reached through a proxy.
async fn behind_proxy() -> (World, FaultProxy) {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    world.hot_wallet(0).await;
    (world, proxy)
}

/// The next `times` broadcasts are refused for good, without the node hearing of them.
fn refuse(proxy: &FaultProxy, message: &str, times: u64) {
    let upset = Fault::RpcError { code: -32000, message: message.to_owned() };
    proxy.rule(Rule::on("eth_sendRawTransaction", upset).times(times));
}

/// Ticks until `done` holds of the job.
async fn work_until(world: &World, id: JobId, what: &str, done: impl Fn(&Job) -> bool) -> Job {
    let mut worker = world.worker();
    let mut patience = testkit::Patience::of(LIMIT);
    loop {
        worker.tick().await.unwrap();
        let (job, attempts) = world.job(id).await;
        if done(&job) {
            return job;
        }
        assert!(!patience.is_over(), "{what}: {job:#?} {attempts:#?}");
    }
}

async fn work_until_paid(world: &World, to: &str, what: &str) {
    let mut worker = world.worker();
    let mut patience = testkit::Patience::of(LIMIT);
    while payments_to(&world.anvil, to).await.is_empty() {
        assert!(!patience.is_over(), "{what}: never paid");
        worker.tick().await.unwrap();
    }
}

/// Ticks until the wallet has so many transactions in blocks.
async fn work_until_mined(world: &World, count: u64) {
    let mut worker = world.worker();
    let mut patience = testkit::Patience::of(LIMIT);
    while mined_nonce(&world.anvil, KEYS[0].1).await < count {
        assert!(!patience.is_over(), "never closed");
        worker.tick().await.unwrap();
    }
}

/// What confirmation sends once the newest cancellation is final; `proven` with its signature.
async fn cancelled(world: &World, id: JobId, proven: bool) -> Verdict {
    let (_, attempts) = world.job(id).await;
    let closing = attempts.iter().rfind(|attempt| attempt.action.is_cancellation()).unwrap();
    let tx_hashes = attempts.iter().filter_map(|attempt| attempt.tx_hash).collect();
    findings::cancelled(id, closing.tx_hash.unwrap(), proven.then(|| findings::proof(tx_hashes)))
}

fn gas(attempt: &Attempt) -> (u64, u128) {
    match attempt.price {
        Some(Price::Gas { limit, fee }) => (limit, fee.ceiling()),
        other => panic!("{other:?} is no price of gas"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_every_node_refuses_are_replaced_at_the_same_nonce() {
    for message in [
        GAS,
        "exceeds block gas limit",
        "max priority fee per gas higher than max fee per gas",
        "max fee per gas less than block base fee",
        "transaction type not supported",
    ] {
        let (world, proxy) = behind_proxy().await;
        refuse(&proxy, message, 1);
        let (id, to) = world.pay_somebody().await;
        work_until_paid(&world, &to, message).await;
        let (job, attempts) = world.job(id).await;
        assert_eq!((job.state.name(), job.tries), ("confirming", 0), "{message}");
        assert_eq!(attempts.len(), 2, "{message}");
        assert_eq!(attempts[0].nonce, attempts[1].nonce, "{message}");
        assert!(gas(&attempts[1]).1 > gas(&attempts[0]).1, "{message}: the guard demands more");
        assert_eq!(payments_to(&world.anvil, &to).await.len(), 1, "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gas_limit_that_is_refused_is_not_offered_again() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, GAS, 1);
    let (id, to) = world.pay_somebody().await;
    work_until_paid(&world, &to, GAS).await;
    let (_, attempts) = world.job(id).await;
    let limits: Vec<u64> = attempts.iter().map(|attempt| gas(attempt).0).collect();
    assert!(limits[1] > limits[0], "{limits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_only_the_resend_loop_hears_is_answered_the_same_way() {
    let (world, proxy) = behind_proxy().await;
    proxy.rule(Rule::on("eth_sendRawTransaction", Fault::Refuse).times(1));
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    refuse(&proxy, GAS, u64::MAX);
    // Heard twice, each time by another replica: still one replacement.
    testkit::wait_for("the refusal is heard twice", LIMIT, || async {
        ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone())
            .tick()
            .await
            .unwrap();
        proxy.calls("eth_sendRawTransaction") >= 3
    })
    .await;
    assert!(world.job(id).await.0.state.request().is_some());
    proxy.replace_rules([]);
    work_until_paid(&world, &to, "after a resend").await;
    assert_eq!(world.job(id).await.1.len(), 2);
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_ever_takes_is_closed_at_its_nonce_and_paid_at_another_after_the_verdict() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, GAS, 3);
    let (id, to) = world.pay_somebody().await;
    work_until(&world, id, "never closed", |job| job.state.closing().is_some()).await;
    work_until_mined(&world, 1).await;
    let (job, attempts) = world.job(id).await;
    assert_eq!((job.state.name(), job.tries), ("confirming", 0), "nothing is decided before the verdict");
    assert!(attempts.iter().all(|attempt| attempt.nonce == Some(0)), "no other nonce before finality");
    let actions: Vec<&str> = attempts.iter().map(|attempt| attempt.action.name()).collect();
    assert_eq!(actions, ["pay", "pay", "pay", "cancel"]);
    assert!(payments_to(&world.anvil, &to).await.is_empty());
    let verdict = cancelled(&world, id, true).await;
    for _ in 0..2 {
        world.jobs.record_verdict(&verdict).await.unwrap();
    }
    let (job, _) = world.job(id).await;
    assert_eq!((job.state.name(), job.tries, job.nonce), ("pending", 1, None));
    work_until_paid(&world, &to, "at the next nonce").await;
    let (job, attempts) = world.job(id).await;
    assert_eq!((job.state.name(), job.nonce), ("confirming", Some(1)));
    assert!(attempts.last().unwrap().void_proof.is_some(), "the signer is shown the proof");
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_confirmations_signature_a_closed_nonce_is_the_end() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, GAS, 3);
    let (id, to) = world.pay_somebody().await;
    work_until_mined(&world, 1).await;
    world.jobs.record_verdict(&cancelled(&world, id, false).await).await.unwrap();
    let (job, _) = world.job(id).await;
    let State::Failed { reason } = job.state else { panic!("{job:#?}") };
    assert!(reason.contains("no node takes"), "{reason}");
    assert!(payments_to(&world.anvil, &to).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_that_nobody_takes_are_counted_and_the_last_one_fails() {
    let (world, proxy) = behind_proxy().await;
    let (id, to) = world.pay_somebody().await;
    for round in 0..5u64 {
        refuse(&proxy, GAS, 3);
        work_until_mined(&world, round + 1).await;
        world.jobs.record_verdict(&cancelled(&world, id, true).await).await.unwrap();
    }
    let (job, _) = world.job(id).await;
    assert_eq!((job.state.name(), job.tries), ("failed", 5));
    assert!(!job.reserved && payments_to(&world.anvil, &to).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_not_even_the_cancellation_is_taken_the_job_is_parked_with_its_nonce() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, "sender is in the black list", 1_000);
    let (id, to) = world.pay_somebody().await;
    let job = work_until(&world, id, "never parked", |job| job.state.name() == "parked").await;
    let State::Parked { reason, .. } = &job.state else { panic!("not parked") };
    assert!(reason.contains("black list"), "{reason}");
    assert_eq!(job.nonce, Some(0), "something signed may land at it");
    let (_, attempts) = world.job(id).await;
    assert!(attempts.len() <= 6, "capped: {}", attempts.len());
    assert!(attempts.iter().all(|attempt| attempt.nonce == Some(0)));
    assert!(world.jobs.retry(id).await.is_err(), "a transaction of it may still land");
    // A person mends the node and gives the job up: the nonce is closed after all.
    proxy.pass().await;
    world.jobs.cancel(id, "refused by every node".to_owned()).await.unwrap();
    work_until_mined(&world, 1).await;
    world.jobs.record_verdict(&cancelled(&world, id, true).await).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "failed", "given up by a person: not tried again");
    assert!(payments_to(&world.anvil, &to).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_gives_up_during_the_retreat_ends_the_job() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, GAS, 3);
    let (id, _) = world.pay_somebody().await;
    work_until_mined(&world, 1).await;
    world.jobs.cancel(id, "customer asked".to_owned()).await.unwrap();
    world.jobs.record_verdict(&cancelled(&world, id, true).await).await.unwrap();
    assert_eq!(world.job(id).await.0.state, State::Failed { reason: "customer asked".to_owned() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_lands_during_the_retreat_is_confirmed_and_not_paid_again() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, GAS, 3);
    let (id, to) = world.pay_somebody().await;
    work_until(&world, id, "never closed", |job| job.state.closing().is_some()).await;
    // One node took the first bytes after all, whatever it said.
    let (_, attempts) = world.job(id).await;
    let raw = format!("0x{}", hex::encode(attempts[0].raw.clone().unwrap()));
    world.anvil.call("eth_sendRawTransaction", serde_json::json!([raw])).await;
    let tx_hash = attempts[0].tx_hash.unwrap();
    world.jobs.record_verdict(&findings::settled(id, tx_hash)).await.unwrap();
    world.worker().tick().await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!(job.state, State::Confirmed { tx_hash });
    assert!(attempts[1..].iter().all(|attempt| attempt.status == AttemptStatus::Void));
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_the_signer_refuses_leads_to_the_cancellation() {
    let (world, proxy) = behind_proxy().await;
    refuse(&proxy, GAS, 1);
    world.signer.script([Script::Sign, Script::Refuse("PAYMENT_GUARD_TOO_MANY_BUMPS")]);
    let (id, to) = world.pay_somebody().await;
    work_until_mined(&world, 1).await;
    assert!(payments_to(&world.anvil, &to).await.is_empty());
    assert_eq!(world.job(id).await.0.state.name(), "confirming");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_at_any_step_of_a_replacement_there_is_one_payment_at_one_nonce() {
    for step in [
        "execution.after_claim",
        "execution.after_reserve",
        "execution.after_sign",
        "execution.after_persist",
        "execution.after_broadcast",
        "execution.after_confirm",
    ] {
        let (world, proxy) = behind_proxy().await;
        refuse(&proxy, GAS, 1);
        let (id, to) = world.pay_somebody().await;
        world.work_until(id, "confirming").await;
        let short = WorkerConfig { lease: Duration::from_millis(300), ..worker_config() };
        world.crash_at(step, short).await;
        work_until_paid(&world, &to, step).await;
        let (job, attempts) = world.job(id).await;
        assert_eq!(attempts.len(), 2, "{step}");
        assert!(attempts.iter().all(|attempt| attempt.nonce == Some(0)), "{step}");
        assert_eq!((job.nonce, world.signer.signatures()), (Some(0), 2), "{step}");
        assert_eq!(payments_to(&world.anvil, &to).await.len(), 1, "{step}");
        assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1, "{step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_that_the_signer_gave_to_another_payment_is_left_behind() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    // As after an older copy of the database was restored: the signer remembers payments at 0 and 1 that we do not know.
    world.signer.spend(0, 0);
    world.signer.spend(0, 1);
    let (first, _) = world.pay_somebody().await;
    let (second, _) = world.pay_somebody().await;
    world.work_until(first, "confirming").await;
    world.work_until(second, "confirming").await;
    let (one, attempts) = world.job(first).await;
    let (two, _) = world.job(second).await;
    let mut nonces = [one.nonce.unwrap(), two.nonce.unwrap()];
    nonces.sort_unstable();
    assert_eq!(nonces, [2, 3], "the lane goes on above");
    assert_eq!((one.tries, two.tries), (0, 0), "nothing is the matter with the payments");
    assert!(attempts.iter().rev().skip(1).all(|attempt| attempt.status == AttemptStatus::Void));
    let spent: Vec<i64> =
        sqlx::query_scalar("SELECT nonce FROM lane_nonces WHERE state = 'spent' ORDER BY nonce")
            .fetch_all(&world.pool)
            .await
            .unwrap();
    assert_eq!(spent, [0, 1]);
    let requests = world.signer.requests();
    let (third, _) = world.pay_somebody().await;
    world.work_until(third, "confirming").await;
    assert_eq!(world.signer.requests(), requests + 1, "the spent ones are not asked for again");
    let lane = world.jobs.lanes(None).await.unwrap().pop().unwrap();
    assert_eq!((lane.next_nonce, lane.spent_nonces), (5, vec![1, 0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filler_never_jams_on_a_spent_nonce() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let hash = chain::foreign_send(&world.anvil, KEYS[0].1, None).await;
    let (id, _) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    world.anvil.call("anvil_dropTransaction", serde_json::json!([hash])).await;
    world.signer.spend(0, 0);
    let mut lanes = execution::worker::lanes::LaneWorker::new(
        world.pool.clone(),
        bsc(),
        world.chains.clone(),
        Duration::ZERO,
    );
    lanes.tick().await.unwrap();
    let filler: Uuid =
        sqlx::query_scalar("SELECT id FROM jobs WHERE filler").fetch_one(&world.pool).await.unwrap();
    world.work_until(filler.into(), "failed").await;
    lanes.tick().await.unwrap();
    let fillers: i64 =
        sqlx::query_scalar("SELECT count(*) FROM jobs WHERE filler").fetch_one(&world.pool).await.unwrap();
    assert_eq!(fillers, 1, "no second filler for a nonce that cannot be filled");
}
