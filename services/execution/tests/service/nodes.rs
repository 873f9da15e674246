//! What nodes say, and how far one of them is believed: strange receivers, strange words, wrong counts, wrong heads.

use std::time::Duration;

use execution::job::State;
use execution::worker::lanes::LaneWorker;
use prost::Message as _;
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use serde_json::json;
use testkit::{Fault, FaultProxy, Mining, Rule};
use types::{JobId, RawAmount};
use worker::Tick as _;

use crate::chain::{self, ETHER, mined_nonce, payments_to};
use crate::signer::KEYS;
use crate::world::{LIMIT, World, bsc, ether, fresh_address, worker_config};

/// A world whose only node is behind a proxy.
async fn proxied() -> (World, FaultProxy) {
    let anvil = chain::start(Mining::Instant).await;
    let proxy = FaultProxy::http(anvil.address()).await;
    let url = proxy.url();
    let world = World::on(anvil, worker_config(), &url).await;
    world.hot_wallet(0).await;
    (world, proxy)
}

/// A world with two nodes, both of which must agree.
async fn two_nodes() -> (World, FaultProxy, FaultProxy) {
    let (world, first) = proxied().await;
    let second = FaultProxy::http(world.anvil.address()).await;
    let mut chain = world.chains.get(&bsc()).await.unwrap().unwrap().settings.clone();
    chain.nodes = vec![first.url(), second.url()];
    world.catalogue.put_chain(chain).await.unwrap();
    world.chains.reload().await.unwrap();
    (world, first, second)
}

/// One look at the nonces of an address, answered with a million for blocks and pool.
fn a_million() -> Rule {
    Rule::on("eth_getTransactionCount", Fault::RpcResult(json!("0xf4240"))).times(2)
}

async fn lane(world: &World) -> (i64, i64, i64) {
    sqlx::query_as("SELECT next_nonce, mined_seen, foreign_seen FROM lanes")
        .fetch_one(&world.pool)
        .await
        .unwrap()
}

async fn fillers_after_a_look(world: &World) -> i64 {
    let mut lanes = LaneWorker::new(world.pool.clone(), bsc(), world.chains.clone(), Duration::ZERO);
    lanes.tick().await.unwrap();
    lanes.tick().await.unwrap();
    sqlx::query_scalar("SELECT count(*) FROM jobs WHERE filler").fetch_one(&world.pool).await.unwrap()
}

async fn paid_at(world: &World) -> Option<u64> {
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    world.job(id).await.1[0].nonce
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_cannot_be_paid_fails_alone() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let trap = fresh_address();
    world.anvil.call("anvil_setCode", json!([trap, "0xfe"])).await;
    let poison = world.jobs.enqueue(world.withdrawal(&trap, ether(1))).await.unwrap();
    let (other, to) = world.pay_somebody().await;
    world.worker().tick().await.unwrap();
    let (job, _) = world.job(other).await;
    assert_eq!(job.state.name(), "confirming", "both were priced in one go: {job:#?}");
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    let failed = world.work_until(poison, "failed").await;
    assert_eq!((failed.tries, failed.nonce), (5, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_no_table_takes_lose_no_outcome() {
    let (world, proxy) = proxied().await;
    let error = |text: &str| Fault::RpcError { code: 3, message: text.to_owned() };
    proxy.rule(Rule::on("eth_estimateGas", error("execution reverted: no\0thing")));
    let (id, _) = world.pay_somebody().await;
    let failed = world.work_until(id, "failed").await;
    let State::Failed { reason } = failed.state else { panic!("not failed") };
    assert!(reason.contains("no thing"), "{reason}");
    proxy.pass().await;
    proxy.rule(Rule::on("eth_sendRawTransaction", error("who\0knows")).times(1));
    let (id, _) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    let (_, attempts) = world.job(id).await;
    assert_eq!(attempts[0].last_error.as_deref(), Some("unknown: who knows"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_that_counts_a_million_moves_no_lane_and_costs_no_fillers() {
    let (world, first, _second) = two_nodes().await;
    assert_eq!(paid_at(&world).await, Some(0));
    first.rule(a_million());
    assert_eq!(paid_at(&world).await, Some(1));
    first.rule(a_million());
    assert_eq!(fillers_after_a_look(&world).await, 0);
    let (next, mined, foreign) = lane(&world).await;
    assert!(next == 2 && mined <= 2 && foreign == 0, "{next} {mined} {foreign}");
    assert_eq!(paid_at(&world).await, Some(2));
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lies_while_the_other_is_away_is_not_remembered() {
    let (world, first, second) = two_nodes().await;
    assert_eq!(paid_at(&world).await, Some(0));
    second.refuse().await;
    first.rule(a_million());
    assert_eq!(paid_at(&world).await, Some(1), "a lane that exists goes on from its own counter");
    first.rule(a_million());
    assert_eq!(fillers_after_a_look(&world).await, 0);
    second.pass().await;
    assert_eq!(paid_at(&world).await, Some(2));
    let (next, mined, foreign) = lane(&world).await;
    assert!(next == 3 && mined <= 3 && foreign == 0, "{next} {mined} {foreign}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_lane_waits_until_enough_nodes_say_where_it_begins() {
    let (world, first, second) = two_nodes().await;
    second.refuse().await;
    first.rule(a_million());
    let (id, to) = world.pay_somebody().await;
    world.worker().tick().await.unwrap();
    let (waiting, attempts) = world.job(id).await;
    let blocked =
        matches!(&waiting.state, State::Pending { blocked: Some(why), .. } if why.contains("too few nodes"));
    assert!(blocked && attempts.is_empty(), "{waiting:#?}");
    second.pass().await;
    world.work_until(id, "confirming").await;
    assert_eq!(world.job(id).await.1[0].nonce, Some(0));
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_lane_learns_from_the_chain_anew() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    assert_eq!(paid_at(&world).await, Some(0));
    // As left behind by an only node that counted wrongly, once.
    sqlx::query("UPDATE lanes SET next_nonce = 1000000, mined_seen = 1000000, foreign_seen = 999999")
        .execute(&world.pool)
        .await
        .unwrap();
    chain::foreign_send(&world.anvil, KEYS[0].1, None).await;
    let resumed = world.jobs.resume_lane(&bsc(), KEYS[0].1).await.unwrap();
    assert_eq!(resumed.next_nonce, 1, "what was handed out stays handed out");
    assert_eq!(paid_at(&world).await, Some(2), "above what somebody else used");
    assert_eq!(lane(&world).await, (3, 2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_was_holds_balances_up_for_a_minute_at_most() {
    let world = World::new(Mining::Instant).await;
    let wallet = world.hot_wallet(0).await;
    let balance = async || -> String {
        world.wallets.refresh(&bsc(), &[]).await.unwrap();
        sqlx::query_scalar("SELECT balance_raw::text FROM wallet_holdings WHERE wallet_id = $1")
            .bind(wallet.id.as_uuid())
            .fetch_one(&world.pool)
            .await
            .unwrap()
    };
    let before = balance().await;
    sqlx::query("UPDATE wallet_holdings SET block_number = 1000000000").execute(&world.pool).await.unwrap();
    world.anvil.call("anvil_setBalance", json!([KEYS[0].1, "0x7"])).await;
    assert_eq!(balance().await, before, "a node that lags undoes nothing");
    sqlx::query("UPDATE wallet_holdings SET refreshed_at = now() - interval '61 s'")
        .execute(&world.pool)
        .await
        .unwrap();
    assert_eq!(balance().await, "7");
    world.anvil.call("anvil_setBalance", json!([KEYS[0].1, "0x8"])).await;
    assert_eq!(balance().await, "8", "and from then on as usual");
}

/// Looks at the job until it has waited once more than before.
async fn wait_once_more(world: &World, id: JobId) {
    let before = world.job(id).await.0.waits;
    let mut patience = testkit::Patience::of(LIMIT);
    while world.job(id).await.0.waits <= before {
        assert!(!patience.is_over(), "nobody looks at it");
        world.worker().tick().await.unwrap();
    }
}

/// Why intent was told that payments wait, in order.
async fn told_blocked(world: &World) -> Vec<String> {
    let told = world.messages("intent.RecordProgress").await;
    let decoded = told.iter().map(|told| intent::RecordProgressRequest::decode(told.as_slice()).unwrap());
    let blocked = decoded.filter_map(|request| match request.progress {
        Some(Progress::Blocked(blocked)) => Some(blocked.reason),
        _ => None,
    });
    blocked.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn prices_that_move_are_told_once() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    for gwei in [600u64, 700, 800] {
        let base = format!("{:#x}", gwei * 1_000_000_000);
        world.anvil.call("anvil_setNextBlockBaseFeePerGas", json!([base])).await;
        world.anvil.mine(1).await;
        wait_once_more(&world, id).await;
    }
    assert_eq!(told_blocked(&world).await, ["the fee is above the cap at the moment"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_has_promised_too_much_says_so_once() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let coins = |ether: u128| format!("{:#x}", ether * ETHER);
    world.anvil.call("anvil_setBalance", json!([KEYS[0].1, coins(10)])).await;
    let six = || world.withdrawal(&fresh_address(), RawAmount::from(6 * ETHER));
    let first = world.jobs.enqueue(six()).await.unwrap();
    world.work_until(first, "confirming").await;
    let second = world.jobs.enqueue(six()).await.unwrap();
    for balance in [10, 11, 9] {
        world.anvil.call("anvil_setBalance", json!([KEYS[0].1, coins(balance)])).await;
        wait_once_more(&world, second).await;
    }
    let told = told_blocked(&world).await;
    assert!(matches!(told.as_slice(), [why] if why.contains("too little")), "{told:?}");
}
