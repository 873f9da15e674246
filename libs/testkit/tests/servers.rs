//! The servers for tests start, are separate from one another, and end with the test process.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};

#[tokio::test]
async fn each_test_has_a_database_of_its_own() {
    let (one, two) = tokio::join!(testkit::postgres(), testkit::postgres());
    assert_ne!(one.name(), two.name());
    let pool = one.pool().await;
    sqlx::query("CREATE TABLE t (id INT)").execute(&pool).await.unwrap();
    let row = sqlx::query("SELECT to_regclass('t')::text AS t").fetch_one(&two.pool().await).await.unwrap();
    assert_eq!(row.get::<Option<String>, _>("t"), None);
}

#[tokio::test]
async fn a_role_cannot_enter_the_database_of_another() {
    let (one, two) = tokio::join!(testkit::postgres(), testkit::postgres());
    let (server, _) = one.url().rsplit_once('/').unwrap();
    let trespass = format!("{server}/{}", two.name());
    let error = PgConnection::connect(&trespass).await.unwrap_err().to_string();
    assert!(error.contains("permission denied for database"), "{error}");
}

#[tokio::test]
async fn a_server_stopped_and_started_again_keeps_its_data_and_port() {
    let mut server = testkit::postgres_server().await;
    let database = server.database().await;
    let pool = database.pool().await;
    sqlx::query("CREATE TABLE kept AS SELECT 7 AS n").execute(&pool).await.unwrap();
    server.stop().await;
    assert!(PgConnection::connect(database.url()).await.is_err());
    server.start().await;
    let n: i32 = sqlx::query_scalar("SELECT n FROM kept").fetch_one(&database.pool().await).await.unwrap();
    assert_eq!(n, 7);
}

#[tokio::test]
async fn waiting_ends_as_soon_as_the_condition_holds() {
    let mut left = 3;
    testkit::wait_for("the third look", Duration::from_secs(10), || {
        left -= 1;
        let done = left == 0;
        async move { done }
    })
    .await;
}

#[tokio::test]
#[should_panic(expected = "in vain for: a day that never comes")]
async fn waiting_in_vain_says_for_what() {
    testkit::wait_for("a day that never comes", Duration::from_millis(50), || async { false }).await;
}
