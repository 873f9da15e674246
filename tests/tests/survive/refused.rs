//! What is refused for good and goes on all the same: bytes that no node takes, approvals that expired before the signature.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ed25519_dalek::{Signer as _, SigningKey};
use nix::sys::signal::Signal;
use proto::execution::v1 as ex;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use testkit::{Fault, Rule};
use tests::judge::judge;
use tests::payments::{Ordered, PATIENCE, again};
use types::{Address, AddressFormat, PaymentDigest, approval_message};

use crate::support::Scene;

const SEND: &str = "eth_sendRawTransaction";
/// Tries follow one another at once; bytes are not sent again meanwhile, which would use up refusals that are meant for new ones.
const HASTY: &[(&str, &str)] = &[
    ("BURSAR_EXECUTION__WORKERS__RESEND_AFTER_MS", "60000"),
    ("BURSAR_EXECUTION__RETRY__WITHDRAWAL__BASE_MS", "100"),
];

fn refusal(message: &str) -> Fault {
    Fault::RpcError { code: -32000, message: message.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_no_node_takes_are_replaced_or_closed_and_the_payment_is_made_once() -> Result<()> {
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    scene.execution_with(HASTY).await?;
    let proxy = scene.behind_proxy().await?;
    // Refused once: other gas and a higher price at the same nonce.
    proxy.rule(Rule::on(SEND, refusal("intrinsic gas too low")).times(1));
    let replaced = scene.customer.order("BNB", "0.001").await?;
    scene.customer.completed(&replaced.id, PATIENCE).await?;
    let job = scene.job(&replaced).await?;
    ensure!(job.attempts.len() == 2 && job.attempts[0].nonce == job.attempts[1].nonce, "{job:#?}");
    // Refused as often as it is replaced: closed there, and paid at another nonce once that is final.
    proxy.rule(Rule::on(SEND, refusal("exceeds block gas limit")).times(3));
    let closed = scene.customer.order("USDT", "1.25").await?;
    scene.customer.completed(&closed.id, PATIENCE).await?;
    let job = scene.job(&closed).await?;
    let kinds: Vec<ex::AttemptKind> = job.attempts.iter().map(ex::Attempt::kind).collect();
    let (pay, cancel) = (ex::AttemptKind::Pay, ex::AttemptKind::Cancel);
    ensure!(kinds == [pay, pay, pay, cancel, pay], "{job:#?}");
    let nonces: Vec<Option<u64>> = job.attempts.iter().map(|attempt| attempt.nonce).collect();
    ensure!(nonces[..4].iter().all(|nonce| *nonce == nonces[0]) && nonces[4] > nonces[0], "{nonces:?}");
    ensure!(job.tries == 1, "{} tries", job.tries);
    ensure!(scene.stack.metric("execution", &["bursar_execution_rejected_transactions_total"]).await? >= 4.0);
    judge(&scene.stack, &scene.customer, &[replaced, closed]).await?;
    scene.done();
    Ok(())
}

/// The approvals of both approvers, valid for so long.
async fn approve(scene: &Scene, withdrawal: &pb::Withdrawal, valid: Duration) -> Result<i64> {
    let expires = chrono::Utc::now().timestamp() + i64::try_from(valid.as_secs())?;
    let digest: PaymentDigest = withdrawal.payment_digest.parse()?;
    for name in ["approver-1", "approver-2"] {
        let key = SigningKey::from_bytes(&scene.stack.approver_seed(name)?);
        let request = pb::ApproveWithdrawalRequest {
            id: withdrawal.id.clone(),
            signature: key.sign(&approval_message(digest, name, expires)).to_bytes().to_vec(),
            expires_at: Some(prost_types::Timestamp { seconds: expires, nanos: 0 }),
        };
        let client = IntentServiceClient::new(scene.stack.client("intent", name)?);
        again(|| {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.approve_withdrawal(request).await }
        })
        .await?;
    }
    Ok(expires)
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_that_expired_before_the_signature_are_renewed_and_the_payment_goes_on() -> Result<()> {
    let scene = Scene::new().await?;
    scene.stack.end("signer-gateway", Signal::SIGTERM)?;
    let destination = Address::from_body(AddressFormat::Evm, rand::random());
    scene.stack.destinations.note(&destination);
    let request = pb::CreateWithdrawalRequest {
        idempotency_key: uuid::Uuid::now_v7().to_string(),
        user_id: uuid::Uuid::now_v7().to_string(),
        chain: "bsc".to_owned(),
        asset: "BNB".to_owned(),
        amount: "0.001".to_owned(),
        destination: destination.to_string(),
        ..Default::default()
    };
    let mut requester = IntentServiceClient::new(scene.stack.client("intent", "requester")?);
    let created = requester.create_withdrawal(request).await?.into_inner();
    let created = created.withdrawal.context("the answer holds no withdrawal")?;
    let expires = approve(&scene, &created, Duration::from_secs(5)).await?;
    scene.customer.blocked(&created.id).await?;
    testkit::wait_for("the approvals to expire", PATIENCE, || async {
        chrono::Utc::now().timestamp() > expires
    })
    .await;
    scene.stack.start_again("signer-gateway", &[])?;
    testkit::wait_for("it to say that they have", PATIENCE, || async {
        let status = scene.customer.status(&created.id).await;
        status.is_ok_and(|found| found.blocked_reason.contains("must be renewed"))
    })
    .await;
    let order = Ordered {
        id: created.id.clone(),
        asset: created.asset.clone(),
        amount_raw: created.amount_raw.clone(),
        destination,
    };
    let job = scene.job(&order).await?;
    ensure!(job.attempts.iter().all(|attempt| attempt.tx_hash.is_empty()), "something was signed: {job:#?}");
    // Others are not held up by it.
    let other = scene.customer.order("BNB", "0.001").await?;
    scene.customer.completed(&other.id, PATIENCE).await?;
    approve(&scene, &created, Duration::from_secs(3600)).await?;
    scene.customer.completed(&created.id, PATIENCE).await?;
    judge(&scene.stack, &scene.customer, &[order, other]).await?;
    scene.done();
    Ok(())
}
