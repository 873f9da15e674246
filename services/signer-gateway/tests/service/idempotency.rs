//! One key, one answer: through repeats, lost replies, restarts and take-overs.

use std::collections::HashSet;

use proto::signer::v1 as pb;
use tonic::Code;

use crate::support::*;

#[tokio::test]
async fn the_same_request_returns_the_same_bytes_before_and_after_a_restart() {
    let gateway = Gateway::start().await;
    let withdrawal = Withdrawal::new(&gateway, 0);
    let first = gateway.sign(&withdrawal.request()).await.expect("signed");
    assert!(!first.replayed);
    let second = gateway.sign(&withdrawal.request()).await.expect("replayed");
    assert!(second.replayed);
    let gateway = gateway.restart(true).await;
    let third = gateway.sign(&withdrawal.request()).await.expect("replayed");
    for replay in [&second, &third] {
        assert_eq!((&replay.raw_transaction, &replay.tx_hash), (&first.raw_transaction, &first.tx_hash));
    }
    let reasons: Vec<String> = gateway.audit().await.into_iter().map(|entry| entry.reason).collect();
    assert_eq!(reasons.iter().filter(|reason| *reason == "payment_guard.first").count(), 1);
    assert_eq!(reasons.iter().filter(|reason| *reason == "idempotency.replayed").count(), 2);
}

#[tokio::test]
async fn the_same_key_with_another_request_is_refused_naming_the_field() {
    let gateway = Gateway::start().await;
    let first = Withdrawal::new(&gateway, 0);
    gateway.sign(&first.request()).await.expect("signed");
    let changed = [
        (Withdrawal { nonce: 1, ..first.clone() }, "evm.nonce"),
        (Withdrawal { to: STRANGER.to_owned(), ..first.clone() }, "tx_intent.to"),
        (Withdrawal { amount: 1, ..first.clone() }, "tx_intent.amount"),
        (Withdrawal { max_fee: first.max_fee * 2, ..first.clone() }, "evm.max_fee_per_gas"),
    ];
    for (withdrawal, field) in changed {
        let request = withdrawal.approved_by(&["alice", "bob"]).request();
        let status = gateway.sign(&request).await.expect_err("refused");
        assert_eq!(status.code(), Code::AlreadyExists);
        let details = tonic_types::StatusExt::get_details_bad_request(&status).expect("details");
        assert_eq!(details.field_violations[0].field, field, "{status:?}");
    }
}

#[tokio::test]
async fn a_key_that_does_not_belong_to_the_job_is_refused() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    let other = types::JobId::new();
    for key in [String::new(), good.job.to_string(), format!("{other}/1"), format!("{}/", good.job)] {
        let request = pb::SignTransactionRequest { idempotency_key: key, ..good.request() };
        assert_eq!(gateway.sign(&request).await.expect_err("refused").code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_before_the_answer_gets_the_same_bytes_later() {
    let gateway = Gateway::start().await;
    let pool = gateway.database.pool().await;
    for nonce in 0..6u64 {
        let withdrawal = Withdrawal::small(&gateway, nonce);
        let request = withdrawal.request();
        let (asker, asked) = (gateway.service.clone(), request.clone());
        let lost = tokio::spawn(async move { asker.clone().sign_transaction(asked).await });
        // The row is committed; the answer is on its way or not yet sent. Then the caller dies.
        testkit::wait_for("the record", std::time::Duration::from_secs(10), || async {
            let found: i64 =
                sqlx::query_scalar("SELECT count(*) FROM signing_records WHERE idempotency_key = $1")
                    .bind(&request.idempotency_key)
                    .fetch_one(&pool)
                    .await
                    .expect("counted");
            found == 1
        })
        .await;
        lost.abort();
        let again = gateway.sign(&request).await.expect("replayed");
        assert!(again.replayed);
        let stored: Vec<u8> =
            sqlx::query_scalar("SELECT raw_transaction FROM signing_records WHERE idempotency_key = $1")
                .bind(&request.idempotency_key)
                .fetch_one(&pool)
                .await
                .expect("stored");
        assert_eq!(again.raw_transaction, stored);
    }
}

#[tokio::test]
async fn many_callers_at_once_get_one_signature_each_and_one_for_a_shared_key() {
    let gateway = Gateway::start().await;
    let shared = Withdrawal::small(&gateway, 1000);
    let mut tasks = Vec::new();
    for nonce in 0..64u64 {
        let own = Withdrawal::small(&gateway, nonce);
        for request in [own.request(), shared.request()] {
            let mut service = gateway.service.clone();
            tasks.push(tokio::spawn(async move { service.sign_transaction(request).await }));
        }
    }
    let mut hashes = HashSet::new();
    let mut fresh = 0;
    for task in tasks {
        let answer = task.await.expect("joined").expect("signed").into_inner();
        fresh += usize::from(!answer.replayed);
        hashes.insert(answer.tx_hash);
    }
    assert_eq!((hashes.len(), fresh), (65, 65));
    let report = gateway.verify(None).await;
    assert!(report.intact, "{}", report.problem);
}

#[tokio::test]
async fn two_replicas_share_one_guard_and_one_log() {
    let gateway = Gateway::start().await;
    let (_running, other) = gateway.replica().await;
    let mut tasks = Vec::new();
    for nonce in 0..32u64 {
        let first = Withdrawal::small(&gateway, 2 * nonce);
        let second = Withdrawal { attempt: 2, nonce: 2 * nonce + 1, ..first.clone() };
        for (mut client, request) in
            [(gateway.service.clone(), first.request()), (other.clone(), second.request())]
        {
            tasks.push(tokio::spawn(async move {
                (request.job_id.clone(), client.sign_transaction(request).await)
            }));
        }
    }
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.expect("joined") {
            (job, Ok(_)) => winners.push(job),
            (_, Err(status)) => {
                assert_eq!(rpc::error::reason_of(&status).as_deref(), Some("PAYMENT_GUARD_SECOND_NONCE"));
            }
        }
    }
    assert_eq!(winners.len(), 32);
    assert_eq!(winners.iter().collect::<HashSet<_>>().len(), 32, "one signature per payment");
    let report = gateway.verify(None).await;
    assert!(report.intact, "{}", report.problem);
}

#[tokio::test]
async fn no_index_depends_on_the_servers_locale() {
    let gateway = Gateway::start().await;
    let found: Vec<String> = sqlx::query_scalar(
        "SELECT index.relname::text FROM pg_index \
         JOIN pg_class AS index ON index.oid = pg_index.indexrelid \
         CROSS JOIN LATERAL unnest(indcollation::oid[]) AS used (rules) \
         JOIN pg_collation ON pg_collation.oid = used.rules \
         WHERE index.relnamespace = 'public'::regnamespace AND collname <> 'C'",
    )
    .fetch_all(&gateway.database.pool().await)
    .await
    .expect("read");
    assert!(found.is_empty(), "the guard would forget what these miss after an upgrade: {found:?}");
}
