//! Messages to execution, and everything that can go wrong on the way.

use chrono::Utc;
use db::outbox;
use ed25519_dalek::Signature;
use intent::Intent;
use proto::intent::v1 as pb;
use tonic::Status;
use types::{Payment, PaymentDigest, approval_message};

use crate::support::execution::NextCall;
use crate::support::{PATIENCE, Stack, config, queued, signing_key, stack};

#[tokio::test(flavor = "multi_thread")]
async fn execution_gets_the_payment_with_signatures_that_anybody_can_check() {
    let stack = stack().await;
    let withdrawal = stack.approved("order-1").await;
    stack.handed_over(1).await;
    let message = stack.execution.enqueued().remove(0);
    assert_eq!(
        (message.withdrawal_id.as_str(), message.requested_by.as_str()),
        (withdrawal.id.as_str(), "alice")
    );
    assert_eq!((message.priority.as_str(), message.amount_raw.as_str()), ("high", "12500000000000000000"));
    // As the signer does it: from the payment itself, not from what anybody says about it.
    let digest = PaymentDigest::compute(&Payment {
        id: message.withdrawal_id.parse().unwrap(),
        chain: &message.chain.parse().unwrap(),
        asset: &message.asset.parse().unwrap(),
        destination: &message.destination.parse().unwrap(),
        amount: message.amount_raw.parse().unwrap(),
    });
    assert_eq!(message.approvals.len(), 2);
    for proof in &message.approvals {
        let text = approval_message(digest, &proof.approver, proof.expires_at.unwrap().seconds);
        let signature = Signature::from_slice(&proof.signature).unwrap();
        signing_key(&proof.approver).verifying_key().verify_strict(&text, &signature).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_and_an_outage_mean_the_same_message_again() {
    let stack = stack().await;
    stack.execution.next(NextCall::Refuse(Status::unavailable("starting")));
    stack.execution.next(NextCall::LoseReply);
    stack.execution.next(NextCall::Refuse(Status::internal("bug")));
    stack.approved("order-1").await;
    stack.handed_over(2).await;
    let received = stack.execution.enqueued();
    assert_eq!(received[0], received[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_execution_refuses_is_parked_in_sight_and_can_be_set_going_again() {
    let stack = stack().await;
    stack.execution.next(NextCall::Refuse(Status::failed_precondition("no such chain")));
    let withdrawal = stack.approved("order-1").await;
    let parked = testkit::wait_for_value("the parked message", PATIENCE, || async {
        outbox::parked(&stack.pool, 10).await.unwrap().pop()
    })
    .await;
    assert_eq!(parked.aggregate, withdrawal.id);
    assert!(parked.reason.contains("no such chain"), "{}", parked.reason);
    assert!(telemetry::metrics::render().contains("bursar_outbox_parked_messages_total"));
    let shown = stack.get(&withdrawal.id).await;
    assert_eq!(shown.status(), pb::WithdrawalStatus::Approved, "nothing ends because of it");
    assert!(shown.blocked_reason.contains("no such chain"), "{}", shown.blocked_reason);
    let history = stack.transitions(&withdrawal.id).await;
    assert!(history.last().unwrap().detail.contains("no such chain"), "{history:?}");
    // One that is refused does not hold up the others.
    stack.approved("order-2").await;
    let second = || async { stack.execution.enqueued().len() == 1 };
    testkit::wait_for("the other message", PATIENCE, second).await;
    // The same refusal again is recorded once.
    stack.execution.next(NextCall::Refuse(Status::failed_precondition("no such chain")));
    assert!(outbox::requeue_parked(&stack.pool, parked.message_id).await.unwrap());
    let again = || async { !outbox::parked(&stack.pool, 10).await.unwrap().is_empty() };
    testkit::wait_for("the second refusal", PATIENCE, again).await;
    assert_eq!(stack.transitions(&withdrawal.id).await.len(), history.len());
    assert_eq!(outbox::requeue_all_parked(&stack.pool).await.unwrap(), 1);
    stack.handed_over(2).await;
    stack.report(&withdrawal.id, Utc::now(), queued()).await.unwrap();
    let shown = stack.get(&withdrawal.id).await;
    assert_eq!((shown.status(), shown.blocked_reason.as_str()), (pb::WithdrawalStatus::Queued, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_for_a_service_that_stopped_right_after_the_quorum() {
    let stack = stack().await;
    stack.execution.next(NextCall::Refuse(Status::unavailable("away")));
    stack.approved("order-1").await;
    let Stack { database, pool, execution, running } = stack;
    running.stop().await.unwrap();
    let text = config(database.url(), &execution.url(), "");
    let running = service::launch::<Intent>(&text).await.unwrap();
    let stack = Stack { database, pool, execution, running };
    stack.handed_over(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_do_not_tell_the_same_thing_twice() {
    let stack = stack().await;
    let text = config(stack.database.url(), &stack.execution.url(), "");
    let _other = service::launch::<Intent>(&text).await.unwrap();
    for n in 0..10 {
        stack.approved(&format!("order-{n}")).await;
    }
    stack.handed_over(10).await;
    let mut ids: Vec<_> =
        stack.execution.enqueued().into_iter().map(|message| message.withdrawal_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10);
}
