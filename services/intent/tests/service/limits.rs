//! Ceilings hold, however many ask at once.

use futures::future::join_all;
use proto::intent::v1 as pb;
use tonic::Code;
use types::UserId;

use crate::support::{Stack, create_for, reason, stack};

pub(crate) async fn put(stack: &Stack, scope: pb::LimitScope, max: &str, seconds: i64) -> pb::Limit {
    let limit = pb::Limit {
        id: String::new(),
        scope: scope.into(),
        chain: "bsc".to_owned(),
        asset: "USDT".to_owned(),
        window: Some(prost_types::Duration { seconds, nanos: 0 }),
        max_amount: max.to_owned(),
    };
    let request = pb::PutLimitRequest { limit: Some(limit) };
    stack.policies().put_limit(request).await.unwrap().into_inner().limit.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_calls_at_once_never_exceed_a_limit() {
    let stack = stack().await;
    put(&stack, pb::LimitScope::User, "3", 3600).await;
    put(&stack, pb::LimitScope::Asset, "10", 3600).await;
    put(&stack, pb::LimitScope::Asset, "100", 86400).await;
    let users: Vec<UserId> = (0..8).map(|_| UserId::new()).collect();
    let calls = (0..40).map(|n| stack.create(create_for(&format!("order-{n}"), users[n % 8], "1")));
    let answers = join_all(calls).await;
    for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!((refused.code(), reason(refused).as_str()), (Code::FailedPrecondition, "LIMIT_EXCEEDED"));
    }
    // All of it was used, and nothing more.
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    let most =
        "SELECT max(n) FROM (SELECT count(*) AS n FROM withdrawal_requests GROUP BY user_id) AS per_user";
    assert!(stack.count(most).await <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_customer_s_limit_is_not_anothers() {
    let stack = stack().await;
    put(&stack, pb::LimitScope::User, "5", 3600).await;
    let (one, two) = (UserId::new(), UserId::new());
    stack.create(create_for("a", one, "5")).await.unwrap();
    let refused = stack.create(create_for("b", one, "0.000000000000000001")).await.unwrap_err();
    assert!(refused.message().contains("5 USDT on bsc per customer"), "{refused}");
    stack.create(create_for("c", two, "5")).await.unwrap();
    let mut other_asset = create_for("d", one, "5");
    other_asset.asset = "BNB".to_owned();
    stack.create(other_asset).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_without_payment_is_given_back_and_windows_roll() {
    let stack = stack().await;
    put(&stack, pb::LimitScope::Asset, "5", 3600).await;
    let user = UserId::new();
    let first = stack.create(create_for("a", user, "5")).await.unwrap();
    assert!(stack.create(create_for("b", user, "1")).await.is_err());
    stack.reject(&first.id).await.unwrap();
    let second = stack.create(create_for("c", user, "5")).await.unwrap();
    stack.cancel("alice", &second.id).await.unwrap();
    stack.create(create_for("d", user, "5")).await.unwrap();
    assert!(stack.create(create_for("e", user, "1")).await.is_err());
    // A short window looks at less: two seconds are over once the database's clock says so.
    let limits = stack.policies().list_limits(pb::ListLimitsRequest {}).await.unwrap().into_inner().limits;
    let request = pb::DeleteLimitRequest { id: limits[0].id.clone() };
    stack.policies().delete_limit(request.clone()).await.unwrap();
    stack.policies().delete_limit(request).await.unwrap();
    put(&stack, pb::LimitScope::Asset, "5", 1).await;
    testkit::wait_for("the window to pass", crate::support::PATIENCE, || async {
        stack.create(create_for("e", user, "5")).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_beyond_2_to_the_256_are_still_compared() {
    let stack = stack().await;
    let max = types::RawAmount::MAX;
    let text = types::format_amount(max, types::Decimals::new(18).unwrap());
    put(&stack, pb::LimitScope::Asset, &text, 3600).await;
    stack.create(create_for("a", UserId::new(), &text)).await.unwrap();
    let refused = stack.create(create_for("b", UserId::new(), &text)).await.unwrap_err();
    assert_eq!(reason(&refused), "LIMIT_EXCEEDED");
}
