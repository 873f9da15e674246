//! Connecting to a real PostgreSQL, and what is said when it fails.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use common::*;
use db::{Conflict, DatabaseConfig, DbError, Fault};

#[tokio::test]
async fn sessions_carry_their_name_and_limits() {
    let base = base("").await;
    let shown = async |setting: &str| -> String {
        sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(&base.pool).await.unwrap()
    };
    assert_eq!(shown("application_name").await, "db-tests");
    assert_eq!(shown("statement_timeout").await, "30s");
    assert_eq!(shown("idle_in_transaction_session_timeout").await, "1min");
    db::ping(&base.pool).await.unwrap();
}

#[tokio::test]
async fn a_failed_connection_says_where_as_whom_and_why_but_not_the_password() {
    let database = testkit::postgres().await;
    let url = database.url();
    let password = url.split([':', '@']).nth(2).unwrap();
    let cases = [
        (url.replace(password, "hunter2"), "the password was refused", Fault::Denied),
        (
            format!("{}/nowhere", url.rsplit_once('/').unwrap().0),
            "the database does not exist",
            Fault::Denied,
        ),
        (
            database.url_at("127.0.0.1:1"),
            "connection refused (is PostgreSQL running there?)",
            Fault::ConnectionLost,
        ),
    ];
    for (wrong, reason, fault) in cases {
        let error = db::connect(&DatabaseConfig::new(wrong, "test")).await.unwrap_err();
        let text = error.to_string();
        for part in ["127.0.0.1:", "database", "role", database.name(), reason] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!((error.fault(), error.is_transient()), (fault, fault.is_transient()));
        let everything = format!("{text} {error:?}");
        assert!(!everything.contains("hunter2") && !everything.contains(password), "{everything}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://role:hunter2@{}/db", silent.local_addr().unwrap());
    let config = DatabaseConfig { acquire_timeout_ms: 50, ..DatabaseConfig::new(url, "test") };
    let error = db::connect(&config).await.unwrap_err();
    assert!(matches!(error, DbError::ConnectTimedOut { waited_ms: 50, .. }), "{error}");
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_lazy_pool_works_once_the_database_is_there() {
    let database = testkit::postgres().await;
    let away = db::connect_lazy(&DatabaseConfig {
        acquire_timeout_ms: 100,
        ..DatabaseConfig::new(database.url_at("127.0.0.1:1"), "test")
    });
    assert!(db::ping(&away.unwrap()).await.unwrap_err().is_transient());
    db::ping(&db::connect_lazy(&DatabaseConfig::new(database.url(), "test")).unwrap()).await.unwrap();
}

#[tokio::test]
async fn idle_connections_killed_by_the_server_are_replaced() {
    let base = base("").await;
    base.database.cut_sessions().await;
    testkit::wait_for("the pool to recover", LIMIT, || async { db::ping(&base.pool).await.is_ok() }).await;
}

#[tokio::test]
async fn constraints_are_known_by_name_and_updates_by_their_rows() {
    let base =
        base("CREATE TABLE t (id int, CONSTRAINT t_id_key UNIQUE (id)); INSERT INTO t VALUES (1), (2)").await;
    let error = sqlx::query("INSERT INTO t VALUES (1)").execute(&base.pool).await.unwrap_err();
    assert_eq!(db::constraint(&error), Some("t_id_key"));
    assert_eq!(db::classify(&error), Fault::Constraint);
    let update =
        async |sql: &'static str| db::expect_one(sqlx::query(sql).execute(&base.pool).await.unwrap());
    assert_eq!(update("UPDATE t SET id = 3 WHERE id = 1").await, Ok(()));
    assert_eq!(update("UPDATE t SET id = 3 WHERE id = 1").await, Err(Conflict { rows: 0 }));
    assert_eq!(update("UPDATE t SET id = id + 10").await, Err(Conflict { rows: 2 }));
}

#[tokio::test]
async fn a_transaction_whose_beginning_was_cancelled_swallows_nobody_elses_writes() {
    let base = base("CREATE TABLE written (id int PRIMARY KEY)").await;
    let single =
        DatabaseConfig { max_connections: 1, ..DatabaseConfig::new(base.database.url(), "db-tests") };
    let pool = db::connect(&single).await.unwrap();
    let mut cancelled = 0;
    for id in 0..20 {
        {
            // The connection is free, so that the first poll sends BEGIN; its answer is not waited for, and is rarely there yet.
            let mut begin = std::pin::pin!(db::begin(&pool));
            cancelled += i32::from(futures::poll!(begin.as_mut()).is_pending());
        }
        sqlx::query("INSERT INTO written VALUES ($1)").bind(id).execute(&pool).await.unwrap();
        let seen: i64 =
            sqlx::query_scalar("SELECT count(*) FROM written").fetch_one(&base.pool).await.unwrap();
        assert_eq!(seen, i64::from(id) + 1, "what was acknowledged is not there");
    }
    assert!(cancelled > 0, "every BEGIN was answered at once, so none was cancelled");
}

#[tokio::test]
async fn a_connection_that_comes_back_in_good_order_is_kept() {
    let base = base("").await;
    let single =
        DatabaseConfig { max_connections: 1, ..DatabaseConfig::new(base.database.url(), "db-tests") };
    let pool = db::connect(&single).await.unwrap();
    let session =
        async || -> i32 { sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await.unwrap() };
    let first = session().await;
    for _ in 0..50 {
        db::begin(&pool).await.unwrap().commit().await.unwrap();
        drop(db::begin(&pool).await.unwrap());
        assert_eq!(session().await, first, "it was closed");
    }
}
