//! Workers that die: a process killed outright, and a connection lost in the middle of a claim.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use common::*;
use db::{Due, Queue};
use types::Priority;

const CHILD: &str = "BURSAR_DB_TEST_CHILD_URL";
const JOBS: u32 = 5;

#[tokio::test]
async fn jobs_of_a_killed_process_come_back_when_its_leases_end_and_not_before() {
    let (base, queue) = queue_base().await;
    let pushed = push_many(&base.pool, &queue, 5).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_child_claim_and_hang", "--nocapture"])
        .env(CHILD, base.database.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.contains("claimed 5")), "the child claimed");
    // SIGKILL: no destructor, no goodbye to the database.
    child.kill().unwrap();
    child.wait().unwrap();

    testkit::wait_for("the server to notice that the child is gone", LIMIT, || async {
        count(&base.pool, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed'").await
            == 0
    })
    .await;
    assert!(queue.claim(&base.pool, "heir", JOBS, MINUTE).await.unwrap().is_empty(), "the leases still run");
    for job in &pushed[..2] {
        expire(&base.pool, *job).await;
    }
    let back = queue.claim(&base.pool, "heir", JOBS, MINUTE).await.unwrap();
    let back: Vec<_> = back.iter().map(|lease| (lease.job_id, lease.lapses)).collect();
    assert_eq!(back, [(pushed[0], 1), (pushed[1], 1)]);
    let depth = queue.depth(&base.pool).await.unwrap();
    assert_eq!((depth.leased, depth.ready_due), (5, 0), "two held by the heir, three still by the dead");
}

/// Not a test by itself: what the killed process runs.
#[tokio::test]
async fn as_a_child_claim_and_hang() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let pool = db::connect(&db::DatabaseConfig::new(url, "doomed")).await.unwrap();
    let leases = Queue::new("withdrawal/bsc").claim(&pool, "doomed", JOBS, MINUTE).await.unwrap();
    println!("claimed {}", leases.len());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_claim_whose_transaction_dies_leaves_the_job_waiting() {
    let (base, queue) = queue_base().await;
    let job = push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    let mut tx = db::begin(&base.pool).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    let lease = queue.claim_in(&mut tx, "doomed", 1, MINUTE).await.unwrap().pop().unwrap();
    assert!(claim_one(&base.pool, &Queue::new(queue.name()), "other").await.is_none(), "locked by the claim");
    sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&base.pool).await.unwrap();
    assert!(queue.complete_in(&mut tx, &lease).await.unwrap_err().is_transient());
    drop(tx);
    let other = Queue::new(queue.name());
    let back =
        testkit::wait_for_value("the job to be free again", LIMIT, || claim_one(&base.pool, &other, "other"));
    let back = back.await;
    assert_eq!((back.job_id, back.lapses), (job, 0));
    assert!(back.token > lease.token);
}

#[tokio::test]
async fn a_restarted_server_has_lost_nothing_and_the_pool_recovers() {
    let mut server = testkit::postgres_server().await;
    let database = server.database().await;
    let pool = common::pool(&database).await;
    sqlx::raw_sql(db::queue::QUEUE_SCHEMA).execute(&pool).await.unwrap();
    let queue = Queue::new("withdrawal/bsc");
    let jobs = push_many(&pool, &queue, 3).await;
    let held = claim_one(&pool, &queue, "w").await.unwrap();
    server.stop().await;
    let error = queue.claim(&pool, "w", 1, MINUTE).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    server.start().await;
    // Each pooled connection may fail once before the pool has replaced it.
    let next = testkit::wait_for_value("the queue to work again", LIMIT, || async {
        queue.claim(&pool, "w", 1, MINUTE).await.ok()?.pop()
    })
    .await;
    assert_eq!(next.job_id, jobs[1]);
    assert!(next.token > held.token, "tokens grow across a restart");
    assert_eq!(queue.complete_many(&pool, &[held, next]).await.unwrap().len(), 2);
}
