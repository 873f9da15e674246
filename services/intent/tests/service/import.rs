//! Payments that another system had broadcast.

use chrono::{SubsecRound as _, TimeDelta, Utc};
use futures::future::join_all;
use proto::intent::v1 as pb;
use tonic::{Code, Status};
use types::{UserId, WithdrawalId};

use crate::support::execution::NextCall;
use crate::support::{
    HASH, HOT_WALLET, OTHER_HASH, WALLET, completed, create, fields, queued, reason, stack,
};

fn import(id: &str) -> pb::ImportWithdrawalRequest {
    pb::ImportWithdrawalRequest {
        id: id.to_owned(),
        user_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        chain: "bsc".to_owned(),
        asset: "USDT".to_owned(),
        amount: "100".to_owned(),
        destination: WALLET.to_owned(),
        from_address: HOT_WALLET.to_owned(),
        tx_hash: HASH.to_owned(),
        created_at: Some(proto::time::timestamp((Utc::now() - TimeDelta::hours(3)).trunc_subsecs(0))),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_payment_is_queued_told_to_execution_and_watched_to_its_end() {
    let stack = stack().await;
    // Another system's ids are of any version.
    let request = import("9a1b2c3d-0000-4000-8000-123456789abc");
    let calls = (0..5).map(|_| async { stack.intent("ops").import_withdrawal(request.clone()).await });
    let results = join_all(calls).await;
    let stored: Vec<_> =
        results.into_iter().map(|result| result.unwrap().into_inner().withdrawal.unwrap()).collect();
    assert!(stored.iter().all(|withdrawal| withdrawal == &stored[0]));
    let withdrawal = &stored[0];
    assert_eq!(withdrawal.status(), pb::WithdrawalStatus::Queued);
    assert_eq!((withdrawal.created_at, withdrawal.required_approvals), (request.created_at, 0));
    assert_eq!(withdrawal.final_tx_hash, "", "not final yet");
    let sent = || async { stack.execution.imported().len() == 1 && stack.outbox().await == 0 };
    testkit::wait_for("execution to receive it once", crate::support::PATIENCE, sent).await;
    let message = stack.execution.imported().remove(0);
    assert_eq!(message.withdrawal_id, request.id);
    assert_eq!((message.amount_raw.as_str(), message.tx_hash.as_str()), ("100000000000000000000", HASH));
    assert_eq!(message.created_at, request.created_at);
    stack.report(&request.id, Utc::now(), completed(HASH)).await.unwrap();
    assert_eq!(stack.get(&request.id).await.status(), pb::WithdrawalStatus::Completed);
    let details: Vec<_> =
        stack.transitions(&request.id).await.into_iter().map(|entry| entry.detail).collect();
    assert!(details[0].contains(HASH), "{details:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_differs_or_makes_no_sense_is_refused() {
    let stack = stack().await;
    let id = WithdrawalId::new().to_string();
    let first = import(&id);
    stack.intent("ops").import_withdrawal(first.clone()).await.unwrap();
    let mut other = pb::ImportWithdrawalRequest { tx_hash: OTHER_HASH.to_owned(), ..first.clone() };
    other.user_id = UserId::new().to_string();
    let refused = stack.intent("ops").import_withdrawal(other).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::AlreadyExists, "IMPORT_DIFFERS"));
    assert_eq!(fields(&refused), ["user_id,tx_hash"]);
    let made_here = stack.create(create("order-1")).await.unwrap();
    let refused = stack.intent("ops").import_withdrawal(import(&made_here.id)).await.unwrap_err();
    assert_eq!(fields(&refused), ["id"]);
    let refused =
        stack.intent("ops").import_withdrawal(pb::ImportWithdrawalRequest::default()).await.unwrap_err();
    assert_eq!(fields(&refused), ["id", "user_id", "chain", "asset", "tx_hash", "created_at"]);
    let bad = pb::ImportWithdrawalRequest {
        amount: "0".to_owned(),
        destination: "x".to_owned(),
        from_address: "y".to_owned(),
        created_at: Some(proto::time::timestamp(Utc::now() + TimeDelta::hours(1))),
        ..import(&WithdrawalId::new().to_string())
    };
    let refused = stack.intent("ops").import_withdrawal(bad).await.unwrap_err();
    assert_eq!(fields(&refused), ["destination", "from_address", "amount", "created_at"]);
    for key in ["import:1".to_owned(), format!("import:{id}")] {
        let refused = stack.create(create(&key)).await.unwrap_err();
        assert_eq!(fields(&refused), ["idempotency_key"], "{key}");
    }
    let refused = stack.cancel("ops", &id).await.unwrap_err();
    assert_eq!(reason(&refused), "ILLEGAL_TRANSITION");
    assert_eq!(
        stack.intent("alice").import_withdrawal(first).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_execution_would_refuse_for_ever_is_refused_when_it_is_imported() {
    let stack = stack().await;
    for foreign in [WALLET, crate::support::TOKEN] {
        let request = pb::ImportWithdrawalRequest {
            from_address: foreign.to_owned(),
            ..import(&WithdrawalId::new().to_string())
        };
        let refused = stack.intent("ops").import_withdrawal(request).await.unwrap_err();
        assert_eq!(
            (refused.code(), fields(&refused)),
            (Code::InvalidArgument, vec!["from_address".to_owned()])
        );
    }
    // One transaction is one payment, however many say it is theirs, and at the same moment.
    let calls = (0..5).map(|_| async {
        stack.intent("ops").import_withdrawal(import(&WithdrawalId::new().to_string())).await
    });
    let (stored, refused): (Vec<_>, Vec<_>) = join_all(calls).await.into_iter().partition(Result::is_ok);
    assert_eq!((stored.len(), refused.len()), (1, 4));
    for refused in refused.into_iter().filter_map(Result::err) {
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["tx_hash".to_owned()]));
    }
    assert_eq!(
        stack.count("SELECT count(*) FROM withdrawal_requests").await,
        1,
        "nothing of the others is left"
    );
    let other = pb::ImportWithdrawalRequest {
        tx_hash: OTHER_HASH.to_owned(),
        ..import(&WithdrawalId::new().to_string())
    };
    stack.intent("ops").import_withdrawal(other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_execution_refuses_all_the_same_says_so_until_it_is_taken() {
    let stack = stack().await;
    stack.execution.next(NextCall::Refuse(Status::invalid_argument("the wallet only watches")));
    let id = WithdrawalId::new().to_string();
    stack.intent("ops").import_withdrawal(import(&id)).await.unwrap();
    let shown = || async { stack.get(&id).await.blocked_reason.contains("the wallet only watches") };
    testkit::wait_for("the refusal on the request", crate::support::PATIENCE, shown).await;
    assert_eq!(stack.get(&id).await.status(), pb::WithdrawalStatus::Queued);
    stack.report(&id, Utc::now(), queued()).await.unwrap();
    assert_eq!(stack.get(&id).await.blocked_reason, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_that_named_one_transaction_before_that_was_refused_stay_as_they_are() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &crate::support::migrations_before(24)).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO withdrawal_requests (id, origin, idempotency_key, payload_hash, user_id, chain, asset, amount_raw, decimals, \
         destination, memo, priority_rank, labels, requested_by, required_approvals, status, last_sequence, created_at, \
         updated_at, queued_at) \
         SELECT gen_random_uuid(), 'import', 'import:' || n, sha256('x'), gen_random_uuid(), 'bsc', 'USDT', 5, 18, '0x1', '', 1, \
         '{}', 'ops', 0, 'queued', 1, now(), now() + n * interval '1 s', now() FROM generate_series(1, 3) AS n; \
         INSERT INTO imports SELECT id, '0x2', '0x3' FROM withdrawal_requests",
    )
    .execute(&pool)
    .await
    .unwrap();
    db::migrate::run(&pool, &intent::MIGRATOR).await.unwrap();
    let kept: (i64, i64) =
        sqlx::query_as("SELECT count(*), count(chain) FROM imports").fetch_one(&pool).await.unwrap();
    assert_eq!(kept, (3, 1));
    // As the previous binary writes it.
    sqlx::raw_sql("DELETE FROM imports WHERE chain IS NULL").execute(&pool).await.unwrap();
    let again = "INSERT INTO imports (request_id, from_address, tx_hash) SELECT id, '0x2', '0x3' FROM withdrawal_requests \
                 WHERE id NOT IN (SELECT request_id FROM imports) LIMIT 1";
    let refused = sqlx::raw_sql(again).execute(&pool).await.unwrap_err();
    assert_eq!(db::constraint(&refused), Some("imports_transaction_once"));
}
