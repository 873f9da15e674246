//! Sleepers on a real PostgreSQL: woken by a push, without polling, and again after the listener lost its connection.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use std::time::{Duration, Instant};

use common::*;
use db::{Due, Wake, WakeSubscription, Waker};
use sqlx::PgPool;
use types::Priority;

/// Far longer than any of these tests may take: whoever wakes before was woken.
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_push_wakes_a_sleeper_at_once() {
    let (base, queue) = queue_base().await;
    let waker = Waker::start(&base.pool);
    let mut subscription = waker.subscribe(queue.name());
    deep_asleep(&base.pool, &mut subscription, queue.name()).await;
    let waiting = tokio::spawn(async move { subscription.wait(NEVER).await });
    let pushed = Instant::now();
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    assert_eq!(waiting.await.unwrap(), Wake::Notified);
    assert!(pushed.elapsed() < Duration::from_secs(5), "{:?}", pushed.elapsed());
}

#[tokio::test]
async fn other_queues_and_rolled_back_pushes_wake_nobody() {
    let (base, queue) = queue_base().await;
    let waker = Waker::start(&base.pool);
    let mut subscription = waker.subscribe(queue.name());
    let mut witness = waker.subscribe("gas/bsc");
    deep_asleep(&base.pool, &mut subscription, queue.name()).await;
    deep_asleep(&base.pool, &mut witness, "gas/bsc").await;
    let mut tx = db::begin(&base.pool).await.unwrap();
    queue.push_in(&mut tx, uuid::Uuid::now_v7(), Priority::Normal, Due::Now).await.unwrap();
    tx.rollback().await.unwrap();
    push(&base.pool, &queue, Priority::Normal, Due::In(NEVER)).await;
    push(&base.pool, &db::Queue::new("gas/bsc"), Priority::Normal, Due::Now).await;
    // Notifications come in order: once the witness is awake, the subscription would be too.
    assert_eq!(witness.wait(NEVER).await, Wake::Notified);
    assert_eq!(subscription.wait(Duration::ZERO).await, Wake::Elapsed);
}

#[tokio::test]
async fn nobody_is_notified_while_nobody_sleeps() {
    let (base, queue) = queue_base().await;
    let waker = Waker::start(&base.pool);
    let mut subscription = waker.subscribe(queue.name());
    deep_asleep(&base.pool, &mut subscription, queue.name()).await;
    subscription.found_work();
    testkit::wait_for("the subscription to be hidden", LIMIT, || async {
        count(&base.pool, ADVISORY_LOCKS).await == 0
    })
    .await;
    let mut listener = sqlx::postgres::PgListener::connect(base.database.url()).await.unwrap();
    listener.listen("bursar_wake").await.unwrap();
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    sqlx::query("SELECT pg_notify('bursar_wake', 'the end')").execute(&base.pool).await.unwrap();
    assert_eq!(listener.recv().await.unwrap().payload(), "the end", "the push sent nothing");
    assert_eq!(count(&base.pool, ADVISORY_LOCKS).await, 0, "and kept no lock");
}

#[tokio::test]
async fn the_first_wait_says_to_look_again_and_finds_what_was_missed() {
    let (base, queue) = queue_base().await;
    let waker = Waker::start(&base.pool);
    let mut subscription = waker.subscribe(queue.name());
    assert!(claim_one(&base.pool, &queue, "w").await.is_none());
    // Committed after the look and before anybody slept: no notification is ever sent for it.
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    assert_eq!(subscription.wait(NEVER).await, Wake::LookAgain);
    assert!(claim_one(&base.pool, &queue, "w").await.is_some());
}

#[tokio::test]
async fn one_connection_serves_all_sleepers_and_comes_back_when_killed() {
    let (base, queue) = queue_base().await;
    let waker = Waker::start(&base.pool);
    let mut first = waker.subscribe(queue.name());
    let mut second = waker.clone().subscribe("gas/bsc");
    deep_asleep(&base.pool, &mut first, queue.name()).await;
    deep_asleep(&base.pool, &mut second, "gas/bsc").await;
    assert_eq!(count(&base.pool, ADVISORY_LOCKS).await, 1);
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS listener";
    assert_eq!(count(&base.pool, kill).await, 1);
    // Losing the connection ends every sleep: something may have been missed.
    assert_eq!(first.wait(NEVER).await, Wake::Notified);
    assert_eq!(second.wait(NEVER).await, Wake::Notified);

    deep_asleep(&base.pool, &mut first, queue.name()).await;
    let waiting = tokio::spawn(async move {
        loop {
            match first.wait(NEVER).await {
                Wake::Notified => return,
                Wake::LookAgain | Wake::Elapsed => {}
                Wake::Closed => panic!("closed"),
            }
        }
    });
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn sleeps_stay_short_while_nobody_can_listen() {
    let mut server = testkit::postgres_server().await;
    let database = server.database().await;
    let pool = common::pool(&database).await;
    server.stop().await;
    let waker = Waker::start(&pool);
    let mut subscription = waker.subscribe("withdrawal/bsc");
    assert_eq!(subscription.wait(NEVER).await, Wake::LookAgain);
    for _ in 0..3 {
        assert_ne!(tokio::time::timeout(LIMIT, subscription.wait(NEVER)).await.unwrap(), Wake::Closed);
    }
}

#[tokio::test]
async fn dropping_the_sleeper_hides_it() {
    let (base, queue) = queue_base().await;
    let waker = Waker::start(&base.pool);
    let mut subscription = waker.subscribe(queue.name());
    deep_asleep(&base.pool, &mut subscription, queue.name()).await;
    drop(subscription);
    testkit::wait_for("the lock to go", LIMIT, || async { count(&base.pool, ADVISORY_LOCKS).await == 0 })
        .await;
}

/// Shown to writers and past the first short sleeps, so that the next sleep ends by a call or not at all.
async fn deep_asleep(pool: &PgPool, subscription: &mut WakeSubscription, topic: &str) {
    let settle = async {
        let mut elapsed = 0;
        while elapsed < 4 || !is_shown(pool, topic).await {
            // A connection made on the way wakes it; then it starts over.
            match subscription.wait(Duration::from_millis(1)).await {
                Wake::Elapsed => elapsed += 1,
                Wake::LookAgain | Wake::Notified => elapsed = 0,
                Wake::Closed => panic!("closed"),
            }
        }
    };
    tokio::time::timeout(LIMIT, settle).await.expect("the subscription is shown");
}

async fn is_shown(pool: &PgPool, topic: &str) -> bool {
    let sql =
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND objid::bigint = hashtext($1)::bigint & 4294967295)";
    sqlx::query_scalar(sql).bind(topic).fetch_one(pool).await.unwrap()
}
