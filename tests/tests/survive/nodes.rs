//! The node between the services and the chain: replies lost, refusals, outages, nodes that disagree.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use proto::execution::v1 as ex;
use serde_json::{Value, json};
use testkit::{Fault, FaultProxy, Gate, Rule};
use tests::judge::judge;
use tests::load::{BOTH, under_load};
use tests::payments::{Ordered, PATIENCE};
use tests::pool;

use crate::support::{IMPATIENT, PACE, Scene};

const SEND: &str = "eth_sendRawTransaction";

fn refusal(message: &str) -> Fault {
    Fault::RpcError { code: -32000, message: message.to_owned() }
}

/// The different bytes that were ever sent.
fn sent(proxy: &FaultProxy) -> BTreeSet<String> {
    proxy.seen(SEND).iter().map(|params| params[0].as_str().unwrap_or_default().to_owned()).collect()
}

/// Each of these has one attempt: whatever happened, nothing was signed again.
async fn signed_once(scene: &Scene, orders: &[Ordered]) -> Result<()> {
    for order in orders {
        let job = scene.job(order).await?;
        ensure!(job.attempts.len() == 1, "{} was signed {} times", job.id, job.attempts.len());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_a_payment_and_loses_the_reply_gets_the_same_bytes_again() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    scene.execution_with(IMPATIENT).await?;
    let proxy = scene.behind_proxy().await?;
    proxy.rule(Rule::on(SEND, Fault::ReplyLost).times(6));
    // Known already, and mined already, in the words of two kinds of nodes: each is success or a look at the chain.
    proxy.rule(Rule::on(SEND, refusal("already known")).times(2));
    proxy.rule(Rule::on(SEND, refusal("nonce too low")).times(2));
    proxy.rule(Rule::on(SEND, Fault::Answer { status: 503, body: "overloaded".to_owned() }).times(2));
    let paid = scene.customer.order_some(12).await?;
    scene.customer.all_completed(&paid).await?;
    judge(&scene.stack, &scene.customer, &paid).await?;
    signed_once(&scene, &paid).await?;
    ensure!(
        sent(&proxy).len() == paid.len(),
        "{} payments, {} different bytes",
        paid.len(),
        sent(&proxy).len()
    );
    ensure!(proxy.calls(SEND) > 12, "nothing was sent again");
    scene.done();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_and_hash_are_stored_before_they_are_sent() -> Result<()> {
    let scene = Scene::new().await?;
    let proxy = scene.behind_proxy().await?;
    let hold = Gate::new();
    proxy.rule(Rule::on(SEND, Fault::Held(hold.clone())));
    let orders = scene.customer.order_some(4).await?;
    hold.caught(1).await;
    for raw in sent(&proxy) {
        let mut stored = Vec::new();
        for order in &orders {
            // Not all of them need to have reached execution yet.
            let attempts = scene.job(order).await.map(|job| job.attempts).unwrap_or_default();
            stored.extend(attempts.into_iter().map(|attempt| attempt.raw_transaction));
        }
        let raw = hex::decode(raw.trim_start_matches("0x"))?;
        ensure!(stored.contains(&raw), "bytes were sent that are not in the database");
    }
    proxy.pass().await;
    scene.customer.all_completed(&orders).await?;
    judge(&scene.stack, &scene.customer, &orders).await?;
    scene.done();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_down_for_a_while_costs_no_nonce_and_no_payment() -> Result<()> {
    let scene = Scene::new().await?;
    let proxy = scene.behind_proxy().await?;
    proxy.refuse().await;
    let mut orders = scene.customer.order_some(4).await?;
    scene.customer.blocked(&orders[0].id).await?;
    scene.no_nonce_taken().await?;
    // And then it comes and goes.
    let flapping = async {
        proxy.pass().await;
        for _ in 0..3 {
            let order = scene.customer.order("BNB", "0.001").await?;
            scene.job_when(&order, "taken", |job| !job.attempts.is_empty()).await?;
            proxy.hang().await;
            scene.blocks_pass(2).await?;
            proxy.pass().await;
            proxy.cut().await;
            orders.push(order);
        }
        Ok(())
    };
    let ((), mut paid) = under_load(&scene.customer, BOTH, PACE, flapping).await?;
    paid.extend(orders);
    scene.customer.all_completed(&paid).await?;
    judge(&scene.stack, &scene.customer, &paid).await?;
    scene.done();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pool_dropped_is_sent_again_unchanged() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    scene.execution_with(IMPATIENT).await?;
    let proxy = scene.behind_proxy().await?;
    scene.node.stop_mining().await?;
    let orders = scene.customer.order_some(4).await?;
    for order in &orders {
        scene.sent(order).await?;
    }
    let calls = proxy.calls(SEND);
    scene.node.call("anvil_dropAllTransactions", json!([])).await?;
    testkit::wait_for("the same bytes to be sent again", PATIENCE, || async {
        proxy.calls(SEND) >= calls + 4
    })
    .await;
    scene.node.resume_mining().await?;
    scene.customer.all_completed(&orders).await?;
    judge(&scene.stack, &scene.customer, &orders).await?;
    signed_once(&scene, &orders).await?;
    ensure!(sent(&proxy).len() == orders.len(), "other bytes were sent");
    scene.done();
    Ok(())
}

/// Every attempt of a job is at one nonce.
fn at_one_nonce(job: &ex::Job) -> Result<()> {
    let nonces: BTreeSet<Option<u64>> = job.attempts.iter().map(|attempt| attempt.nonce).collect();
    ensure!(nonces.len() == 1, "{} was signed at {nonces:?}", job.id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_underpriced_payment_is_raised_at_its_nonce_and_paid_once() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    let proxy = scene.behind_proxy().await?;
    proxy.rule(Rule::on(SEND, refusal("transaction underpriced")).times(1));
    let order = scene.customer.order("BNB", "0.001").await?;
    scene.customer.completed(&order.id, PATIENCE).await?;
    let orders = [order];
    judge(&scene.stack, &scene.customer, &orders).await?;
    let job = scene.job(&orders[0]).await?;
    ensure!(job.attempts.len() == 2, "{} attempts", job.attempts.len());
    at_one_nonce(&job)?;
    scene.done();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_original_that_is_mined_after_its_replacement_was_signed_counts() -> Result<()> {
    let scene = Scene::new().await?;
    let proxy = scene.behind_proxy().await?;
    scene.node.stop_mining().await?;
    pool::change_chain(&scene.stack, |chain| chain.bump_after_seconds = 1).await?;
    let order = scene.customer.order("USDT", "1.25").await?;
    let original = scene.sent(&order).await?.attempts[0].tx_hash.clone();
    // The replacement is signed and stored, and every node is deaf to it.
    proxy.rule(Rule::on(SEND, Fault::Refuse));
    scene
        .job_when(&order, "raised", |job| job.attempts.len() > 1 && !job.attempts[1].tx_hash.is_empty())
        .await?;
    scene.node.resume_mining().await?;
    let completed = scene.customer.completed(&order.id, PATIENCE).await?;
    ensure!(
        completed.final_tx_hash == original,
        "{} was not the one that was mined",
        completed.final_tx_hash
    );
    pool::change_chain(&scene.stack, |chain| chain.bump_after_seconds = pool::BUMP_AFTER_SECONDS).await?;
    proxy.pass().await;
    judge(&scene.stack, &scene.customer, std::slice::from_ref(&order)).await?;
    at_one_nonce(&scene.job(&order).await?)?;
    scene.done();
    Ok(())
}

/// The receipt of a job's only transaction, once it is in a block.
async fn receipt(scene: &Scene, job: &ex::Job) -> Result<Value> {
    let hash = job.attempts.first().context("it was sent")?.tx_hash.clone();
    let found = testkit::wait_for_value("the payment's receipt", PATIENCE, || async {
        let receipt = scene.node.call("eth_getTransactionReceipt", json!([hash])).await.ok()?;
        (!receipt.is_null()).then_some(receipt)
    });
    Ok(found.await)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_disagree_about_a_receipt_delay_the_verdict() -> Result<()> {
    const RECEIPT: &str = "eth_getTransactionReceipt";
    let scene = Scene::new().await?;
    let proxy = FaultProxy::http(scene.node.address()).await;
    let honest = scene.stack.part("bsc")?.url;
    proxy.rule(Rule::on(RECEIPT, Fault::RpcResult(Value::Null)));
    pool::nodes(&scene.stack, vec![honest, proxy.url()]).await?;
    testkit::wait_for("the second node to be asked", PATIENCE, || async {
        proxy.calls("eth_getBlockByNumber") > 0
    })
    .await;
    let order = scene.customer.order("BNB", "0.001").await?;
    let job = scene.sent(&order).await?;
    // One node knows nothing of it.
    let late = |watch: &proto::confirmation::v1::Watch| !watch.delayed_reason.is_empty();
    scene.watch_when(&job, "late", late).await?;
    // Then it says that the payment failed, in a receipt that is right in all other respects.
    let mut forged = receipt(&scene, &job).await?;
    forged["status"] = json!("0x0");
    proxy.replace_rules([Rule::on(RECEIPT, Fault::RpcResult(forged))]);
    let asked = proxy.calls(RECEIPT);
    testkit::wait_for("the forged receipt to be read", PATIENCE, || async {
        proxy.calls(RECEIPT) > asked + 2
    })
    .await;
    let told = scene.customer.status(&order.id).await?;
    ensure!(told.final_tx_hash.is_empty() && told.failure_reason.is_empty(), "one node's word decided");
    scene.watch_when(&job, "late", late).await?;
    proxy.pass().await;
    scene.customer.completed(&order.id, PATIENCE).await?;
    judge(&scene.stack, &scene.customer, std::slice::from_ref(&order)).await?;
    scene.done();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_without_gas_or_funds_holds_its_payments_and_goes_on_when_funded() -> Result<()> {
    let scene = Scene::new().await?;
    let wallets = scene.wallets().await?;
    let mut held = Vec::new();
    for wallet in &wallets {
        held.push(scene.node.call("eth_getBalance", json!([wallet, "latest"])).await?);
        scene.node.call("anvil_setBalance", json!([wallet, "0x0"])).await?;
    }
    let token = scene.customer.order("USDT", "1.25").await?;
    let native = scene.customer.order("BNB", "0.001").await?;
    for order in [&token, &native] {
        scene.customer.blocked(&order.id).await?;
    }
    scene.no_nonce_taken().await?;
    for (wallet, balance) in wallets.iter().zip(held) {
        scene.node.call("anvil_setBalance", json!([wallet, balance])).await?;
    }
    let orders = [token, native];
    scene.customer.all_completed(&orders).await?;
    judge(&scene.stack, &scene.customer, &orders).await?;
    scene.done();
    Ok(())
}
