//! One fault after the other, each with what must come of it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use proto::execution::v1 as ex;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::json;
use testkit::Patience;
use tests::payments::{Customer, Ordered, again};
use tests::stack::Stack;
use tests::tron::{Devnet, all_ended, judge, token};
use tonic::Code;
use types::Address;

use crate::support::{SHORT_MS, order_some, quick_stack, stranger};

/// Answers to sent bytes, with or without the bytes having been taken.
const SENT: &[&str] = &[
    "accept_timeout",
    "accept_502",
    "truncated",
    "other_error",
    "timeout",
    "bad_gateway",
    "rate_limit",
    "lite",
    "p2p_failed",
    "lost",
    "forgotten",
    "busy",
    "no_connection",
    "unsolidified",
];
const SOON: Duration = Duration::from_secs(120);

struct Scene {
    stack: Stack,
    customer: Customer,
    devnet: Devnet,
    token: String,
    dice: StdRng,
    /// Payments that must have been made, or be proven never to be.
    orders: Vec<Ordered>,
}

impl Scene {
    async fn order(&mut self, count: usize) -> Result<Vec<Ordered>> {
        let orders = order_some(&self.customer, &mut self.dice, count).await?;
        self.orders.extend(orders.iter().cloned());
        Ok(orders)
    }

    async fn one(&mut self, asset: &str) -> Result<Ordered> {
        let to = stranger(&mut self.dice);
        let order = self.customer.order_to("tron", to, (asset, "3.5"), None).await?;
        self.orders.push(order.clone());
        Ok(order)
    }

    async fn job(&self, order: &Ordered) -> Result<ex::Job> {
        let client = ExecutionServiceClient::new(self.stack.client("execution", "auditor")?);
        let key = ex::get_job_request::Key::WithdrawalId(order.id.clone());
        let answer = again(|| {
            let (mut client, key) = (client.clone(), key.clone());
            async move { client.get_job(ex::GetJobRequest { key: Some(key) }).await }
        });
        answer.await?.job.context("the answer holds a job")
    }

    /// Waits until the job is as wanted; says how it is when that does not come. Asks seldom: what is waited for needs the
    /// machine more.
    async fn until(&self, order: &Ordered, what: &str, is: impl Fn(&ex::Job) -> bool) -> Result<ex::Job> {
        let mut patience = Patience::of(SOON);
        let mut pace = tokio::time::interval(Duration::from_millis(250));
        loop {
            pace.tick().await;
            // Unknown until it was handed over.
            let found = self.job(order).await;
            match found {
                Ok(job) if is(&job) => return Ok(job),
                found if patience.is_over() => bail!("waited for {what}: {found:?}"),
                _ => {}
            }
        }
    }

    async fn blocks(&self, include: bool) -> Result<()> {
        self.devnet.admin("mining", json!({ "include": include })).await.map(drop)
    }

    async fn mood(&self, behaviour: &str, to: &Address) -> Result<()> {
        let order = json!({ "token": self.token, "behaviour": behaviour, "to": to.to_string() });
        self.devnet.admin("behaviour", order).await.map(drop)
    }
}

fn is_sent(job: &ex::Job) -> bool {
    job.status() == ex::JobStatus::Confirming
}

/// Each answer a node may give to sent bytes, from every node.
async fn every_answer(scene: &mut Scene) -> Result<()> {
    for kind in SENT {
        // From one node and from both: the merged answer is another each time.
        scene.devnet.fault(None, kind, "broadcast", 1).await?;
        scene.devnet.fault(Some(0), kind, "broadcast", 1).await?;
        scene.order(2).await?;
    }
    all_ended(&scene.stack, SOON).await?;
    scene.devnet.admin("faults/clear", json!({})).await?;
    scene.customer.all_completed(&scene.orders.clone()).await
}

/// A fork takes it out of its block; the network puts it into another, or the same bytes are sent again. Blocks come by hand
/// meanwhile, so that it is surely not solid yet.
async fn another_height(scene: &mut Scene) -> Result<()> {
    for dropped in [false, true] {
        scene.devnet.admin("mining", json!({ "manual": true })).await?;
        let order = scene.one("TRX").await?;
        scene.until(&order, "it to be sent", is_sent).await?;
        let to = order.destination.to_string();
        let in_a_block = || async { scene.devnet.moved().await.is_ok_and(|moved| moved.contains_key(&to)) };
        testkit::wait_for("it to be in a block", SOON, || async {
            scene.devnet.admin("produce", json!({})).await.is_ok() && in_a_block().await
        })
        .await;
        let drop = if dropped { scene.devnet.newest(1).await? } else { Vec::new() };
        scene.devnet.admin("fork", json!({ "depth": 1, "include": false, "drop": drop })).await?;
        ensure!(!in_a_block().await, "the fork undid it");
        scene.devnet.admin("mining", json!({ "manual": false })).await?;
        scene.customer.completed(&order.id, SOON).await?;
    }
    Ok(())
}

/// A node that lags delays; its silence decides nothing.
async fn a_lagging_node(scene: &mut Scene) -> Result<()> {
    scene.devnet.admin("node", json!({ "node": 1, "lag": 4 })).await?;
    let orders = scene.order(2).await?;
    scene.customer.all_completed(&orders).await?;
    scene.devnet.heal(&scene.token).await
}

/// Included and failed: not paid, its fee recorded, and paid by another transaction after the first is proven dead.
async fn included_and_failed(scene: &mut Scene) -> Result<()> {
    scene.blocks(false).await?;
    let order = scene.one("USDT").await?;
    scene.until(&order, "it to be sent", is_sent).await?;
    scene.mood("revert", &order.destination).await?;
    scene.blocks(true).await?;
    let failed = scene.until(&order, "it to fail in a block", |job| job.tries > 0).await?;
    ensure!(failed.fee_paid.parse::<u64>()? > 0, "the fee of a failed call is recorded: {failed:?}");
    scene.mood("normal", &order.destination).await?;
    scene.customer.completed(&order.id, SOON).await?;
    // Confirmation tells intent and execution each by itself; who asks execution may be early.
    let job = scene.until(&order, "it to be settled", |job| job.status() == ex::JobStatus::Confirmed).await?;
    let ended = |status| job.attempts.iter().filter(|attempt| attempt.status() == status).count();
    ensure!(ended(ex::AttemptStatus::Settled) == 1, "{job:?}");
    ensure!(ended(ex::AttemptStatus::Reverted) >= 1, "{job:?}");
    let (paid, before) = (job.fee_paid.parse::<u64>()?, failed.fee_paid.parse::<u64>()?);
    ensure!(paid > before, "the fee that paid is recorded too: {paid} after {before}");
    Ok(())
}

/// Never mined within its window: signed again only after proof, and the old bytes are dead for ever.
async fn expired(scene: &mut Scene) -> Result<()> {
    scene.blocks(false).await?;
    let order = scene.one("TRX").await?;
    scene.until(&order, "it to be sent", is_sent).await?;
    let again = scene.until(&order, "its window to close", |job| job.attempts.len() > 1).await?;
    ensure!(again.attempts[0].status() == ex::AttemptStatus::Void, "{again:?}");
    scene.blocks(true).await?;
    scene.customer.completed(&order.id, SOON).await?;
    for attempt in &scene.job(&order).await?.attempts {
        let body = json!({ "transaction": hex::encode(&attempt.raw_transaction) });
        scene.devnet.wallet("broadcasthex", body).await?;
    }
    scene.devnet.solidify(2).await?;
    let moved = scene.devnet.moved().await?;
    let paid = moved.get(&order.destination.to_string()).map_or(0, Vec::len);
    ensure!(paid == 1, "old bytes came back, and it was paid {paid} times");
    Ok(())
}

/// Given up while its bytes may land: failed only when they are proven dead, and never paid after that.
async fn given_up(scene: &mut Scene) -> Result<()> {
    // No block comes by itself, so that its window is surely open when it is looked at.
    scene.devnet.admin("mining", json!({ "include": false, "manual": true })).await?;
    let order = scene.one("TRX").await?;
    let job = scene.until(&order, "it to be sent", is_sent).await?;
    let mut operator = ExecutionServiceClient::new(scene.stack.client("execution", "operator")?);
    let request = ex::CancelJobRequest { job_id: job.id.clone(), reason: "no longer wanted".to_owned() };
    operator.cancel_job(request).await?;
    let held = scene.job(&order).await?;
    ensure!(
        held.status() == ex::JobStatus::Confirming,
        "nothing is called failed while it can be paid: {held:?}"
    );
    scene.devnet.admin("mining", json!({ "manual": false })).await?;
    let told = scene.customer.ended(&order.id, SOON).await?;
    ensure!(told.status() == pb::WithdrawalStatus::Failed, "{told:?}");
    scene.blocks(true).await?;
    scene.devnet.solidify(3).await
}

/// The receipt says success and the token announced nothing: stopped for a person, and never paid again.
async fn without_a_log(scene: &mut Scene) -> Result<Vec<Ordered>> {
    let mut parked = Vec::new();
    for behaviour in ["moves_without_log", "returns_false"] {
        let to = stranger(&mut scene.dice);
        scene.mood(behaviour, &to).await?;
        let order = scene.customer.order_to("tron", to, ("USDT", "3.5"), None).await?;
        scene.until(&order, "it to be stopped", |job| job.status() == ex::JobStatus::Parked).await?;
        let told = scene.customer.blocked(&order.id).await?;
        ensure!(told.contains("stopped for a person"), "{told}");
        parked.push(order);
    }
    Ok(parked)
}

/// More than the wallets have: held and visible, and paid as soon as there is money.
async fn no_funds(scene: &mut Scene) -> Result<()> {
    let to = stranger(&mut scene.dice);
    let order = scene.customer.order_to("tron", to, ("TRX", "3000000"), None).await?;
    scene.orders.push(order.clone());
    testkit::wait_for("it to say what it waits for", SOON, || async {
        scene.customer.status(&order.id).await.is_ok_and(|told| !told.blocked_reason.is_empty())
    })
    .await;
    let wallet = scene.job(&scene.orders[0].clone()).await?.from_address;
    scene.devnet.admin("fund", json!({ "address": wallet, "sun": 4_000_000_000_000i64 })).await?;
    scene.customer.completed(&order.id, SOON).await.map(drop)
}

/// Destinations nobody should pay to, and amounts that do not exist: refused before anything is stored.
async fn bad_requests(scene: &Scene) -> Result<()> {
    let wallet = scene.job(&scene.orders[0]).await?.from_address;
    let good = scene.orders[0].destination.to_string();
    let mut swapped = good.clone().into_bytes();
    swapped.swap(10, 11);
    let swapped = if swapped == good.as_bytes() { format!("{good}1") } else { String::from_utf8(swapped)? };
    let cases = [
        ("TRX", "1", "T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb", "destination"),
        ("USDT", "1", scene.token.as_str(), "destination"),
        ("TRX", "1", wallet.as_str(), "destination"),
        ("TRX", "1", "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf", "destination"),
        ("TRX", "1", "417e5f4552091a69125d5dfcb7b8c2659029395bdf", "destination"),
        ("TRX", "1", swapped.as_str(), "destination"),
        ("TRX", "0.0000001", good.as_str(), "amount"),
        ("TRX", "0", good.as_str(), "amount"),
        ("TRX", "-1", good.as_str(), "amount"),
        ("TRX", "1e3", good.as_str(), "amount"),
    ];
    let mut client = IntentServiceClient::new(scene.stack.client("intent", "requester")?);
    for (asset, amount, destination, field) in cases {
        let request = pb::CreateWithdrawalRequest {
            idempotency_key: uuid::Uuid::now_v7().to_string(),
            user_id: uuid::Uuid::now_v7().to_string(),
            chain: "tron".to_owned(),
            asset: asset.to_owned(),
            amount: amount.to_owned(),
            destination: destination.to_owned(),
            ..Default::default()
        };
        let refused = client.create_withdrawal(request).await;
        let Err(status) = refused else { bail!("{amount} {asset} to {destination} was taken") };
        ensure!(status.code() == Code::InvalidArgument, "{destination} {amount}: {status:?}");
        ensure!(status.message().contains(field), "{destination} {amount}: {}", status.message());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_ends_as_it_must() -> Result<()> {
    let stack = quick_stack(SHORT_MS).await?;
    let (customer, devnet) = (Customer::of(&stack)?, Devnet::of(&stack)?);
    let token = token(&stack).await?;
    let dice = StdRng::seed_from_u64(11);
    let mut scene = Scene { stack, customer, devnet, token, dice, orders: Vec::new() };
    every_answer(&mut scene).await.context("answers to broadcasts")?;
    another_height(&mut scene).await.context("a fork")?;
    a_lagging_node(&mut scene).await.context("a lagging node")?;
    included_and_failed(&mut scene).await.context("included and failed")?;
    expired(&mut scene).await.context("a window that closed")?;
    given_up(&mut scene).await.context("given up")?;
    no_funds(&mut scene).await.context("no funds")?;
    bad_requests(&scene).await.context("bad requests")?;
    let parked = without_a_log(&mut scene).await.context("no log")?;
    let moved = scene.devnet.moved().await?;
    for order in &parked {
        let paid = moved.get(&order.destination.to_string()).map_or(0, Vec::len);
        ensure!(paid <= 1, "{} was paid {paid} times", order.id);
    }
    let known: Vec<Address> = parked.iter().map(|order| order.destination).collect();
    let tally = judge(&scene.stack, &scene.customer, &scene.devnet, &scene.orders, &known).await?;
    ensure!(tally.failed == 1, "{tally:?}");
    tests::report::say(format_args!("{tally:?}; double payments: 0"));
    Ok(())
}
