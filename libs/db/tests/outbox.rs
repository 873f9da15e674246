//! The outbox and its relay on a real PostgreSQL: order, crashes, parking, waking.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use db::Waker;
use db::outbox::{
    self, Deliver, Delivery, DeliveryError, OUTBOX_SCHEMA, OutboxMessage, Relay, RelayConfig, RelayTick,
    enqueue_in, enqueue_many_in,
};
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A receiver that remembers what it was given, and fails as told.
#[derive(Debug, Clone, Default)]
struct Receiver(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    log: Mutex<Vec<(String, String)>>,
    /// What to answer to the next deliveries of a payload, in turn.
    faults: Mutex<HashMap<String, Vec<DeliveryError>>>,
    /// Payloads on which a delivery hangs.
    hangs: Mutex<HashSet<String>>,
    hanging: Notify,
    traces: Mutex<Vec<telemetry::propagation::TraceContext>>,
}

impl Receiver {
    fn fail(&self, payload: &str, error: DeliveryError, times: usize) {
        self.0.faults.lock().unwrap().insert(payload.to_owned(), vec![error; times]);
    }

    fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().iter().map(|(_, payload)| payload.clone()).collect()
    }

    fn by_aggregate(&self) -> BTreeMap<String, Vec<String>> {
        let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (aggregate, payload) in self.0.log.lock().unwrap().iter() {
            map.entry(aggregate.clone()).or_default().push(payload.clone());
        }
        map
    }
}

impl Deliver for Receiver {
    const RECEIVERS: &'static [&'static str] = &["test", "other"];

    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let payload = String::from_utf8(delivery.payload.clone()).unwrap();
        if self.0.hangs.lock().unwrap().contains(&payload) {
            self.0.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        if let Some(error) = self.0.faults.lock().unwrap().get_mut(&payload).and_then(Vec::pop) {
            return Err(error);
        }
        self.0.traces.lock().unwrap().push(delivery.trace.clone());
        self.0.log.lock().unwrap().push((delivery.aggregate.clone(), payload));
        Ok(())
    }
}

fn config() -> RelayConfig {
    RelayConfig { pause: Duration::ZERO, messages_per_lane: 2, ..RelayConfig::default() }
}

fn away() -> DeliveryError {
    DeliveryError::Transient("away".to_owned())
}

async fn enqueue(pool: &PgPool, aggregate: &str, payload: &str) -> Uuid {
    let mut tx = db::begin(pool).await.unwrap();
    let message = OutboxMessage::new(aggregate, "test.Event", payload);
    let id = enqueue_in(&mut tx, &message).await.unwrap();
    tx.commit().await.unwrap();
    id
}

/// Ticks until nothing is due any more.
async fn drain<D: Deliver>(relay: &Relay<D>) -> RelayTick {
    let mut total = RelayTick::default();
    loop {
        let tick = relay.tick().await.unwrap();
        if tick.lanes == 0 {
            return total;
        }
        total.delivered += tick.delivered;
        total.retried += tick.retried;
        total.parked += tick.parked;
        total.lost += tick.lost;
    }
}

async fn expire_lanes(pool: &PgPool) {
    sqlx::query(
        "UPDATE outbox_lane SET due_at = clock_timestamp() - interval '1 ms' WHERE lease_token IS NOT NULL",
    )
    .execute(pool)
    .await
    .unwrap();
}

async fn is_empty(pool: &PgPool) -> bool {
    count(pool, "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_lane)").await == 0
}

#[tokio::test]
async fn a_message_exists_if_and_only_if_its_transaction_committed() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
    let mut tx = db::begin(&base.pool).await.unwrap();
    enqueue_in(&mut tx, &OutboxMessage::new("a", "test.Event", "never")).await.unwrap();
    tx.rollback().await.unwrap();
    enqueue(&base.pool, "a", "once").await;
    assert_eq!(drain(&relay).await.delivered, 1);
    assert_eq!(receiver.log(), ["once"]);
    assert!(is_empty(&base.pool).await);
}

#[tokio::test]
async fn order_within_an_aggregate_survives_failures() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    for n in 0..5 {
        for aggregate in ["a", "b", "c"] {
            enqueue(&base.pool, aggregate, &format!("{aggregate}{n}")).await;
        }
    }
    receiver.fail("a0", away(), 2);
    receiver.fail("b3", away(), 2);
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
    let total = drain(&relay).await;
    assert_eq!((total.delivered, total.retried, total.parked), (15, 4, 0));
    for (aggregate, payloads) in receiver.by_aggregate() {
        let expected: Vec<String> = (0..5).map(|n| format!("{aggregate}{n}")).collect();
        assert_eq!(payloads, expected);
    }
    assert!(is_empty(&base.pool).await);
}

#[tokio::test]
async fn a_refused_message_is_parked_with_its_reason_holds_back_its_aggregate_and_can_be_requeued() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    let head = enqueue(&base.pool, "a", "a0").await;
    enqueue(&base.pool, "a", "a1").await;
    enqueue(&base.pool, "b", "b0").await;
    // Two failures, and then a refusal.
    let mut faults = vec![DeliveryError::Permanent("no".to_owned())];
    faults.extend([away(), away()]);
    receiver.0.faults.lock().unwrap().insert("a0".to_owned(), faults);
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
    let total = drain(&relay).await;
    assert_eq!((total.delivered, total.retried, total.parked), (1, 2, 1));
    assert_eq!(receiver.log(), ["b0"]);

    let parked = outbox::parked(&base.pool, 10).await.unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].message_id, parked[0].aggregate.as_str()), (head, "a"));
    assert_eq!((parked[0].tries, parked[0].waiting_behind), (3, 1));
    assert_eq!(parked[0].reason, "refused: no");
    let depth = outbox::depth(&base.pool).await.unwrap();
    assert_eq!((depth.messages, depth.parked_lanes), (2, 1));
    assert!(depth.oldest.is_some());

    // What comes later waits behind it.
    enqueue(&base.pool, "a", "a2").await;
    assert_eq!(drain(&relay).await.delivered, 0);

    assert!(outbox::requeue_parked(&base.pool, head).await.unwrap());
    assert!(!outbox::requeue_parked(&base.pool, head).await.unwrap(), "not parked any more");
    assert_eq!(drain(&relay).await.delivered, 3);
    assert_eq!(receiver.log(), ["b0", "a0", "a1", "a2"]);
    assert!(is_empty(&base.pool).await);
}

#[tokio::test]
async fn a_refusal_parks_at_once_and_hostile_words_are_stored_harmlessly() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    enqueue(&base.pool, "a", "a0").await;
    receiver.fail("a0", DeliveryError::Permanent(format!("no\0 {}", "x".repeat(5_000))), 1);
    let relay = Relay::new(base.pool.clone(), receiver, config());
    assert_eq!(drain(&relay).await.parked, 1);
    let parked = outbox::parked(&base.pool, 10).await.unwrap();
    assert_eq!(parked[0].tries, 1);
    assert!(parked[0].reason.starts_with("refused: no xxx") && parked[0].reason.len() == 1_000);
}

#[tokio::test]
async fn a_failed_delivery_is_tried_again_for_ever_at_pauses_that_grow_up_to_the_longest() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    enqueue(&base.pool, "a", "a0").await;
    receiver.fail("a0", away(), 4);
    let pauses = [Duration::from_secs(100), Duration::from_secs(300)];
    let config = RelayConfig { pause: pauses[0], longest_pause: pauses[1], ..config() };
    let relay = Relay::new(base.pool.clone(), receiver, config);
    for (expected, tries) in [(100, 1), (200, 2), (300, 3), (300, i32::MAX)] {
        sqlx::query("UPDATE outbox_lane SET tries = $1 - 1").bind(tries).execute(&base.pool).await.unwrap();
        let tick = relay.tick().await.unwrap();
        assert_eq!((tick.retried, tick.parked), (1, 0), "an absent receiver parks nothing, ever");
        let wait = "SELECT round(extract(epoch FROM due_at - now()) / 10)::bigint * 10 FROM outbox_lane";
        assert_eq!(count(&base.pool, wait).await, expected);
        assert_eq!(relay.tick().await.unwrap().lanes, 0);
        sqlx::query("UPDATE outbox_lane SET due_at = now()").execute(&base.pool).await.unwrap();
    }
    assert_eq!(relay.tick().await.unwrap().delivered, 1);
}

#[tokio::test]
async fn a_crash_between_delivery_and_acknowledgement_delivers_again_in_order_and_loses_nothing() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    for n in 0..4 {
        enqueue(&base.pool, "a", &format!("a{n}")).await;
    }
    // The first is delivered, the second never answered; then the relay's process is gone.
    receiver.0.hangs.lock().unwrap().insert("a1".to_owned());
    let doomed = Arc::new(Relay::new(base.pool.clone(), receiver.clone(), config()));
    let task = tokio::spawn(async move { doomed.tick().await });
    receiver.0.hanging.notified().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    receiver.0.hangs.lock().unwrap().clear();

    let heir = Relay::new(base.pool.clone(), receiver.clone(), config());
    assert_eq!(drain(&heir).await.delivered, 0, "the lease still runs");
    expire_lanes(&base.pool).await;
    assert_eq!(drain(&heir).await.delivered, 4);
    assert_eq!(receiver.log(), ["a0", "a0", "a1", "a2", "a3"]);
    assert!(is_empty(&base.pool).await);
}

#[tokio::test]
async fn a_relay_that_lost_its_lease_cannot_acknowledge() {
    let base = base(OUTBOX_SCHEMA).await;
    enqueue(&base.pool, "a", "a0").await;
    let slow = Slow { started: Arc::new(Notify::new()), go_on: Arc::new(Notify::new()) };
    let paused = Arc::new(Relay::new(base.pool.clone(), slow.clone(), config()));
    let task = tokio::spawn(async move { paused.tick().await });
    slow.started.notified().await;
    expire_lanes(&base.pool).await;
    // Another relay takes the lane and fails to deliver: the message must survive the first one's late success.
    let receiver = Receiver::default();
    receiver.fail("a0", away(), 1);
    let other = Relay::new(base.pool.clone(), receiver.clone(), RelayConfig { pause: MINUTE, ..config() });
    assert_eq!(other.tick().await.unwrap().retried, 1);
    slow.go_on.notify_one();
    let late = task.await.unwrap().unwrap();
    assert_eq!((late.delivered, late.lost), (0, 1));
    assert_eq!(count(&base.pool, "SELECT count(*) FROM outbox").await, 1);
    assert_eq!(count(&base.pool, "SELECT tries::bigint FROM outbox_lane").await, 1);
}

#[derive(Debug, Clone)]
struct Slow {
    started: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Deliver for Slow {
    const RECEIVERS: &'static [&'static str] = &["test"];

    async fn deliver(&self, _: &Delivery) -> Result<(), DeliveryError> {
        self.started.notify_one();
        self.go_on.notified().await;
        Ok(())
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_counts_as_a_failed_try() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    enqueue(&base.pool, "a", "a0").await;
    receiver.0.hangs.lock().unwrap().insert("a0".to_owned());
    let config = RelayConfig { delivery_timeout: Duration::from_millis(1), ..config() };
    let relay = Relay::new(base.pool.clone(), receiver, config);
    assert_eq!(relay.tick().await.unwrap().retried, 1);
    let error: String =
        sqlx::query_scalar("SELECT last_error FROM outbox_lane").fetch_one(&base.pool).await.unwrap();
    assert_eq!(error, "not delivered: no answer within 1 ms");
}

#[tokio::test]
async fn everything_parked_can_be_requeued_at_once() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    for aggregate in ["a", "b", "c"] {
        enqueue(&base.pool, aggregate, aggregate).await;
    }
    for refused in ["a", "b"] {
        receiver.fail(refused, DeliveryError::Permanent("no".to_owned()), 1);
    }
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
    assert_eq!(drain(&relay).await.parked, 2);
    assert_eq!(outbox::requeue_all_parked(&base.pool).await.unwrap(), 2);
    assert_eq!(outbox::requeue_all_parked(&base.pool).await.unwrap(), 0);
    assert_eq!(drain(&relay).await.delivered, 2);
    assert!(is_empty(&base.pool).await);
}

async fn enqueue_to(pool: &PgPool, receiver: &str, aggregate: &str) {
    let mut tx = db::begin(pool).await.unwrap();
    let message = OutboxMessage::new(aggregate, format!("{receiver}.Event"), aggregate);
    enqueue_in(&mut tx, &message).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_holds_up_nobody_else() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    // More than all loops of a relay take at once, and all of it due before what the other receiver is to get.
    let hung: Vec<String> = (0..700).map(|n| format!("hung-{n}")).collect();
    receiver.0.hangs.lock().unwrap().extend(hung.iter().cloned());
    for aggregate in &hung {
        enqueue_to(&base.pool, "test", aggregate).await;
    }
    let config = RelayConfig { delivery_timeout: MINUTE * 10, lease: MINUTE * 20, ..config() };
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config);
    let waker = Waker::start(&base.pool);
    let running = tokio::spawn(async move { relay.run(&waker, CancellationToken::new()).await });
    receiver.0.hanging.notified().await;
    for n in 0..3 {
        enqueue_to(&base.pool, "other", &format!("other-{n}")).await;
        testkit::wait_for("the other receiver's message", LIMIT, || async { receiver.log().len() == n + 1 })
            .await;
    }
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_name_no_receiver_or_an_unknown_one_are_delivered_too() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    enqueue_to(&base.pool, "nobody", "unknown").await;
    enqueue_to(&base.pool, "other", "older").await;
    // As a binary from before writes it.
    sqlx::query("UPDATE outbox_lane SET receiver = '' WHERE aggregate = 'older'")
        .execute(&base.pool)
        .await
        .unwrap();
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
    let waker = Waker::start(&base.pool);
    let running = tokio::spawn(async move { relay.run(&waker, CancellationToken::new()).await });
    testkit::wait_for("both", LIMIT, || is_empty(&base.pool)).await;
    running.abort();
    assert_eq!(receiver.log().len(), 2);
}

#[tokio::test]
async fn a_message_written_while_its_lane_is_being_emptied_is_not_left_behind() {
    let base = base(OUTBOX_SCHEMA).await;
    enqueue(&base.pool, "a", "a0").await;
    let slow = Slow { started: Arc::new(Notify::new()), go_on: Arc::new(Notify::new()) };
    let relay = Arc::new(Relay::new(base.pool.clone(), slow.clone(), config()));
    let task = tokio::spawn({
        let relay = Arc::clone(&relay);
        async move { relay.tick().await }
    });
    slow.started.notified().await;
    // A writer holds the lane in an open transaction while the relay wants to remove it.
    let mut tx = db::begin(&base.pool).await.unwrap();
    enqueue_in(&mut tx, &OutboxMessage::new("a", "test.Event", "a1")).await.unwrap();
    slow.go_on.notify_one();
    testkit::wait_for("the relay to wait for the writer", LIMIT, || async {
        count(&base.pool, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await > 0
    })
    .await;
    tx.commit().await.unwrap();
    assert_eq!(task.await.unwrap().unwrap().delivered, 1);
    slow.go_on.notify_one();
    assert_eq!(relay.tick().await.unwrap().delivered, 1, "the second message has its lane");
    assert!(is_empty(&base.pool).await);
}

#[tokio::test]
async fn a_batch_keeps_the_order_of_each_aggregate_and_every_message_its_own_trace() {
    let base = base(OUTBOX_SCHEMA).await;
    let trace = |n: u8| -> telemetry::propagation::TraceContext {
        let id = format!("{n:02x}");
        let parent = format!("00-{}-{}-01", id.repeat(16), id.repeat(8));
        serde_json::from_value(serde_json::json!({ "traceparent": parent })).unwrap()
    };
    let traces: Vec<_> = (1..=5).map(trace).collect();
    let names = [("b", "b1"), ("a", "a1"), ("b", "b2"), ("c", "c1"), ("b", "b3")];
    let batch: Vec<OutboxMessage> = names
        .iter()
        .zip(&traces)
        .map(|((aggregate, payload), trace)| {
            OutboxMessage::new(*aggregate, "test.Event", *payload).in_trace(trace.clone())
        })
        .collect();
    let mut tx = db::begin(&base.pool).await.unwrap();
    enqueue_many_in(&mut tx, &batch).await.unwrap();
    enqueue_many_in(&mut tx, &[]).await.unwrap();
    tx.commit().await.unwrap();
    let receiver = Receiver::default();
    drain(&Relay::new(base.pool.clone(), receiver.clone(), config())).await;
    assert_eq!(receiver.by_aggregate()["b"], ["b1", "b2", "b3"]);
    let told = receiver.log();
    assert_eq!(told.len(), 5);
    let seen = receiver.0.traces.lock().unwrap().clone();
    for (payload, trace) in told.iter().zip(seen) {
        let sent = names.iter().position(|(_, name)| name == payload).unwrap();
        assert_eq!(trace.trace_id(), traces[sent].trace_id(), "{payload}");
        assert!(trace.trace_id().is_some());
    }
    assert!(is_empty(&base.pool).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_and_many_writers_keep_each_aggregate_in_order_and_deliver_everything_once() {
    const WRITERS: usize = 6;
    const MESSAGES: usize = 40;
    let base = base(OUTBOX_SCHEMA).await;
    sqlx::raw_sql(
        "CREATE TABLE account (id text PRIMARY KEY, version bigint NOT NULL);
                   INSERT INTO account SELECT 'account-' || n, 0 FROM generate_series(0, 3) n",
    )
    .execute(&base.pool)
    .await
    .unwrap();
    let receiver = Receiver::default();
    let waker = Waker::start(&base.pool);
    let stop = CancellationToken::new();
    let relays: Vec<_> = (0..2)
        .map(|_| {
            let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
            let (waker, stop) = (waker.clone(), stop.clone());
            tokio::spawn(async move { relay.run(&waker, stop).await })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let pool = base.pool.clone();
            tokio::spawn(async move {
                for n in 0..MESSAGES {
                    let account = format!("account-{}", (writer + n) % 4);
                    let mut tx = db::begin(&pool).await.unwrap();
                    // Enqueued before the change on purpose: the outbox alone keeps the order.
                    let payload = format!("{writer}/{n}");
                    let message = OutboxMessage::new(account.as_str(), "test.Event", payload);
                    enqueue_in(&mut tx, &message).await.unwrap();
                    sqlx::query("UPDATE account SET version = version + 1 WHERE id = $1")
                        .bind(&account)
                        .execute(&mut *tx)
                        .await
                        .unwrap();
                    tx.commit().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    testkit::wait_for("everything to be delivered", LIMIT, || is_empty(&base.pool)).await;
    stop.cancel();
    for relay in relays {
        relay.await.unwrap();
    }
    let by_aggregate = receiver.by_aggregate();
    assert_eq!(by_aggregate.values().map(Vec::len).sum::<usize>(), WRITERS * MESSAGES);
    for payloads in by_aggregate.values() {
        // Each writer's own messages to an aggregate were committed one after the other.
        let mut last: HashMap<&str, usize> = HashMap::new();
        for payload in payloads {
            let (writer, n) = payload.split_once('/').unwrap();
            let n: usize = n.parse().unwrap();
            assert!(last.insert(writer, n).is_none_or(|before| before < n), "{payload} out of order");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_relay_is_woken_by_the_commit_and_stops_when_told() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    let waker = Waker::start(&base.pool);
    let stop = CancellationToken::new();
    // It would sleep for an hour by itself.
    let config = RelayConfig { longest_wait: MINUTE * 60, ..config() };
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config);
    let running = tokio::spawn({
        let (waker, stop) = (waker.clone(), stop.clone());
        async move { relay.run(&waker, stop).await }
    });
    for n in 0..3 {
        testkit::wait_for("the relay to sleep", LIMIT, || async {
            count(&base.pool, ADVISORY_LOCKS).await > 0
        })
        .await;
        enqueue(&base.pool, "a", &format!("a{n}")).await;
        testkit::wait_for("the message", LIMIT, || async { receiver.log().len() == n + 1 }).await;
    }
    stop.cancel();
    tokio::time::timeout(LIMIT, running).await.unwrap().unwrap();
}

/// That the running span's context is what gets stored is telemetry's own test; here, that what is stored arrives.
#[tokio::test]
async fn the_stored_trace_arrives_and_a_broken_one_holds_nothing_back() {
    let base = base(OUTBOX_SCHEMA).await;
    let receiver = Receiver::default();
    for (aggregate, trace) in [
        ("a", r#"{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#),
        ("b", r#"["not", "a", "trace"]"#),
    ] {
        enqueue(&base.pool, aggregate, aggregate).await;
        sqlx::query("UPDATE outbox SET trace = $1::jsonb WHERE aggregate = $2")
            .bind(trace)
            .bind(aggregate)
            .execute(&base.pool)
            .await
            .unwrap();
    }
    let relay = Relay::new(base.pool.clone(), receiver.clone(), config());
    assert_eq!(drain(&relay).await.delivered, 2);
    let mut ids: Vec<_> = receiver.0.traces.lock().unwrap().iter().map(|trace| trace.trace_id()).collect();
    ids.sort();
    assert_eq!(ids, [None, Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned())]);
}
