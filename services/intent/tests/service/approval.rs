//! Who may approve what, and how often.

use chrono::{TimeDelta, Utc};
use ed25519_dalek::Signer as _;
use futures::future::join_all;
use proto::intent::v1 as pb;
use tonic::Code;

use crate::support::{
    PATIENCE, Stack, consent, create, create_for, expiry, fields, reason, signing_key, stack,
};

async fn outbox_is_consistent(stack: &Stack) {
    // Delivered or not, there is a message for each approved request.
    let approved =
        stack.count("SELECT count(*) FROM withdrawal_requests WHERE approved_at IS NOT NULL").await;
    let sent = || async {
        stack.outbox().await + i64::try_from(stack.execution.enqueued().len()).unwrap() >= approved
    };
    testkit::wait_for("a message for each approved request", PATIENCE, sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quorum_hands_the_request_to_execution_and_nothing_less_does() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let one = stack.approve(&withdrawal, "ann").await.unwrap();
    assert_eq!((one.status(), one.approvals.len()), (pb::WithdrawalStatus::Pending, 1));
    assert_eq!(stack.outbox().await, 0);
    let two = stack.approve(&withdrawal, "cid").await.unwrap();
    assert_eq!((two.status(), two.approvals.len()), (pb::WithdrawalStatus::Approved, 2));
    assert!(two.approved_at.is_some());
    outbox_is_consistent(&stack).await;
    let details: Vec<String> =
        stack.transitions(&withdrawal.id).await.into_iter().map(|t| t.detail).collect();
    assert_eq!(details[1..3], ["approved, 1 of 2", "approved, 2 of 2"]);
    assert_eq!(details.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_at_the_same_moment_make_one_quorum_and_one_message() {
    let stack = stack().await;
    for round in 0..5 {
        let withdrawal = stack.create(create(&format!("order-{round}"))).await.unwrap();
        let results = join_all(crate::support::APPROVERS.map(|name| stack.approve(&withdrawal, name))).await;
        let late = results.iter().filter(|result| result.is_err()).count();
        assert_eq!(late, 1, "two of three make the quorum, the third is late: {results:?}");
    }
    let sent = || async { stack.execution.enqueued().len() == 5 && stack.outbox().await == 0 };
    testkit::wait_for("five messages", PATIENCE, sent).await;
    assert!(stack.execution.enqueued().iter().all(|message| message.approvals.len() == 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_approval_is_answered_and_counted_once() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let yes = consent(&withdrawal, "ann", expiry());
    let results = join_all((0..10).map(|_| stack.send_consent("ann", yes.clone()))).await;
    assert!(results.iter().all(|result| result.as_ref().unwrap().approvals.len() == 1), "{results:?}");
    stack.approve(&withdrawal, "cid").await.unwrap();
    let after = stack.send_consent("ann", yes).await.unwrap();
    assert_eq!(
        after.status(),
        pb::WithdrawalStatus::Approved,
        "a replay after the quorum shows what became of it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_that_must_not_count_are_refused_and_written_down() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let other = stack.create(create_for("order-2", types::UserId::new(), "99")).await.unwrap();
    let soon = expiry();
    let mut foreign = consent(&other, "ann", soon);
    foreign.id = withdrawal.id.clone();
    let mut prolonged = consent(&withdrawal, "ann", soon);
    prolonged.expires_at = Some(proto::time::timestamp(soon + TimeDelta::hours(1)));
    let mut flipped = consent(&withdrawal, "ann", soon);
    flipped.signature[3] ^= 1;
    let cases = [
        ("ann", foreign, "APPROVAL_SIGNATURE_INVALID", Code::PermissionDenied),
        ("ann", prolonged, "APPROVAL_SIGNATURE_INVALID", Code::PermissionDenied),
        ("ann", flipped, "APPROVAL_SIGNATURE_INVALID", Code::PermissionDenied),
        // Another's signature under one's own name.
        ("cid", consent(&withdrawal, "ann", soon), "APPROVAL_SIGNATURE_INVALID", Code::PermissionDenied),
        ("keyless", consent(&withdrawal, "keyless", soon), "APPROVER_UNKNOWN", Code::PermissionDenied),
        (
            "ann",
            consent(&withdrawal, "ann", Utc::now() - TimeDelta::seconds(5)),
            "APPROVAL_EXPIRED",
            Code::FailedPrecondition,
        ),
        (
            "ann",
            consent(&withdrawal, "ann", Utc::now() + TimeDelta::days(8)),
            "APPROVAL_VALID_TOO_LONG",
            Code::InvalidArgument,
        ),
    ];
    for (caller, request, expected, code) in cases {
        let refused = stack.send_consent(caller, request).await.unwrap_err();
        assert_eq!((reason(&refused).as_str(), refused.code()), (expected, code), "{refused}");
    }
    assert!(stack.get(&withdrawal.id).await.approvals.is_empty());
    let audited = "SELECT coalesce(sum(times), 0)::bigint FROM approval_refusals";
    assert_eq!(stack.count(audited).await, 7);
    let refusals = stack.transitions(&withdrawal.id).await;
    let refusals = refusals.iter().filter(|entry| entry.detail.starts_with("approval refused")).count();
    assert_eq!(refusals, 5, "once for each approver and reason");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_approves_their_own_request_or_twice() {
    let stack = stack().await;
    let own = stack.create_as("bob", create("own")).await.unwrap();
    let refused = stack.approve(&own, "bob").await.unwrap_err();
    assert_eq!(reason(&refused), "APPROVER_IS_REQUESTER");
    stack.send_consent("ann", consent(&own, "ann", expiry())).await.unwrap();
    let again = consent(&own, "ann", expiry() + TimeDelta::minutes(1));
    let refused = stack.send_consent("ann", again).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), refused.code()), ("APPROVAL_ALREADY_GIVEN", Code::AlreadyExists));
    assert_eq!(stack.get(&own.id).await.approvals.len(), 1);
    // Not even the table takes one's own approval.
    let sql = "INSERT INTO approvals SELECT id, requested_by, requested_by, decode(repeat('00', 64), 'hex'), \
               now() + interval '1 hour', now() FROM withdrawal_requests";
    let error = sqlx::query(sql).execute(&stack.pool).await.unwrap_err();
    assert_eq!(db::constraint(&error), Some("approvals_not_by_requester"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_the_policy_names_may_approve() {
    let stack = stack().await;
    crate::policies::put(&stack, &[("0", 1)], &["cid"]).await.unwrap();
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let refused = stack.approve(&withdrawal, "ann").await.unwrap_err();
    assert_eq!(reason(&refused), "APPROVER_NOT_IN_POLICY");
    assert_eq!(stack.approve(&withdrawal, "cid").await.unwrap().status(), pb::WithdrawalStatus::Approved);
    let refused =
        stack.intent("alice").approve_withdrawal(consent(&withdrawal, "ann", expiry())).await.unwrap_err();
    assert_eq!(reason(&refused), "ROLE_REQUIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_approval_makes_no_quorum_and_can_be_renewed() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    stack.approve(&withdrawal, "ann").await.unwrap();
    let age = "UPDATE approvals SET approved_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'";
    sqlx::query(age).execute(&stack.pool).await.unwrap();
    let second = stack.approve(&withdrawal, "cid").await.unwrap();
    assert_eq!(second.status(), pb::WithdrawalStatus::Pending, "one of the two has expired");
    let renewed = stack.approve(&withdrawal, "ann").await.unwrap();
    assert_eq!(renewed.status(), pb::WithdrawalStatus::Approved);
    assert_eq!(renewed.approvals.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_request_can_be_ended_and_an_approved_one_cannot() {
    let stack = stack().await;
    let rejected = stack.create(create("rejected")).await.unwrap();
    let ended = stack.reject(&rejected.id).await.unwrap();
    assert_eq!(
        (ended.status(), ended.failure_reason.as_str()),
        (pb::WithdrawalStatus::Rejected, "suspicious")
    );
    assert_eq!(stack.reject(&rejected.id).await.unwrap(), ended, "a replay");
    assert_eq!(reason(&stack.approve(&rejected, "ann").await.unwrap_err()), "WITHDRAWAL_NOT_PENDING");
    assert_eq!(reason(&stack.cancel("alice", &rejected.id).await.unwrap_err()), "ILLEGAL_TRANSITION");

    let cancelled = stack.create(create("cancelled")).await.unwrap();
    let refused = stack.cancel("mallory", &cancelled.id).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "NOT_THE_REQUESTER"));
    assert_eq!(stack.cancel("alice", &cancelled.id).await.unwrap().status(), pb::WithdrawalStatus::Cancelled);
    let by_operator = stack.create(create("by-operator")).await.unwrap();
    assert_eq!(stack.cancel("ops", &by_operator.id).await.unwrap().status(), pb::WithdrawalStatus::Cancelled);

    let approved = stack.approved("approved").await;
    assert_eq!(reason(&stack.reject(&approved.id).await.unwrap_err()), "ILLEGAL_TRANSITION");
    assert_eq!(reason(&stack.cancel("alice", &approved.id).await.unwrap_err()), "ILLEGAL_TRANSITION");
    let request = pb::RejectWithdrawalRequest { id: approved.id, reason: String::new() };
    assert_eq!(fields(&stack.intent("ann").reject_withdrawal(request).await.unwrap_err()), ["reason"]);
    outbox_is_consistent(&stack).await;
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests WHERE status = 'approved'").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_and_quorum_at_the_same_moment_leave_one_winner() {
    let stack = stack().await;
    for round in 0..8 {
        let withdrawal = stack.create(create(&format!("order-{round}"))).await.unwrap();
        stack.approve(&withdrawal, "ann").await.unwrap();
        let (yes, no) = tokio::join!(stack.approve(&withdrawal, "cid"), stack.reject(&withdrawal.id));
        assert!(yes.is_ok() != no.is_ok(), "{yes:?} {no:?}");
    }
    let sent = || async {
        let approved =
            stack.count("SELECT count(*) FROM withdrawal_requests WHERE status = 'approved'").await;
        stack.outbox().await == 0 && i64::try_from(stack.execution.enqueued().len()) == Ok(approved)
    };
    testkit::wait_for("a message for each approved request and no other", PATIENCE, sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_approvals_are_refused() {
    let stack = stack().await;
    let request =
        pb::ApproveWithdrawalRequest { id: "x".to_owned(), signature: vec![0; 63], expires_at: None };
    let refused = stack.intent("ann").approve_withdrawal(request).await.unwrap_err();
    assert_eq!(fields(&refused), ["id", "expires_at", "signature"]);
    let request = pb::ApproveWithdrawalRequest {
        id: types::WithdrawalId::new().to_string(),
        signature: vec![0; 64],
        expires_at: Some(proto::time::timestamp(expiry())),
    };
    assert_eq!(stack.intent("ann").approve_withdrawal(request).await.unwrap_err().code(), Code::NotFound);
}

/// Reloads the configuration after `change`.
fn reload(stack: &Stack, change: impl FnOnce(&str) -> String) {
    let text = crate::support::config(stack.database.url(), &stack.execution.url(), "");
    stack.running.reload(&change(&text)).unwrap();
}

async fn reload_without_ann(stack: &Stack, withdrawal: &pb::Withdrawal) {
    reload(stack, |text| text.replace("[approvers.ann]", "[approvers.gone]"));
    let refused = || async {
        // Altered, so that it can never count while the reload is on its way.
        let mut request = consent(withdrawal, "ann", expiry());
        request.signature[0] ^= 1;
        stack.send_consent("ann", request).await.is_err_and(|status| reason(&status) == "APPROVER_UNKNOWN")
    };
    testkit::wait_for("the reload", PATIENCE, refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reloaded_keys_count_at_once() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    reload_without_ann(&stack, &withdrawal).await;
    stack.approve(&withdrawal, "cid").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approval_of_a_key_that_was_taken_away_makes_no_quorum() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    stack.approve(&withdrawal, "ann").await.unwrap();
    reload_without_ann(&stack, &withdrawal).await;
    assert_eq!(stack.approve(&withdrawal, "cid").await.unwrap().status(), pb::WithdrawalStatus::Pending);
    assert_eq!(stack.approve(&withdrawal, "bob").await.unwrap().status(), pb::WithdrawalStatus::Approved);
    stack.handed_over(1).await;
    let message = stack.execution.enqueued().remove(0);
    let names: Vec<&str> = message.approvals.iter().map(|proof| proof.approver.as_str()).collect();
    assert_eq!(names, ["cid", "bob"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_got_another_key_approves_again_with_it_and_the_old_one_counts_no_more() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let old = consent(&withdrawal, "ann", expiry());
    stack.send_consent("ann", old.clone()).await.unwrap();
    let public = |name: &str| hex::encode(signing_key(name).verifying_key().as_bytes());
    reload(&stack, |text| text.replace(&public("ann"), &public("ann-2")));
    let expires_at = expiry() + TimeDelta::minutes(1);
    let digest = withdrawal.payment_digest.parse().unwrap();
    let message = types::approval_message(digest, "ann", expires_at.timestamp());
    let anew = pb::ApproveWithdrawalRequest {
        signature: signing_key("ann-2").sign(&message).to_vec(),
        expires_at: Some(proto::time::timestamp(expires_at)),
        ..old.clone()
    };
    let counted = || async { stack.send_consent("ann", anew.clone()).await.ok() };
    let counted = testkit::wait_for_value("the reload", PATIENCE, counted).await;
    assert_eq!((counted.status(), counted.approvals.len()), (pb::WithdrawalStatus::Pending, 1));
    let refused = stack.send_consent("ann", old).await.unwrap_err();
    assert_eq!(reason(&refused), "APPROVAL_SIGNATURE_INVALID");
    assert_eq!(stack.approve(&withdrawal, "cid").await.unwrap().status(), pb::WithdrawalStatus::Approved);
    let stored = stack.get(&withdrawal.id).await;
    assert_eq!(stored.approvals[0].signature, anew.signature);
}
