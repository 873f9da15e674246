//! Without its database the gateway does nothing; afterwards nothing is doubled.

use std::time::Duration;

use testkit::FaultProxy;
use tonic::Code;

use crate::support::*;

#[tokio::test]
async fn without_its_database_nothing_is_signed_and_it_recovers_by_itself() {
    let database = testkit::postgres().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let gateway = Gateway::start_on(database, &url).await;
    let withdrawal = Withdrawal::new(&gateway, 0);
    proxy.refuse().await;
    let status = gateway.sign(&withdrawal.request()).await.expect_err("no database");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    proxy.pass().await;
    let signed = testkit::wait_for_value("a signature", Duration::from_secs(20), || async {
        gateway.sign(&withdrawal.request()).await.ok()
    })
    .await;
    let again = gateway.sign(&withdrawal.request()).await.expect("replayed");
    assert_eq!(again.raw_transaction, signed.raw_transaction);
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_signs_once() {
    let database = testkit::postgres().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let gateway = Gateway::start_on(database, &url).await;
    let pool = gateway.database.pool().await;
    for nonce in 0..5u64 {
        let withdrawal =
            Withdrawal { amount: 1, ..Withdrawal::new(&gateway, nonce) }.approved_by(&["alice", "bob"]);
        let request = withdrawal.request();
        let asked = tokio::spawn({
            let (mut service, request) = (gateway.service.clone(), request.clone());
            async move { service.sign_transaction(request).await }
        });
        // Wherever in the protocol the sessions end, the same key must lead to one signature.
        gateway.database.cut_sessions().await;
        let _ = asked.await.expect("joined");
        let signed = testkit::wait_for_value("a signature", Duration::from_secs(20), || async {
            gateway.sign(&request).await.ok()
        })
        .await;
        let stored: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT raw_transaction FROM signing_records WHERE idempotency_key = $1")
                .bind(&request.idempotency_key)
                .fetch_all(&pool)
                .await
                .expect("rows");
        assert_eq!(stored, [signed.raw_transaction]);
    }
    let report = gateway.verify(None).await;
    assert!(report.intact, "{}", report.problem);
}
