//! Ceilings hold, however many ask at once.

use futures::future::join_all;
use intent::limit::domain::{Limit, LimitId, Scope};
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
    let results = join_all(calls).await;
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!((refused.code(), reason(refused).as_str()), (Code::FailedPrecondition, "LIMIT_EXCEEDED"));
    }
    // All of it was used, and nothing more.
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 10);
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
    // A short window looks at less: a second is over once the database's clock says so.
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

/// What a window holds, added up request by request.
async fn every_request(tx: &mut sqlx::PgConnection, user: Option<UserId>, seconds: i64) -> types::RawAmount {
    let sum: String = sqlx::query_scalar(
        "SELECT coalesce(sum(amount_raw), 0)::text FROM withdrawal_requests \
         WHERE chain = 'bsc' AND asset = 'USDT' AND ($1::uuid IS NULL OR user_id = $1) \
           AND created_at > now() - $2 * interval '1 second' AND status IN ('pending', 'approved', 'queued', 'completed')",
    )
    .bind(user.map(|user| user.as_uuid()))
    .bind(seconds)
    .fetch_one(tx)
    .await
    .unwrap();
    sum.parse().unwrap()
}

/// Holds the room under limits of all kinds of windows to what every request says.
async fn check_sums(tx: &mut sqlx::PgConnection, user: UserId) {
    let max = types::RawAmount::from(1_000_000_000_u64);
    let mut seen = std::collections::BTreeSet::new();
    for seconds in [1, 59, 3599, 3600, 3601, 7199, 7200, 10_000, 14_400, 86_400, 90_000, 31_622_400] {
        for scope in [Scope::User, Scope::Asset] {
            let limit = Limit {
                id: LimitId::new(),
                scope,
                chain: "bsc".parse().unwrap(),
                asset: "USDT".parse().unwrap(),
                window_seconds: seconds,
                max,
                decimals: types::Decimals::new(18).unwrap(),
            };
            let applied = limit.for_user(user);
            let headroom = intent::limit::repo::headroom_in(tx, &[applied]).await.unwrap();
            let used = every_request(tx, applied.user, seconds).await;
            let left = max.checked_sub(used).unwrap();
            let more = left.checked_add(types::RawAmount::from(1_u64)).unwrap();
            assert!(
                headroom.fits(&applied, left) && !headroom.fits(&applied, more),
                "{scope} within {seconds} s: {used}"
            );
            seen.insert(used);
        }
    }
    assert!(seen.len() > 12, "the windows hold different sums: {seen:?}");
}

/// Requests all over a day and a bit, some of them exactly where windows and hours begin.
const MANY: &str = "INSERT INTO withdrawal_requests (id, origin, idempotency_key, payload_hash, user_id, chain, asset, amount_raw, \
    decimals, destination, memo, priority_rank, labels, requested_by, required_approvals, status, last_sequence, created_at, \
    updated_at) \
    SELECT gen_random_uuid(), 'request', 'many-' || n, sha256('x'), \
           CASE WHEN n % 3 = 0 THEN $1 ELSE gen_random_uuid() END, 'bsc', CASE WHEN n % 7 = 0 THEN 'BNB' ELSE 'USDT' END, n, 18, \
           '0x1', '', 1, '{}', 'alice', 1, 'pending', 1, at, at \
    FROM generate_series(1, 900) AS n, LATERAL (SELECT CASE n % 10 \
        WHEN 0 THEN now() - (ARRAY[1, 59, 3600, 7200, 14400, 86400])[n / 10 % 6 + 1] * interval '1 s' \
        WHEN 1 THEN now() - (ARRAY[1, 59, 3600, 7200, 14400, 86400])[n / 10 % 6 + 1] * interval '1 s' + interval '1 us' \
        WHEN 2 THEN date_trunc('hour', now()) - n / 30 * interval '1 h' \
        WHEN 3 THEN date_trunc('hour', now()) - n / 30 * interval '1 h' - interval '1 us' \
        ELSE now() - n * interval '107.123457 s' END AS at) AS time";
const ENDED: &str = "UPDATE withdrawal_requests SET status = CASE WHEN amount_raw % 2 = 0 THEN 'rejected' ELSE 'cancelled' END, \
    failure_reason = 'x', finished_at = now(), last_sequence = 2 WHERE amount_raw % 5 = 0";

#[tokio::test(flavor = "multi_thread")]
async fn sums_by_the_hour_are_exact_wherever_a_window_begins() {
    let stack = stack().await;
    let user = UserId::new();
    // One transaction, so that the moment stays.
    let mut tx = db::begin(&stack.pool).await.unwrap();
    sqlx::query(MANY).bind(user.as_uuid()).execute(&mut *tx).await.unwrap();
    check_sums(&mut tx, user).await;
    // Approved is as good as pending; what ended without payment gives its room back, once.
    sqlx::query("UPDATE withdrawal_requests SET status = 'approved', approved_at = now(), last_sequence = 2 WHERE amount_raw % 5 = 1")
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query(ENDED).execute(&mut *tx).await.unwrap();
    check_sums(&mut tx, user).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_before_sums_were_kept_are_in_them() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &crate::support::migrations_before(30)).await.unwrap();
    let user = UserId::new();
    sqlx::query(MANY).bind(user.as_uuid()).execute(&pool).await.unwrap();
    sqlx::query(ENDED).execute(&pool).await.unwrap();
    db::migrate::run(&pool, &intent::MIGRATOR).await.unwrap();
    let mut tx = db::begin(&pool).await.unwrap();
    check_sums(&mut tx, user).await;
}
