//! Tiers and approvers, as operators set them; and what the statistics say.

use proto::intent::v1 as pb;
use tonic::Code;
use types::UserId;

use crate::support::{
    Stack, completed, create_for, expiry, failed, fields, queued, reason, stack, stack_with,
};

pub(crate) async fn put(
    stack: &Stack,
    tiers: &[(&str, u32)],
    approvers: &[&str],
) -> Result<pb::ApprovalPolicy, tonic::Status> {
    let tier = |(from, required): &(&str, u32)| pb::ApprovalTier {
        from_amount: (*from).to_owned(),
        required_approvals: *required,
    };
    let policy = pb::ApprovalPolicy {
        chain: "bsc".to_owned(),
        asset: "USDT".to_owned(),
        tiers: tiers.iter().map(tier).collect(),
        approvers: approvers.iter().map(|name| (*name).to_owned()).collect(),
    };
    let request = pb::PutApprovalPolicyRequest { policy: Some(policy) };
    Ok(stack.policies().put_approval_policy(request).await?.into_inner().policy.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_amount_decides_how_many_must_approve() {
    let stack = stack_with("").await;
    let stored = put(&stack, &[("0", 1), ("100", 2), ("1000.5", 3)], &[]).await.unwrap();
    let request = pb::ListApprovalPoliciesRequest {};
    let listed = stack.policies().list_approval_policies(request).await.unwrap().into_inner().policies;
    assert_eq!(listed, [stored]);
    for (n, (amount, required)) in
        [("99.99", 1), ("100", 2), ("1000.5", 3), ("5000", 3)].into_iter().enumerate()
    {
        let withdrawal = stack.create(create_for(&n.to_string(), UserId::new(), amount)).await.unwrap();
        assert_eq!(withdrawal.required_approvals, required, "{amount}");
    }
    // A new policy applies to new requests; earlier ones keep their number of approvals.
    put(&stack, &[("0", 2)], &["ann", "bob"]).await.unwrap();
    let small = stack.create(create_for("small", UserId::new(), "1")).await.unwrap();
    assert_eq!(small.required_approvals, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_limits_that_cannot_work_are_refused() {
    let stack = stack().await;
    let refused = put(&stack, &[("1", 0), ("0", 4)], &["zoe"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(fields(&refused).len() >= 4, "{refused}");
    let policy = pb::ApprovalPolicy { chain: "bsc".into(), asset: "DOGE".into(), ..Default::default() };
    let request = pb::PutApprovalPolicyRequest { policy: Some(policy) };
    let refused = stack.policies().put_approval_policy(request).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "ASSET_UNKNOWN"));
    let request = pb::PutLimitRequest { limit: Some(pb::Limit::default()) };
    let refused = stack.policies().put_limit(request).await.unwrap_err();
    assert_eq!(fields(&refused), ["limit.scope", "limit.chain", "limit.asset", "limit.window"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn putting_a_limit_again_keeps_its_id() {
    let stack = stack().await;
    let first = crate::limits::put(&stack, pb::LimitScope::User, "5", 60).await;
    let second = crate::limits::put(&stack, pb::LimitScope::User, "6", 60).await;
    assert_eq!((first.id, second.max_amount.as_str()), (second.id.clone(), "6"));
    let listed = stack.policies().list_limits(pb::ListLimitsRequest {}).await.unwrap().into_inner().limits;
    assert_eq!(listed, [second]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_count_what_waits_and_how_it_went() {
    let stack = stack().await;
    let paid = stack.approved("paid").await;
    stack.report(&paid.id, expiry(), queued()).await.unwrap();
    stack.report(&paid.id, expiry(), completed(crate::support::HASH)).await.unwrap();
    let lost = stack.approved("lost").await;
    stack.report(&lost.id, expiry(), failed()).await.unwrap();
    stack.create(crate::support::create("waiting")).await.unwrap();
    let found = stack
        .intent("ops")
        .get_statistics(pb::GetStatisticsRequest { window: None })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.pending_approvals, 1);
    assert_eq!(found.completion_rate_basis_points, 5000);
    assert!(found.average_approval_time.is_some() && found.average_completion_time.is_some());
    let count = |status: pb::WithdrawalStatus| {
        found.by_status.iter().find(|entry| entry.status() == status).map(|entry| entry.count)
    };
    assert_eq!(count(pb::WithdrawalStatus::Pending), Some(1));
    assert_eq!(count(pb::WithdrawalStatus::Completed), Some(1));
    assert_eq!(count(pb::WithdrawalStatus::Failed), Some(1));
    assert_eq!(count(pb::WithdrawalStatus::Queued), Some(0));
    let rendered = || async {
        let text = telemetry::metrics::render();
        ["bursar_intent_pending_approvals", "bursar_intent_open_requests", "bursar_intent_approval_seconds"]
            .iter()
            .chain(&["bursar_intent_completion_rate_basis_points", "bursar_intent_transitions_total"])
            .all(|name| text.contains(name))
    };
    testkit::wait_for("the gauges", crate::support::PATIENCE, rendered).await;
}
