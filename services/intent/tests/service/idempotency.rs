//! One key, one request, for ever.

use futures::future::join_all;
use proto::intent::v1 as pb;
use tonic::Code;
use types::UserId;

use crate::support::{HOT_WALLET, RpcResult, create, create_for, entry, fields, reason, stack};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_identical_calls_at_once_make_one_request() {
    let stack = stack().await;
    let results = join_all((0..20).map(|_| stack.create(create("order-1")))).await;
    let first = results[0].as_ref().unwrap();
    for result in &results {
        assert_eq!(result.as_ref().unwrap(), first);
    }
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 1);
    assert_eq!(stack.count("SELECT count(*) FROM transitions").await, 1);
    assert_eq!(first.amount_raw, "12500000000000000000");
    assert_eq!(first.status(), pb::WithdrawalStatus::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_not_counted_against_the_limit_it_filled() {
    let stack = stack().await;
    crate::limits::put(&stack, pb::LimitScope::User, "12.5", 3600).await;
    crate::limits::put(&stack, pb::LimitScope::Asset, "12.5", 3600).await;
    let results = join_all((0..20).map(|_| stack.create(create("order-1")))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let refused = stack.create(create("order-2")).await.unwrap_err();
    assert_eq!(reason(&refused), "LIMIT_EXCEEDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_payload_under_the_same_key_names_what_differs() {
    let stack = stack().await;
    stack.create(create("order-1")).await.unwrap();
    type Change = fn(&mut pb::CreateWithdrawalRequest);
    let changes: [(&str, Change); 8] = [
        ("user_id", |r| r.user_id = UserId::new().to_string()),
        ("chain", |r| r.chain = "tron".to_owned()),
        ("asset", |r| r.asset = "BNB".to_owned()),
        ("amount", |r| r.amount = "12.6".to_owned()),
        ("destination", |r| r.destination = HOT_WALLET.to_owned()),
        ("memo", |r| r.memo = "other".to_owned()),
        ("priority", |r| r.priority = pb::Priority::Low.into()),
        ("labels", |r| r.labels.clear()),
    ];
    for (field, change) in changes {
        let mut other = create("order-1");
        change(&mut other);
        let refused = stack.create(other).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{field}: {refused}");
        assert_eq!(reason(&refused), "IDEMPOTENCY_KEY_REUSED");
        assert_eq!(fields(&refused), [field], "{refused}");
    }
    let mut two = create("order-1");
    two.amount = "1".to_owned();
    two.memo = String::new();
    assert_eq!(fields(&stack.create(two).await.unwrap_err()), ["amount,memo"]);
    let other_caller = stack.intent("mallory").create_withdrawal(create("order-1")).await.unwrap_err();
    assert_eq!(fields(&other_caller), ["requested_by"]);
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_is_refused_as_such_and_disturbs_nobody_beside_it() {
    let stack = stack().await;
    let imported = format!("import:{}", UserId::new());
    let bad = ["", "a\0b", " order-1", imported.as_str()];
    let calls = bad.iter().map(|key| create(key)).chain((0..8).map(|n| create(&format!("order-{n}"))));
    let results = join_all(calls.map(|call| stack.create(call))).await;
    for (key, result) in bad.iter().zip(&results) {
        let refused = result.as_ref().unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{key:?}: {refused}");
        assert_eq!(fields(refused), ["idempotency_key"], "{key:?}");
    }
    assert!(results[bad.len()..].iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_with_two_payloads_agree_on_one() {
    let stack = stack().await;
    let calls = (0..20).map(|n| {
        let mut request = create("order-1");
        request.memo = format!("memo {}", n % 2);
        stack.create(request)
    });
    let results = join_all(calls).await;
    let (good, bad): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (10, 10));
    assert!(bad.iter().all(|result| result.as_ref().unwrap_err().code() == Code::AlreadyExists));
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_answers_the_same_whatever_has_changed_since() {
    let stack = stack().await;
    let first = stack.create(create("order-1")).await.unwrap();
    let mut disabled = entry("bsc", "USDT", 6, crate::support::TOKEN);
    disabled.enabled = false;
    disabled.revision = 2;
    disabled.min_withdrawal_raw = "1000000000".to_owned();
    disabled.own_addresses.push(crate::support::WALLET.to_owned());
    stack.put_entry(disabled).await;
    // Other spellings of the same values.
    let mut again = create("order-1");
    again.amount = "12.50".to_owned();
    again.destination = again.destination.to_lowercase();
    assert_eq!(stack.create(again).await.unwrap(), first);
    assert_eq!(stack.create(create("order-2")).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_itself_holds_key_and_payload_together() {
    let stack = stack().await;
    stack.create(create("order-1")).await.unwrap();
    for (sql, constraint) in [
        ("UPDATE withdrawal_requests SET amount_raw = 1", "withdrawal_requests_payload_fixed"),
        ("UPDATE withdrawal_requests SET idempotency_key = 'x'", "withdrawal_requests_payload_fixed"),
        ("UPDATE withdrawal_requests SET destination = 'x'", "withdrawal_requests_payload_fixed"),
        ("UPDATE withdrawal_requests SET status = 'completed'", "withdrawal_requests_edge_known"),
        (
            "UPDATE withdrawal_requests SET status = 'approved'",
            "withdrawal_requests_approved_at_once_approved",
        ),
        ("UPDATE withdrawal_requests SET final_tx_hash = '0x'", "withdrawal_requests_hash_when_completed"),
        (
            "UPDATE withdrawal_requests SET blocked_reason = 'x'",
            "withdrawal_requests_blocked_only_on_the_way",
        ),
        ("DELETE FROM withdrawal_requests", "withdrawal_requests_never_deleted"),
        ("UPDATE transitions SET detail = 'x'", "transitions_written_once"),
        ("DELETE FROM transitions", "transitions_written_once"),
    ] {
        let error = sqlx::query(sql).execute(&stack.pool).await.unwrap_err();
        assert_eq!(db::constraint(&error), Some(constraint), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_mended_by_calling_again_with_the_key() {
    let stack = stack().await;
    for round in 0..5 {
        let request = create_for(&format!("order-{round}"), UserId::new(), "1");
        let (first, ()) = tokio::join!(stack.create(request.clone()), stack.database.cut_sessions());
        // Whatever the first call knew, repeating it until it is answered gives one request.
        let insist = |mut result: RpcResult<pb::Withdrawal>| async {
            while let Err(status) = &result {
                assert!(matches!(status.code(), Code::Unavailable | Code::Aborted), "{status}");
                result = stack.create(request.clone()).await;
            }
            result.unwrap()
        };
        let stored = insist(first).await;
        assert_eq!(insist(stack.create(request.clone()).await).await.id, stored.id);
    }
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 5);
}
