//! What the tests of this crate share: a fresh database with the tables, and small questions to it.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic is the failed test")]

use std::time::Duration;

use db::queue::{NewJob, QUEUE_SCHEMA};
use db::{Due, Lease, Queue};
use sqlx::PgPool;
use types::Priority;
use uuid::Uuid;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The sessions of this database that hold advisory locks; tests run side by side on one server.
pub(crate) const ADVISORY_LOCKS: &str = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A database and its pool; the database goes when this does.
pub(crate) struct Base {
    pub(crate) pool: PgPool,
    pub(crate) database: testkit::Database,
}

pub(crate) async fn base(schema: &'static str) -> Base {
    let database = testkit::postgres().await;
    let pool = pool(&database).await;
    sqlx::raw_sql(schema).execute(&pool).await.unwrap();
    Base { pool, database }
}

pub(crate) async fn pool(database: &testkit::Database) -> PgPool {
    db::connect(&db::DatabaseConfig::new(database.url(), "db-tests")).await.unwrap()
}

pub(crate) async fn queue_base() -> (Base, Queue) {
    (base(QUEUE_SCHEMA).await, Queue::new("withdrawal/bsc"))
}

pub(crate) async fn push(pool: &PgPool, queue: &Queue, priority: Priority, due: Due) -> Uuid {
    let job_id = Uuid::now_v7();
    let mut tx = db::begin(pool).await.unwrap();
    assert!(queue.push_in(&mut tx, job_id, priority, due).await.unwrap());
    tx.commit().await.unwrap();
    job_id
}

pub(crate) async fn push_many(pool: &PgPool, queue: &Queue, count: usize) -> Vec<Uuid> {
    let ids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
    let new = |job_id: &Uuid| NewJob { job_id: *job_id, priority: Priority::Normal, due: Due::Now };
    let jobs: Vec<NewJob> = ids.iter().map(new).collect();
    let mut tx = db::begin(pool).await.unwrap();
    assert_eq!(queue.push_many_in(&mut tx, &jobs).await.unwrap(), count as u64);
    tx.commit().await.unwrap();
    ids
}

pub(crate) async fn claim_one(pool: &PgPool, queue: &Queue, owner: &str) -> Option<Lease> {
    let mut leases = queue.claim(pool, owner, 1, MINUTE).await.unwrap();
    assert!(leases.len() <= 1);
    leases.pop()
}

/// Lets a lease run out without waiting for it.
pub(crate) async fn expire(pool: &PgPool, job_id: Uuid) {
    let sql = "UPDATE job_lease SET lease_until = clock_timestamp() WHERE job_id = $1";
    let expired = sqlx::query(sql).bind(job_id).execute(pool).await.unwrap();
    assert_eq!(expired.rows_affected(), 1);
}

pub(crate) async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}
