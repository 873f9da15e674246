//! The signer is away, slow, or refuses.

use anyhow::{Result, ensure};
use proto::execution::v1 as pb;
use testkit::FaultProxy;
use tests::judge::judge;
use tests::payments::PATIENCE;

use crate::support::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_is_away_or_silent_burns_no_nonce() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    let url = scene.stack.part("signer-gateway")?.url;
    let proxy = FaultProxy::tcp(url.trim_start_matches("http://")).await;
    let through = proxy.url();
    let settings = [
        ("BURSAR_EXECUTION__CLIENTS__SIGNER_GATEWAY__URL", through.as_str()),
        ("BURSAR_EXECUTION__SIGN_TIMEOUT_MS", "1000"),
    ];
    scene.execution_with(&settings).await?;
    let mut orders = Vec::new();
    // Down, then silent, then heard without an answer.
    proxy.refuse().await;
    orders.extend(scene.customer.order_some(3).await?);
    scene.customer.blocked(&orders[0].id).await?;
    proxy.hang().await;
    orders.extend(scene.customer.order_some(3).await?);
    scene.customer.blocked(&orders[4].id).await?;
    proxy.lose_replies().await;
    orders.extend(scene.customer.order_some(3).await?);
    scene.customer.blocked(&orders[7].id).await?;
    proxy.pass().await;
    scene.customer.all_completed(&orders).await?;
    judge(&scene.stack, &scene.customer, &orders).await?;
    scene.signed_once(&orders).await?;
    scene.done();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_the_signer_refuses_fails_alone_and_closes_its_nonce() -> Result<()> {
    let scene = Scene::new().await?;
    // The signer's own limit is below what intent and execution allow.
    let config = scene.stack.config("signer-gateway");
    let text = std::fs::read_to_string(&config)?;
    let limited = text.replace("1000000000000000000000000", "5000000000000000000");
    ensure!(text != limited, "the signer's limit is not where this test looks for it");
    std::fs::write(&config, &limited)?;
    scene.stack.replace("signer-gateway", &[])?;
    let poison = scene.customer.order("USDT", "6").await?;
    let good = scene.customer.order_some(4).await?;
    scene.customer.all_completed(&good).await?;
    let failed = scene.customer.ended(&poison.id, PATIENCE).await?;
    ensure!(failed.final_tx_hash.is_empty() && !failed.failure_reason.is_empty());
    let job = scene.job_when(&poison, "failed", |job| job.status() == pb::JobStatus::Failed).await?;
    ensure!(!job.error.is_empty(), "it does not say why");
    let ledger = judge(&scene.stack, &scene.customer, &good).await?;
    ledger.never_paid(std::slice::from_ref(&poison))?;
    std::fs::write(&config, text)?;
    scene.stack.replace("signer-gateway", &[])?;
    scene.done();
    Ok(())
}
