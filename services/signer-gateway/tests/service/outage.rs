//! Without its database the gateway does nothing; afterwards nothing is doubled.

use std::time::Duration;

use proto::signer::v1 as pb;
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
async fn a_database_that_goes_silent_holds_nobody_up_for_ever() {
    let database = testkit::postgres().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let gateway = Gateway::start_on(database, &url).await;
    let withdrawal = Withdrawal::new(&gateway, 0);
    proxy.lose_replies().await;
    let status = gateway.sign(&withdrawal.request()).await.expect_err("silence");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    proxy.pass().await;
    // The session that went silent still holds its transaction; the server ends it, as it would after its own timeout.
    gateway.database.cut_sessions().await;
    testkit::wait_for_value("a signature", Duration::from_secs(20), || async {
        gateway.sign(&withdrawal.request()).await.ok()
    })
    .await;
}

#[tokio::test]
async fn sessions_cut_at_any_step_lead_to_one_signature() {
    let gateway = Gateway::start().await;
    let mut pool = gateway.database.pool().await;
    for nonce in 0..12u64 {
        let withdrawal = Withdrawal::small(&gateway, nonce);
        let request = withdrawal.request();
        let asked = tokio::spawn({
            let (mut service, request) = (gateway.service.clone(), request.clone());
            async move { service.sign_transaction(request).await }
        });
        // Every other time not before the commit, whose reply may then be lost.
        if nonce % 2 == 1 {
            testkit::wait_for("the record", Duration::from_secs(10), || async {
                records(&pool, &request.idempotency_key).await.len() == 1
            })
            .await;
        }
        gateway.database.cut_sessions().await;
        let _ = asked.await.expect("joined");
        let signed = testkit::wait_for_value("a signature", Duration::from_secs(20), || async {
            gateway.sign(&request).await.ok()
        })
        .await;
        // The test's own sessions were cut as well.
        pool = gateway.database.pool().await;
        assert_eq!(records(&pool, &request.idempotency_key).await, [signed.raw_transaction]);
    }
    // The gateway may still hold sessions that were cut: it says that it is away, and is asked again.
    let report = testkit::wait_for_value("the audit's report", Duration::from_secs(20), || async {
        gateway.operator.clone().verify_audit(pb::VerifyAuditRequest::default()).await.ok()
    })
    .await
    .into_inner();
    assert!(report.intact, "{}", report.problem);
}

async fn records(pool: &sqlx::PgPool, key: &str) -> Vec<Vec<u8>> {
    sqlx::query_scalar("SELECT raw_transaction FROM signing_records WHERE idempotency_key = $1")
        .bind(key)
        .fetch_all(pool)
        .await
        .expect("rows")
}
