//! What is refused for good and goes on all the same: bytes that no node takes, approvals that expired before the signature.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use proto::execution::v1 as pb;
use testkit::Rule;
use tests::payments::PATIENCE;
use types::{Address, AddressFormat};

use crate::support::{SEND, Scene, refusal};

/// Tries follow one another at once. Bytes are hardly ever sent again meanwhile; refusals are counted by bytes, because a bump that is
/// stored and not sent yet may be sent by the resend loop too.
const HASTY: &[(&str, &str)] = &[
    ("BURSAR_EXECUTION__WORKERS__RESEND_AFTER_MS", "60000"),
    ("BURSAR_EXECUTION__RETRY__WITHDRAWAL__BASE_MS", "100"),
];

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_no_node_takes_are_replaced_or_closed_and_the_payment_is_made_once() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    scene.execution_with(HASTY).await?;
    let proxy = scene.behind_proxy().await?;
    // Refused once: other gas and a higher price at the same nonce.
    proxy.rule(Rule::on(SEND, refusal("intrinsic gas too low")).for_different(1));
    let replaced = scene.customer.order("BNB", "0.001").await?;
    scene.customer.completed(&replaced.id, PATIENCE).await?;
    let job = scene.job(&replaced).await?;
    ensure!(job.attempts.len() == 2 && job.attempts[0].nonce == job.attempts[1].nonce, "{job:#?}");
    // Refused as often as it is replaced: closed there, and paid at another nonce once that is final.
    proxy.rule(Rule::on(SEND, refusal("exceeds block gas limit")).for_different(3));
    let closed = scene.customer.order("USDT", "1.25").await?;
    scene.customer.completed(&closed.id, PATIENCE).await?;
    let job = scene.job(&closed).await?;
    let kinds: Vec<pb::AttemptKind> = job.attempts.iter().map(pb::Attempt::kind).collect();
    let (pay, cancel) = (pb::AttemptKind::Pay, pb::AttemptKind::Cancel);
    ensure!(kinds == [pay, pay, pay, cancel, pay], "{job:#?}");
    let nonces: Vec<Option<u64>> = job.attempts.iter().map(|attempt| attempt.nonce).collect();
    ensure!(nonces[..4].iter().all(|nonce| *nonce == nonces[0]) && nonces[4] > nonces[0], "{nonces:?}");
    ensure!(job.tries == 1, "{} tries", job.tries);
    ensure!(scene.stack.metric("execution", &["bursar_execution_rejected_transactions_total"]).await? >= 4.0);
    scene.judged(&[replaced, closed]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_that_expired_before_the_signature_are_renewed_and_the_payment_goes_on() -> Result<()> {
    let scene = Scene::new().await?;
    scene.stack.end("signer-gateway", Signal::SIGTERM)?;
    let destination = Address::from_body(AddressFormat::Evm, rand::random());
    let (order, created) = scene.customer.request("bsc", destination, ("BNB", "0.001"), None).await?;
    let expires = scene.customer.approve(&created, Duration::from_secs(5), None).await?;
    scene.customer.blocked(&order.id).await?;
    testkit::wait_for("the approvals to expire", PATIENCE, || async {
        chrono::Utc::now().timestamp() > expires
    })
    .await;
    scene.stack.start_again("signer-gateway", &[])?;
    testkit::wait_for("it to say that they have", PATIENCE, || async {
        let status = scene.customer.status(&order.id).await;
        status.is_ok_and(|found| found.blocked_reason.contains("must be renewed"))
    })
    .await;
    let job = scene.job(&order).await?;
    ensure!(job.attempts.iter().all(|attempt| attempt.tx_hash.is_empty()), "something was signed: {job:#?}");
    // Others are not held up by it.
    let other = scene.customer.order("BNB", "0.001").await?;
    scene.customer.completed(&other.id, PATIENCE).await?;
    scene.customer.approve(&created, Duration::from_secs(3_600), None).await?;
    scene.customer.completed(&order.id, PATIENCE).await?;
    scene.judged(&[order, other]).await
}
