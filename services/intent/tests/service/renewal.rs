//! Approvals that expire after the quorum: who may renew them, what execution receives, and what must not happen meanwhile.

use chrono::{TimeDelta, Utc};
use futures::future::join_all;
use proto::intent::v1 as pb;
use proto::intent::v1::record_progress_request::Progress;
use tonic::{Code, Status};

use crate::support::execution::NextCall;
use crate::support::{PATIENCE, Stack, consent, create, expiry, queued, reason, stack};

/// Everything that was approved so far has expired.
async fn expire(stack: &Stack) {
    let age = "UPDATE approvals SET approved_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'";
    sqlx::query(age).execute(&stack.pool).await.unwrap();
}

/// A request that execution holds and cannot have signed.
async fn blocked(stack: &Stack, key: &str) -> pb::Withdrawal {
    let withdrawal = stack.approved(key).await;
    stack.handed_over(1).await;
    stack.report(&withdrawal.id, Utc::now(), queued()).await.unwrap();
    let reason = "its approvals have expired and must be renewed".to_owned();
    stack.report(&withdrawal.id, Utc::now(), Progress::Blocked(pb::Blocked { reason })).await.unwrap();
    expire(stack).await;
    stack.get(&withdrawal.id).await
}

async fn renewed(stack: &Stack, times: usize) {
    let done = || async { stack.execution.renewed().len() == times && stack.outbox().await == 0 };
    testkit::wait_for("the renewed approvals", PATIENCE, done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_expired_on_the_way_is_renewed_and_execution_gets_the_new_signatures() {
    let stack = stack().await;
    let withdrawal = blocked(&stack, "order-1").await;
    assert!(withdrawal.blocked_reason.contains("must be renewed"), "{}", withdrawal.blocked_reason);
    let one = stack.approve(&withdrawal, "ann").await.unwrap();
    assert_eq!(one.status(), pb::WithdrawalStatus::Queued);
    assert!(stack.execution.renewed().is_empty(), "one of two is no quorum");
    stack.approve(&withdrawal, "cid").await.unwrap();
    renewed(&stack, 1).await;
    let message = stack.execution.renewed().remove(0);
    assert_eq!(message.withdrawal_id, withdrawal.id);
    let names: Vec<&str> = message.approvals.iter().map(|proof| proof.approver.as_str()).collect();
    assert_eq!(names, ["ann", "cid"]);
    let stored = stack.get(&withdrawal.id).await;
    for proof in &message.approvals {
        let kept = stored.approvals.iter().find(|kept| kept.approver == proof.approver).unwrap();
        assert_eq!((&kept.signature, kept.expires_at), (&proof.signature, proof.expires_at));
    }
    assert_eq!(stack.execution.enqueued().len(), 1, "renewing is no second payment");
    let history = stack.transitions(&withdrawal.id).await;
    let renewals = history.iter().filter(|entry| entry.detail.starts_with("approval renewed")).count();
    assert_eq!(renewals, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_else_of_the_policy_may_stand_in_for_an_approver_who_is_away() {
    let stack = stack().await;
    let withdrawal = blocked(&stack, "order-1").await;
    stack.approve(&withdrawal, "cid").await.unwrap();
    stack.approve(&withdrawal, "bob").await.unwrap();
    renewed(&stack, 1).await;
    let message = stack.execution.renewed().remove(0);
    let mut names: Vec<&str> = message.approvals.iter().map(|proof| proof.approver.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["bob", "cid"], "only those that hold");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_holds_takes_no_further_approvals() {
    let stack = stack().await;
    let withdrawal = stack.approved("order-1").await;
    let refused = stack.approve(&withdrawal, "bob").await.unwrap_err();
    assert_eq!(
        (reason(&refused).as_str(), refused.code()),
        ("WITHDRAWAL_NOT_PENDING", Code::FailedPrecondition)
    );
    expire(&stack).await;
    stack.approve(&withdrawal, "ann").await.unwrap();
    let again = consent(&withdrawal, "ann", expiry() + TimeDelta::minutes(5));
    let refused = stack.send_consent("ann", again).await.unwrap_err();
    assert_eq!(reason(&refused), "APPROVAL_ALREADY_GIVEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_obey_the_same_rules_as_approvals() {
    let stack = stack().await;
    let own = stack.create_as("bob", create("own")).await.unwrap();
    for name in ["ann", "cid"] {
        stack.approve(&own, name).await.unwrap();
    }
    expire(&stack).await;
    assert_eq!(reason(&stack.approve(&own, "bob").await.unwrap_err()), "APPROVER_IS_REQUESTER");
    let mut forged = consent(&own, "ann", expiry());
    forged.signature[7] ^= 1;
    let refused = stack.send_consent("ann", forged).await.unwrap_err();
    assert_eq!(reason(&refused), "APPROVAL_SIGNATURE_INVALID");
    assert!(stack.execution.renewed().is_empty());
    // What ended takes nothing.
    let rejected = stack.create(create("order-2")).await.unwrap();
    stack.approve(&rejected, "ann").await.unwrap();
    expire(&stack).await;
    let end = pb::RejectWithdrawalRequest { id: rejected.id.clone(), reason: "no".to_owned() };
    stack.intent("cid").reject_withdrawal(end).await.unwrap();
    assert_eq!(reason(&stack.approve(&rejected, "ann").await.unwrap_err()), "WITHDRAWAL_NOT_PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_at_the_same_moment_and_lost_replies_make_one_set() {
    let stack = stack().await;
    let withdrawal = blocked(&stack, "order-1").await;
    stack.execution.next(NextCall::Refuse(Status::unavailable("away")));
    stack.execution.next(NextCall::LoseReply);
    let yes = consent(&withdrawal, "ann", expiry());
    let calls = (0..5).map(|_| stack.send_consent("ann", yes.clone()));
    let (same, other) = futures::join!(join_all(calls), stack.approve(&withdrawal, "cid"));
    assert!(same.iter().all(Result::is_ok) && other.is_ok(), "{same:?} {other:?}");
    renewed(&stack, 2).await;
    let received = stack.execution.renewed();
    assert_eq!(received[0], received[1], "the same message again");
    assert!(received[0].revision > 0 && received[0].approvals.len() == 2);
    // Expired once more: the next set has a higher revision.
    expire(&stack).await;
    for name in ["ann", "cid"] {
        let later = consent(&withdrawal, name, expiry() + TimeDelta::minutes(9));
        stack.send_consent(name, later).await.unwrap();
    }
    renewed(&stack, 3).await;
    assert!(stack.execution.renewed()[2].revision > received[0].revision);
}
