//! A batch writes what its parts would have written one after the other.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

use std::time::Duration;

use db::outbox::{OUTBOX_SCHEMA, OutboxMessage, enqueue_in, enqueue_many_in};
use db::queue::{NewJob, QUEUE_SCHEMA};
use db::{Due, Queue};
use proptest::prelude::*;
use sqlx::PgPool;
use testkit::same_outcome;
use types::Priority;
use uuid::Uuid;

const PRIORITIES: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Urgent];

async fn create(pool: &PgPool, schema: &'static str) {
    sqlx::raw_sql(schema).execute(pool).await.unwrap();
}

async fn enqueue_all(pool: &PgPool, messages: &[OutboxMessage]) {
    let mut tx = db::begin(pool).await.unwrap();
    enqueue_many_in(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

async fn enqueue_one(pool: &PgPool, message: &OutboxMessage) {
    let mut tx = db::begin(pool).await.unwrap();
    enqueue_in(&mut tx, message).await.unwrap();
    tx.commit().await.unwrap();
}

async fn push_all(pool: &PgPool, jobs: &[NewJob]) {
    let mut tx = db::begin(pool).await.unwrap();
    Queue::new("test").push_many_in(&mut tx, jobs).await.unwrap();
    tx.commit().await.unwrap();
}

async fn push_one(pool: &PgPool, job: &NewJob) {
    let mut tx = db::begin(pool).await.unwrap();
    Queue::new("test").push_in(&mut tx, job.job_id, job.priority, job.due).await.unwrap();
    tx.commit().await.unwrap();
}

fn message() -> impl Strategy<Value = OutboxMessage> {
    (0..4_u8, any::<[u8; 2]>())
        .prop_map(|(aggregate, payload)| OutboxMessage::new(format!("job/{aggregate}"), "test.Put", payload))
}

/// Few ids, so that most batches name a job twice.
fn job() -> impl Strategy<Value = NewJob> {
    let due = prop_oneof![Just(Due::Now), Just(Due::In(Duration::from_secs(3_600)))];
    (0..4_u128, prop::sample::select(PRIORITIES.to_vec()), due).prop_map(|(id, priority, due)| NewJob {
        job_id: Uuid::from_u128(id),
        priority,
        due,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn messages_of_a_batch_are_those_written_one_by_one(
        messages in prop::collection::vec(message(), 1..12),
    ) {
        let tables = ["SELECT aggregate, topic, encode(payload, 'hex'), row_number() OVER (PARTITION BY aggregate ORDER BY id) FROM outbox",
            "SELECT aggregate, receiver FROM outbox_lane"];
        let compared = same_outcome(
            &messages,
            async |pool| create(pool, OUTBOX_SCHEMA).await,
            async |pool, messages| {
                enqueue_all(pool, messages).await;
                vec![(); messages.len()]
            },
            enqueue_one,
            &tables,
        );
        tokio::runtime::Runtime::new().unwrap().block_on(compared);
    }

    #[test]
    fn jobs_of_a_batch_are_those_pushed_one_by_one(jobs in prop::collection::vec(job(), 1..12)) {
        let tables = ["SELECT job_id, queue, rank, due_at > now() + interval '30 min' AS later FROM job_ready"];
        let compared = same_outcome(
            &jobs,
            async |pool| create(pool, QUEUE_SCHEMA).await,
            async |pool, jobs| {
                push_all(pool, jobs).await;
                vec![(); jobs.len()]
            },
            push_one,
            &tables,
        );
        tokio::runtime::Runtime::new().unwrap().block_on(compared);
    }
}
