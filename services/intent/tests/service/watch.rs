//! A watch sees every step, in order, from where it is resumed.

use std::time::Duration;

use chrono::Utc;
use intent::Intent;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use tonic::{Code, Streaming};

use crate::support::{HASH, Stack, client, completed, config, create, queued, reason, stack};

type Stream = Streaming<pb::WatchWithdrawalResponse>;

async fn watch(stack: &Stack, id: &str, after: u64) -> Stream {
    let request = pb::WatchWithdrawalRequest { id: id.to_owned(), after_sequence: after };
    stack.intent("alice").watch_withdrawal(request).await.unwrap().into_inner()
}

/// The next sequence; `None` at the end of the stream.
async fn next(stream: &mut Stream) -> Option<u64> {
    let message = tokio::time::timeout(Duration::from_secs(20), stream.message()).await.unwrap().unwrap();
    message.map(|message| message.transition.unwrap().sequence)
}

async fn rest(stream: &mut Stream) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(sequence) = next(stream).await {
        seen.push(sequence);
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_follows_to_the_end_and_resumes_anywhere() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let mut all = watch(&stack, &withdrawal.id, 0).await;
    assert_eq!(next(&mut all).await, Some(1));
    let mut later = watch(&stack, &withdrawal.id, 1).await;
    stack.approve(&withdrawal, "ann").await.unwrap();
    assert_eq!((next(&mut all).await, next(&mut later).await), (Some(2), Some(2)));
    // Broken off, and resumed after the last one seen.
    drop(later);
    stack.approve(&withdrawal, "cid").await.unwrap();
    stack.report(&withdrawal.id, Utc::now(), queued()).await.unwrap();
    let mut resumed = watch(&stack, &withdrawal.id, 2).await;
    assert_eq!(next(&mut resumed).await, Some(3));
    stack.report(&withdrawal.id, Utc::now(), completed(HASH)).await.unwrap();
    assert_eq!(rest(&mut all).await, [3, 4, 5, 6]);
    assert_eq!(rest(&mut resumed).await, [4, 5, 6]);
    assert_eq!(
        rest(&mut watch(&stack, &withdrawal.id, 6).await).await,
        [0_u64; 0],
        "nothing follows the end"
    );
    assert_eq!(rest(&mut watch(&stack, &withdrawal.id, u64::MAX).await).await, [0_u64; 0]);
    assert_eq!(rest(&mut watch(&stack, &withdrawal.id, 0).await).await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_message_shows_the_request_as_it_ended_whenever_that_was() {
    let stack = stack().await;
    let withdrawal = stack.approved("order-1").await;
    stack.report(&withdrawal.id, Utc::now(), queued()).await.unwrap();
    // The end is committed between a watch's look at the request and its look at the history.
    let mut tx = db::begin(&stack.pool).await.unwrap();
    sqlx::raw_sql("LOCK TABLE transitions IN ACCESS EXCLUSIVE MODE").execute(&mut *tx).await.unwrap();
    let mut stream = watch(&stack, &withdrawal.id, 5).await;
    testkit::wait_for("the watch to reach the history", crate::support::PATIENCE, || async {
        let waiting =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'transitions'::regclass";
        stack.count(waiting).await > 0
    })
    .await;
    sqlx::query(
        "UPDATE withdrawal_requests SET status = 'completed', final_tx_hash = $1, final_block = 77, last_sequence = 6, \
         finished_at = now(), updated_at = now()",
    )
    .bind(HASH)
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::query("INSERT INTO transitions SELECT id, 6, 'queued', 'completed', 'test', 'paid', now() FROM withdrawal_requests")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let last =
        tokio::time::timeout(crate::support::PATIENCE, stream.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(last.transition.unwrap().to(), pb::WithdrawalStatus::Completed);
    let shown = last.withdrawal.unwrap();
    assert_eq!((shown.status(), shown.final_tx_hash.as_str()), (pb::WithdrawalStatus::Completed, HASH));
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_taken_on_another_instance_are_seen() {
    let stack = stack().await;
    let text = config(stack.database.url(), &stack.execution.url(), "");
    let other = service::launch::<Intent>(&text).await.unwrap();
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let request = pb::WatchWithdrawalRequest { id: withdrawal.id.clone(), after_sequence: 1 };
    let mut there = IntentServiceClient::new(client(&other.url(), "alice"));
    let mut stream = there.watch_withdrawal(request).await.unwrap().into_inner();
    stack.approve(&withdrawal, "ann").await.unwrap();
    assert_eq!(next(&mut stream).await, Some(2));
    stack.database.cut_sessions().await;
    testkit::wait_for("the database", crate::support::PATIENCE, || async {
        stack.approve(&withdrawal, "cid").await.is_ok_and(|w| w.status() == pb::WithdrawalStatus::Approved)
    })
    .await;
    assert_eq!(next(&mut stream).await, Some(3), "the listening connection came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_outlives_the_connections_to_the_database() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let pool = db::connect_lazy(&db::DatabaseConfig::new(stack.database.url(), "watch")).unwrap();
    let hub = intent::withdrawal::watch::Hub::new(pool);
    let mut watcher = hub.watch(withdrawal.id.parse().unwrap(), 0).await.unwrap();
    // The pool has used its connection a moment ago and does not ask it for a sign of life.
    stack.database.cut_sessions().await;
    let (first, _) = watcher.next().await.unwrap().unwrap();
    assert_eq!(first.sequence, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watchers_of_many_requests_each_see_their_own() {
    let stack = stack().await;
    let mut streams = Vec::new();
    for n in 0..10 {
        let withdrawal = stack.create(create(&format!("order-{n}"))).await.unwrap();
        streams.push((watch(&stack, &withdrawal.id, 1).await, withdrawal.clone()));
        streams.push((watch(&stack, &withdrawal.id, 1).await, withdrawal));
    }
    for (_, withdrawal) in streams.iter().step_by(2) {
        stack.cancel("alice", &withdrawal.id).await.unwrap();
    }
    for (stream, _) in &mut streams {
        assert_eq!(rest(stream).await, [2]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_ends_a_watch_with_an_error_and_not_as_if_it_were_over() {
    let stack = stack().await;
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    let mut stream = watch(&stack, &withdrawal.id, 0).await;
    assert_eq!(next(&mut stream).await, Some(1));
    let Stack { running, .. } = stack;
    running.stop().await.unwrap();
    let ended = stream.message().await.unwrap_err();
    assert_eq!((ended.code(), reason(&ended).as_str()), (Code::Unavailable, "DRAINING"));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_nothing_to_watch_of_an_unknown_request() {
    let stack = stack().await;
    let request =
        pb::WatchWithdrawalRequest { id: types::WithdrawalId::new().to_string(), after_sequence: 0 };
    let refused = stack.intent("alice").watch_withdrawal(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}
