//! Limits bound what a stolen key can take.

use proto::signer::v1 as pb;
use sqlx::AssertSqlSafe;
use tonic::Code;

use crate::support::*;

fn sized(gateway: &Gateway, nonce: u64, amount: u128) -> Withdrawal {
    Withdrawal { amount, ..Withdrawal::new(gateway, nonce) }.approved_by(&["alice", "bob"])
}

#[tokio::test]
async fn a_withdrawal_above_the_limit_of_one_transaction_is_refused_however_approved() {
    let gateway = Gateway::start().await;
    let above = sized(&gateway, 0, 10 * ETHER + 1).approved_by(&["alice", "bob", "carol"]);
    gateway.refused(&above.request(), Code::PermissionDenied, "limit.transaction").await;
    gateway.sign(&sized(&gateway, 0, 10 * ETHER).request()).await.expect("at the limit");
}

#[tokio::test]
async fn tiers_ask_for_more_approvers_of_larger_amounts() {
    let gateway = Gateway::start().await;
    let small = sized(&gateway, 0, ETHER).approved_by(&["carol"]);
    gateway.sign(&small.request()).await.expect("one approval suffices");
    let large = sized(&gateway, 1, ETHER + 1).approved_by(&["carol"]);
    gateway.refused(&large.request(), Code::PermissionDenied, "approvals.too_few").await;
}

#[tokio::test]
async fn the_window_counts_a_payment_once_and_holds_in_one_batch() {
    let gateway = Gateway::start().await;
    // The window takes 15: seven of 2, however they arrive.
    let mut tasks = Vec::new();
    for nonce in 0..10 {
        let request = sized(&gateway, nonce, 2 * ETHER).request();
        let mut service = gateway.service.clone();
        tasks.push(tokio::spawn(async move { (request.clone(), service.sign_transaction(request).await) }));
    }
    let mut signed = Vec::new();
    for task in tasks {
        let (request, answer) = task.await.expect("joined");
        match answer {
            Ok(_) => signed.push(request),
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
        }
    }
    assert_eq!(signed.len(), 7);
    // Replays and replacements move no further money.
    let mut bump = signed.remove(0);
    gateway.sign(&bump).await.expect("replayed");
    bump.idempotency_key = format!("{}/2", bump.job_id);
    if let Some(pb::sign_transaction_request::Parameters::Evm(it)) = bump.parameters.as_mut() {
        it.max_fee_per_gas = "9000000000".to_owned();
    }
    gateway.sign(&bump).await.expect("bumped");
    gateway.sign(&sized(&gateway, 50, ETHER).request()).await.expect("the rest");
    let over = sized(&gateway, 51, 1).request();
    gateway.refused(&over, Code::ResourceExhausted, "limit.window").await;
    // Another asset has a window of its own.
    let token = Withdrawal { token: true, amount: 1_000, ..Withdrawal::new(&gateway, 52) };
    gateway.sign(&token.approved_by(&["alice", "bob"]).request()).await.expect("another asset");
}

#[tokio::test]
async fn an_old_minute_leaves_the_window() {
    let gateway = Gateway::start().await;
    gateway.sign(&sized(&gateway, 0, 10 * ETHER).request()).await.expect("signed");
    let next = sized(&gateway, 1, 10 * ETHER);
    gateway.refused(&next.request(), Code::ResourceExhausted, "limit.window").await;
    let pool = gateway.database.pool().await;
    let age = |sql: &'static str| sqlx::query(sql).execute(&pool);
    age("UPDATE limit_usage SET minute = minute - interval '59 minutes'").await.expect("aged");
    gateway.refused(&next.request(), Code::ResourceExhausted, "limit.window").await;
    age("UPDATE limit_usage SET minute = minute - interval '3 minutes'").await.expect("aged");
    gateway.sign(&next.request()).await.expect("the window moved on");
}

#[tokio::test]
async fn a_window_of_days_is_as_exact_as_one_of_an_hour() {
    let gateway = Gateway::start().await;
    let amount = "amount = \"15000000000000000000\"";
    let (hour, days) = (format!("window_s = 3600, {amount}"), format!("window_s = 259200, {amount}"));
    let settings = gateway.settings();
    assert!(settings.contains(&hour));
    gateway.running.reload(&settings.replace(&hour, &days)).expect("reloaded");
    gateway.sign(&sized(&gateway, 0, 10 * ETHER).request()).await.expect("signed");
    let next = sized(&gateway, 1, 10 * ETHER);
    let pool = gateway.database.pool().await;
    for age in ["1 hour", "22 hours 10 minutes", "48 hours 45 minutes"] {
        gateway.refused(&next.request(), Code::ResourceExhausted, "limit.window").await;
        let sql = format!("UPDATE limit_usage SET minute = minute - interval '{age}'");
        sqlx::query(AssertSqlSafe(sql)).execute(&pool).await.expect("aged");
    }
    // Five minutes less than the window, and then a minute more.
    gateway.refused(&next.request(), Code::ResourceExhausted, "limit.window").await;
    sqlx::query("UPDATE limit_usage SET minute = minute - interval '6 minutes'")
        .execute(&pool)
        .await
        .expect("aged");
    gateway.sign(&next.request()).await.expect("the window moved on");
    let differ = gateway.count(
        "SELECT count(*) FROM (SELECT chain, counter, date_trunc('hour', minute, 'UTC') AS hour, sum(amount) AS amount \
         FROM limit_usage GROUP BY 1, 2, 3) AS minutes \
         FULL JOIN limit_hours AS hours USING (chain, counter, hour) \
         WHERE coalesce(minutes.amount, 0) <> coalesce(hours.amount, 0)",
    );
    assert_eq!(differ.await, 0, "hours are the sums of their minutes");
}

#[tokio::test]
async fn fees_have_a_window_so_that_cancellations_cannot_burn_a_wallet() {
    let gateway = Gateway::start().await;
    // Each may cost just under 0.01; the window takes 1.
    let mut signed = 0;
    for nonce in 0..120 {
        let burn = Withdrawal { max_fee: 150_000_000_000, ..Withdrawal::new(&gateway, nonce) };
        match gateway.sign(&burn.cancellation()).await {
            Ok(_) => signed += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                break;
            }
        }
    }
    assert_eq!(signed, 102);
}
