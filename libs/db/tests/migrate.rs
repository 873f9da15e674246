//! Migrations on a real PostgreSQL: half-failed, two at once, changed, ahead.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use std::borrow::Cow;

use common::*;
use db::migrate::{self, MigrationError};
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

fn step(version: i64, name: &'static str, sql: &'static str) -> Migration {
    Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
}

fn migrator(steps: &[Migration]) -> Migrator {
    Migrator::with_migrations(steps.to_vec())
}

fn steps() -> [Migration; 3] {
    [
        step(1, "create account", "CREATE TABLE account (id bigint PRIMARY KEY)"),
        step(2, "fill account", "INSERT INTO account SELECT generate_series(1, 3)"),
        step(3, "create payment", "CREATE TABLE payment (id bigint PRIMARY KEY)"),
    ]
}

#[tokio::test]
async fn everything_missing_is_applied_in_order_and_once() {
    let base = base("").await;
    let all = migrator(&steps());
    let pending = migrate::pending(&base.pool, &all).await.unwrap();
    assert_eq!(pending.iter().map(|step| step.version).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(pending[0].file, "0001_create_account.sql");
    let first = migrate::run(&base.pool, &all).await.unwrap();
    assert_eq!(first.applied, pending);
    assert!(migrate::pending(&base.pool, &all).await.unwrap().is_empty());
    assert!(migrate::run(&base.pool, &all).await.unwrap().applied.is_empty());
    assert_eq!(count(&base.pool, "SELECT count(*) FROM account").await, 3);
}

#[tokio::test]
async fn a_half_failed_migration_leaves_nothing_behind_and_a_rerun_goes_on() {
    let base = base("").await;
    let [one, two, three] = steps();
    let broken =
        step(2, "fill account", "INSERT INTO account VALUES (7); CREATE TABLE half (id int); SELECT 1 / 0");
    let error = migrate::run(&base.pool, &migrator(&[one.clone(), broken, three.clone()])).await.unwrap_err();
    let text = error.to_string();
    for part in ["migration 2", "0002_fill_account.sql", "division by zero"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!error.is_transient());
    assert_eq!(
        count(&base.pool, "SELECT count(*) FROM account").await,
        0,
        "the first one stays, the second is undone"
    );
    assert_eq!(count(&base.pool, "SELECT count(to_regclass('half'))").await, 0);
    let corrected = migrator(&[one, two, three]);
    let rerun = migrate::run(&base.pool, &corrected).await.unwrap();
    assert_eq!(rerun.applied.iter().map(|step| step.version).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_start_at_once_apply_each_migration_once() {
    let base = base("").await;
    let all: Vec<_> = (0..4)
        .map(|_| {
            let pool = base.pool.clone();
            tokio::spawn(async move { migrate::run(&pool, &migrator(&steps())).await })
        })
        .collect();
    let mut applied = 0;
    for run in all {
        applied += run.await.unwrap().unwrap().applied.len();
    }
    assert_eq!(applied, 3);
    assert_eq!(count(&base.pool, "SELECT count(*) FROM account").await, 3);
}

#[tokio::test]
async fn the_pools_statement_timeout_does_not_cut_a_migration_off() {
    let base = base("").await;
    let mut config = db::DatabaseConfig::new(base.database.url(), "impatient");
    config.statement_timeout_ms = 50;
    let impatient = db::connect(&config).await.unwrap();
    sqlx::query("CREATE TABLE held ()").execute(&base.pool).await.unwrap();
    // Whoever wants this table waits for as long as the test likes.
    let mut holder = db::begin(&base.pool).await.unwrap();
    sqlx::query("LOCK TABLE held").execute(&mut *holder).await.unwrap();
    let error = sqlx::query("SELECT FROM held").execute(&impatient).await.unwrap_err();
    assert_eq!(db::classify(&error), db::Fault::TimedOut, "a statement of the pool's own");
    let patient = impatient.clone();
    let migrating = tokio::spawn(async move {
        migrate::run(&patient, &migrator(&[step(1, "slow", "SELECT FROM held")])).await
    });
    testkit::wait_for("the migration to wait for longer than that", std::time::Duration::from_secs(20), || async {
        let long: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
             AND clock_timestamp() - query_start > interval '150 ms'",
        )
        .fetch_one(&base.pool)
        .await
        .unwrap();
        long == 1
    })
    .await;
    holder.rollback().await.unwrap();
    migrating.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let base = base("").await;
    let [one, two, three] = steps();
    migrate::run(&base.pool, &migrator(&[one.clone(), two])).await.unwrap();
    let changed = step(2, "fill account", "INSERT INTO account SELECT generate_series(1, 4)");
    let all = migrator(&[one, changed, three]);
    for error in [
        migrate::run(&base.pool, &all).await.unwrap_err(),
        migrate::pending(&base.pool, &all).await.unwrap_err(),
    ] {
        assert!(matches!(error, MigrationError::Changed { version: 2, .. }), "{error}");
    }
    assert_eq!(
        count(&base.pool, "SELECT count(to_regclass('payment'))").await,
        0,
        "nothing after it was applied"
    );
}

#[tokio::test]
async fn an_older_binary_accepts_a_newer_database_but_not_another_line_of_history() {
    let base = base("").await;
    let [one, two, three] = steps();
    migrate::run(&base.pool, &migrator(&[one.clone(), two.clone(), three.clone()])).await.unwrap();
    let older = migrate::run(&base.pool, &migrator(&[one.clone(), two.clone()])).await.unwrap();
    assert_eq!((older.applied.len(), older.ahead), (0, vec![3]));
    let sibling = step(4, "other branch", "SELECT 1");
    let error = migrate::run(&base.pool, &migrator(&[one, two, sibling])).await.unwrap_err();
    assert!(matches!(error, MigrationError::Diverged { unknown: 3, version: 4, .. }), "{error}");
}

#[tokio::test]
async fn a_migration_outside_a_transaction_is_refused() {
    let base = base("").await;
    let loose = Migration { no_tx: true, ..step(1, "loose", "SELECT 1") };
    let error = migrate::run(&base.pool, &migrator(&[loose])).await.unwrap_err();
    assert!(matches!(error, MigrationError::NotTransactional { version: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_failed_run_leaves_no_lock_behind() {
    let base = base("").await;
    let broken = migrator(&[step(1, "broken", "nonsense")]);
    migrate::run(&base.pool, &broken).await.unwrap_err();
    testkit::wait_for("the lock to go", LIMIT, || async { count(&base.pool, ADVISORY_LOCKS).await == 0 })
        .await;
}
