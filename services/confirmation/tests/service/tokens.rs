//! Tokens that lie: a success status is no payment.

use proto::execution::v1::verdict::Finding;

use crate::env::{DEPTH, TestEnv, call_data, stranger, tick, token_transfer};

/// Mined and final, receipt says success: never settled, never attested, for a person to look at.
async fn is_not_paid(token: &str) {
    let env = TestEnv::new().await;
    let contract = env.token(token, &[]).await;
    let mut replica = env.replica("one");
    let to = stranger();
    let sent = env.sign(0, contract, 0, &call_data("a9059cbb", to, 1_000)).await;
    let job = env.put(token_transfer(contract, to, 1_000), vec![sent.watched()]).await;
    env.send(&sent).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    let [Finding::Reverted(found)] = &env.verdicts(job).await[..] else {
        panic!("{token}: {:?}", env.kinds(job).await)
    };
    assert!(found.value_moved, "{token}: whether something moved is not known or it did");
    assert!(found.attestation.is_empty(), "{token}: nothing allows another attempt");
    assert!(!found.reason.is_empty());
    assert_eq!(env.outbox("intent.RecordProgress").await, 0);
}

#[tokio::test]
async fn a_token_that_returns_false_is_not_paid() {
    is_not_paid("FalseToken").await;
}

#[tokio::test]
async fn a_token_that_takes_a_fee_is_not_paid() {
    is_not_paid("FeeToken").await;
}

#[tokio::test]
async fn a_token_that_takes_something_back_is_not_paid() {
    is_not_paid("ClawbackToken").await;
}

#[tokio::test]
async fn a_token_without_a_log_is_not_paid() {
    is_not_paid("SilentToken").await;
}

#[tokio::test]
async fn a_log_of_another_contract_is_not_a_payment() {
    is_not_paid("ForgedToken").await;
}

#[tokio::test]
async fn a_token_that_returns_nothing_is_paid() {
    let env = TestEnv::new().await;
    let contract = env.token("VoidToken", &[]).await;
    let mut replica = env.replica("one");
    let to = stranger();
    let sent = env.sign(0, contract, 0, &call_data("a9059cbb", to, 1_000)).await;
    let job = env.put(token_transfer(contract, to, 1_000), vec![sent.watched()]).await;
    env.send(&sent).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
}
