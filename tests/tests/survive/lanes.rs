//! A wallet whose key somebody else uses too.

use anyhow::{Context, Result, ensure};
use proto::execution::v1 as ex;
use serde_json::{Value, json};
use testkit::{Fault, Rule};
use tests::judge::{Expected, judge_but};
use tests::ledger::Ledger;
use tests::payments::PATIENCE;

use crate::support::Scene;

const STRANGER: &str = "0x00000000000000000000000000000000005eed01";

/// Sends from the wallet past Bursar: the development node holds the same key.
async fn foreign(scene: &Scene, wallet: &str, nonce: Option<u64>) -> Result<String> {
    let mut transaction = json!({"from": wallet, "to": STRANGER, "value": "0x1", "gas": "0x5208"});
    if let Some(nonce) = nonce {
        transaction["nonce"] = json!(format!("{nonce:#x}"));
    }
    let receipt: Value = scene.node.send(transaction).await?;
    Ok(receipt["transactionHash"].as_str().context("a receipt names its transaction")?.to_lowercase())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_goes_on_above_nonces_that_somebody_else_used() -> Result<()> {
    let scene = Scene::new().await?;
    let mut expected = Expected::default();
    // The lanes are in use and know their next nonce before somebody takes it away.
    let mut orders = scene.customer.order_some(4).await?;
    scene.customer.all_completed(&orders).await?;
    let lanes = scene.lanes().await?;
    ensure!(!lanes.is_empty(), "nothing was sent yet");
    for lane in lanes {
        for _ in 0..2 {
            expected.foreign.insert(foreign(&scene, &lane.address, None).await?);
        }
    }
    orders.extend(scene.customer.order_some(8).await?);
    scene.customer.all_completed(&orders).await?;
    judge_but(&scene.stack, &scene.customer, &orders, &expected).await?;
    // Its stack is not handed on: other tests know nothing of these transactions.
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_transaction_at_our_nonce_halts_the_lane_and_the_payment_is_made_once() -> Result<()> {
    let scene = Scene::new().await?;
    let proxy = scene.behind_proxy().await?;
    // Signed and stored, and no node has it: the nonce is open when somebody else takes it.
    proxy.rule(Rule::on("eth_sendRawTransaction", Fault::Refuse));
    let order = scene.customer.order("BNB", "0.001").await?;
    let job = scene.sent(&order).await?;
    let nonce = job.attempts[0].nonce.context("it has a nonce")?;
    let mut expected = Expected::default();
    expected.foreign.insert(foreign(&scene, &job.from_address, Some(nonce)).await?);
    testkit::wait_for("the lane to halt", PATIENCE, || async {
        let lanes = scene.lanes().await.unwrap_or_default();
        lanes.iter().any(|lane| lane.address == job.from_address && !lane.halted_reason.is_empty())
    })
    .await;
    let told = scene.customer.status(&order.id).await?;
    ensure!(told.failure_reason.is_empty(), "called failed: {}", told.failure_reason);
    Ledger::read(&scene.stack.part("bsc")?.url).await?.never_paid(std::slice::from_ref(&order))?;
    proxy.pass().await;
    let mut operator = scene.execution.clone();
    let lane = ex::ResumeLaneRequest { chain: "bsc".to_owned(), address: job.from_address.clone() };
    operator.resume_lane(lane).await?;
    scene.customer.completed(&order.id, PATIENCE).await?;
    judge_but(&scene.stack, &scene.customer, std::slice::from_ref(&order), &expected).await?;
    let after = scene.job(&order).await?;
    ensure!(
        after.attempts.last().and_then(|attempt| attempt.nonce) != Some(nonce),
        "paid at the taken nonce"
    );
    Ok(())
}
