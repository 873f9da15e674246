//! The chain changes its mind.

use anyhow::{Result, ensure};
use proto::confirmation::v1 as confirmation_pb;
use proto::execution::v1 as execution_pb;
use serde_json::json;
use tests::ledger::Ledger;
use tests::payments::PATIENCE;

use crate::support::{IMPATIENT, Scene};

fn included(watch: &confirmation_pb::Watch) -> bool {
    watch.status() == confirmation_pb::WatchStatus::Included
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_a_reorganisation_drops_or_moves_is_paid_once() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    scene.execution_with(IMPATIENT).await?;
    scene.node.stop_mining().await?;
    let dropped = scene.customer.order("BNB", "0.001").await?;
    let job = scene.sent(&dropped).await?;
    scene.node.mine(1).await?;
    let first = scene.watch_when(&job, "included", included).await?;
    // Gone from the chain, and not in the pool either: only whoever has the bytes can bring it back.
    scene.node.call("anvil_reorg", json!([1, []])).await?;
    scene
        .watch_when(&job, "waiting again", |watch| watch.status() == confirmation_pb::WatchStatus::Waiting)
        .await?;
    testkit::wait_for("its bytes to be in the pool again", PATIENCE, || async {
        let pool = scene.node.call("txpool_status", json!([])).await.unwrap_or_default();
        pool["pending"] != "0x0"
    })
    .await;
    scene.node.mine(4).await?;
    let done = scene.customer.completed(&dropped.id, PATIENCE).await?;
    ensure!(done.final_tx_hash == first.tx_hash, "other bytes were paid");

    // And one that comes to lie in another block.
    let moved = scene.customer.order("USDT", "1.25").await?;
    let job = scene.sent(&moved).await?;
    scene.node.mine(2).await?;
    let first = scene.watch_when(&job, "included", included).await?;
    let raw = format!("0x{}", hex::encode(&job.attempts[0].raw_transaction));
    scene.node.call("anvil_reorg", json!([2, [[raw, 1]]])).await?;
    let elsewhere = |watch: &confirmation_pb::Watch| included(watch) && watch.block_hash != first.block_hash;
    let second = scene.watch_when(&job, "included elsewhere", elsewhere).await?;
    ensure!(second.block_number == first.block_number + 1, "it is in block {}", second.block_number);
    scene.node.mine(4).await?;
    let done = scene.customer.completed(&moved.id, PATIENCE).await?;
    ensure!(done.final_block == second.block_number, "the depth was counted from another block");
    scene.node.resume_mining().await?;
    scene.judged(&[dropped, moved]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reorganisation_beyond_the_depth_halts_the_chain_and_pays_nothing_again() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    scene.execution_with(IMPATIENT).await?;
    scene.node.stop_mining().await?;
    let order = scene.customer.order("BNB", "0.001").await?;
    let job = scene.sent(&order).await?;
    scene.node.mine(5).await?;
    scene.customer.completed(&order.id, PATIENCE).await?;
    scene.job_when(&order, "confirmed", |job| job.status() == execution_pb::JobStatus::Confirmed).await?;
    scene.node.call("anvil_reorg", json!([5, []])).await?;
    scene.node.mine(8).await?;
    let halted = testkit::wait_for_value("confirmation to halt the chain", PATIENCE, || async {
        let mut client = scene.confirmation.clone();
        let heads = client.list_heads(confirmation_pb::ListHeadsRequest {}).await.ok()?.into_inner().heads;
        heads.into_iter().find(|head| !head.halted_reason.is_empty())
    });
    ensure!(halted.await.chain == "bsc");
    let parked =
        scene.job_when(&order, "for a person", |job| job.status() == execution_pb::JobStatus::Parked).await?;
    ensure!(!parked.error.is_empty(), "it does not say why");
    // Long enough for everything that might send it again.
    scene.node.mine(8).await?;
    scene.node.resume_mining().await?;
    scene.blocks_pass(4).await?;
    Ledger::read(&scene.stack.part("bsc")?.url).await?.never_paid(std::slice::from_ref(&order))?;
    ensure!(scene.job(&order).await?.attempts.len() == job.attempts.len(), "it was signed again");
    // Its stack is not handed on: a person would have to look first.
    Ok(())
}
