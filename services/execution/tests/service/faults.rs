//! What goes wrong outside: the signer, the nodes, the money.

use execution::job::State;
use execution::worker::resend::ResendWorker;
use testkit::{Fault, FaultProxy, Mining, Rule};
use worker::Tick as _;

use crate::chain::{self, mined_nonce, payments_to};
use crate::signer::{KEYS, Script};
use crate::world::{World, bsc, ether, worker_config};

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_the_signer_leads_to_the_same_bytes() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.script([Script::LoseReply, Script::LoseReply]);
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!((world.signer.signatures(), world.signer.requests()), (1, 3));
    assert_eq!(job.tries, 0, "an outage costs no try");
    assert_eq!(world.job(id).await.1.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_is_away_binds_no_further_nonces() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.always(Some(Script::Away));
    let (first, _) = world.pay_somebody().await;
    world.worker().tick().await.unwrap();
    let (second, _) = world.pay_somebody().await;
    world.worker().tick().await.unwrap();
    assert!(world.job(first).await.0.nonce.is_some(), "the batch it hit keeps its nonce");
    let (waiting, attempts) = world.job(second).await;
    assert!(waiting.nonce.is_none() && attempts.is_empty());
    assert!(matches!(waiting.state, State::Pending { blocked: Some(_), .. }));
    world.signer.always(None);
    world.work_until(first, "confirming").await;
    world.work_until(second, "confirming").await;
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_signer_is_asked_again_with_the_same_request() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.script([Script::Hang]);
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!(world.signer.signatures(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_payment_is_cancelled_at_its_nonce_and_not_called_failed_before() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.script([Script::Refuse("APPROVALS_SIGNATURE")]);
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    assert!(job.state.closing().is_some());
    let (_, attempts) = world.job(id).await;
    assert!(attempts.last().unwrap().action.is_cancellation());
    assert!(payments_to(&world.anvil, &to).await.is_empty());
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1, "the nonce is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_refuses_everything_parks_the_job_and_the_lane_goes_on() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.script([Script::Refuse("LIMIT_TRANSACTION"), Script::Refuse("SOURCE_ADDRESS")]);
    let (poison, nobody) = world.pay_somebody().await;
    world.work_until(poison, "parked").await;
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert!(payments_to(&world.anvil, &nobody).await.is_empty());
    assert_eq!(world.job(id).await.1[0].nonce, Some(0), "the freed nonce was used");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_over_time_delays_one_payment_and_holds_up_no_other() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.script([Script::LimitWindow]);
    let (limited, first) = world.pay_somebody().await;
    world.worker().tick().await.unwrap();
    let (waiting, _) = world.job(limited).await;
    assert!(waiting.nonce.is_none(), "the nonce does not wait with it");
    let (id, _) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    world.work_until(limited, "confirming").await;
    assert_eq!(payments_to(&world.anvil, &first).await.len(), 1);
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_pay_somebody_else_are_never_sent() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.script([Script::Betray]);
    let (id, _) = world.pay_somebody().await;
    let job = world.work_until(id, "parked").await;
    let State::Parked { reason, .. } = job.state else { panic!("not parked") };
    assert!(reason.contains("not what was requested"), "{reason}");
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 0);
    let (_, attempts) = world.job(id).await;
    assert!(attempts[0].raw.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_the_node_is_not_a_second_payment() {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    world.hot_wallet(0).await;
    proxy.rule(Rule::on("eth_sendRawTransaction", Fault::ReplyLost).times(1));
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    let mut resend = ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone());
    for _ in 0..3 {
        resend.tick().await.unwrap();
    }
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1);
    assert_eq!(world.signer.signatures(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_no_node_took_are_sent_again_unchanged() {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    world.hot_wallet(0).await;
    proxy.rule(Rule::on("eth_sendRawTransaction", Fault::Refuse).times(2));
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    assert!(payments_to(&world.anvil, &to).await.is_empty());
    let mut resend = ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone());
    let mut patience = testkit::Patience::of(crate::world::LIMIT);
    while payments_to(&world.anvil, &to).await.is_empty() {
        assert!(!patience.is_over(), "the payment never lands");
        resend.tick().await.unwrap();
    }
    assert_eq!(world.signer.signatures(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_down_costs_no_try_and_no_nonce() {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    proxy.refuse().await;
    world.worker().tick().await.unwrap();
    let (waiting, attempts) = world.job(id).await;
    assert!(matches!(waiting.state, State::Pending { blocked: Some(_), .. }), "{waiting:#?}");
    assert!(waiting.tries == 0 && waiting.nonce.is_none() && attempts.is_empty());
    proxy.pass().await;
    let paid = world.work_until(id, "confirming").await;
    assert!(paid.blocked.is_none());
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_without_gas_holds_the_queue_without_taking_a_nonce() {
    let world = World::new(Mining::Instant).await;
    let contract = chain::token(&world.anvil, KEYS[0].1, 1_000_000).await;
    world.catalogue.put_asset(world.asset("USDT", &contract)).await.unwrap();
    world.hot_wallet(0).await;
    world.anvil.call("anvil_setBalance", serde_json::json!([KEYS[0].1, "0x0"])).await;
    let to = crate::world::fresh_address();
    let mut new = world.withdrawal(&to, types::RawAmount::from(5u64));
    new.asset = "USDT".parse().unwrap();
    let id = world.jobs.enqueue(new).await.unwrap();
    world.worker().tick().await.unwrap();
    let (waiting, _) = world.job(id).await;
    assert!(matches!(waiting.state, State::Pending { blocked: Some(_), .. }), "{waiting:#?}");
    assert!(waiting.nonce.is_none() && waiting.tries == 0);
    let funded = format!("{:#x}", ether(100).to_u128().unwrap());
    world.anvil.call("anvil_setBalance", serde_json::json!([KEYS[0].1, funded])).await;
    world.work_until(id, "confirming").await;
    assert_eq!(chain::token_balance(&world.anvil, &contract, &to).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_whose_tokens_are_gone_holds_its_payments_without_a_try_and_goes_on_when_funded() {
    let world = World::new(Mining::Instant).await;
    let contract = chain::token(&world.anvil, KEYS[0].1, 1_000_000).await;
    world.catalogue.put_asset(world.asset("USDT", &contract)).await.unwrap();
    world.hot_wallet(0).await;
    let to = crate::world::fresh_address();
    let mut new = world.withdrawal(&to, types::RawAmount::from(600_000u64));
    new.asset = "USDT".parse().unwrap();
    let id = world.jobs.enqueue(new).await.unwrap();
    // Half of what it held goes elsewhere, and nobody here was told.
    chain::take_tokens(&world.anvil, &contract, KEYS[0].1, 500_000).await;
    let mut worker = world.worker();
    for _ in 0..6 {
        sqlx::query("UPDATE job_ready SET due_at = now()").execute(&world.pool).await.unwrap();
        worker.tick().await.unwrap();
        let (waiting, attempts) = world.job(id).await;
        assert!(matches!(waiting.state, State::Pending { blocked: Some(_), .. }), "{waiting:#?}");
        assert!(waiting.tries == 0 && waiting.nonce.is_none() && attempts.is_empty(), "{waiting:#?}");
    }
    chain::mint(&world.anvil, &contract, KEYS[0].1, 500_000).await;
    world.work_until(id, "confirming").await;
    assert_eq!(chain::token_balance(&world.anvil, &contract, &to).await, 600_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_would_revert_is_tried_five_times_and_fails_without_a_nonce() {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    let contract = chain::token(&world.anvil, KEYS[0].1, 1_000_000).await;
    world.catalogue.put_asset(world.asset("USDT", &contract)).await.unwrap();
    world.hot_wallet(0).await;
    let paused = Fault::RpcError { code: 3, message: "execution reverted: paused".to_owned() };
    proxy.rule(Rule::on("eth_estimateGas", paused));
    let mut new = world.withdrawal(&crate::world::fresh_address(), types::RawAmount::from(5u64));
    new.asset = "USDT".parse().unwrap();
    let id = world.jobs.enqueue(new).await.unwrap();
    let failed = world.work_until(id, "failed").await;
    assert_eq!(failed.tries, 5);
    assert_eq!(world.signer.requests(), 0);
    assert!(!failed.reserved);
}

/// A world whose node answers the next broadcast with an error of its own.
async fn refusing(message: &str) -> (World, FaultProxy) {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    world.hot_wallet(0).await;
    let upset = Fault::RpcError { code: -32000, message: message.to_owned() };
    proxy.rule(Rule::on("eth_sendRawTransaction", upset).times(1));
    (world, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_underpriced_transaction_is_bumped_at_the_same_nonce() {
    for message in ["transaction underpriced", "replacement transaction underpriced"] {
        let (world, _proxy) = refusing(message).await;
        let (id, to) = world.pay_somebody().await;
        let mut worker = world.worker();
        let mut patience = testkit::Patience::of(crate::world::LIMIT);
        while payments_to(&world.anvil, &to).await.is_empty() {
            assert!(!patience.is_over(), "{message}: never paid");
            worker.tick().await.unwrap();
        }
        let (job, attempts) = world.job(id).await;
        assert_eq!(attempts.len(), 2, "{message}");
        assert_eq!(attempts[0].nonce, attempts[1].nonce, "{message}");
        assert_eq!(job.state.name(), "confirming", "{message}");
        assert_eq!(payments_to(&world.anvil, &to).await.len(), 1, "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_success_and_a_used_nonce_waits_for_the_verdict() {
    for message in ["already known", "transaction already imported", "nonce too low"] {
        let (world, _proxy) = refusing(message).await;
        let (id, _) = world.pay_somebody().await;
        world.work_until(id, "confirming").await;
        let (job, attempts) = world.job(id).await;
        assert_eq!((attempts.len(), job.tries), (1, 0), "{message}");
        assert_eq!(world.signer.signatures(), 1, "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_runs_dry_shows_it_and_goes_on_with_the_same_bytes() {
    let (world, _proxy) = refusing("insufficient funds for gas * price + value").await;
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    assert!(job.blocked.is_some(), "visible");
    let mut resend = ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone());
    let mut patience = testkit::Patience::of(crate::world::LIMIT);
    while world.job(id).await.0.blocked.is_some() {
        assert!(!patience.is_over(), "blocked for ever");
        resend.tick().await.unwrap();
    }
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!((world.signer.signatures(), world.job(id).await.1.len()), (1, 1));
}
