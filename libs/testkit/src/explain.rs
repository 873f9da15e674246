//! The plans that PostgreSQL chooses.

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Row as _};

/// The generic plan of a statement with parameters: the one that a prepared statement keeps.
pub async fn generic_plan(pool: &PgPool, sql: &str) -> String {
    let explained = async {
        // Not given back to the pool, whose other sessions must not keep the setting.
        let mut connection = pool.acquire().await?.detach();
        for statement in ["SET plan_cache_mode = force_generic_plan", &format!("PREPARE explained AS {sql}")]
        {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await?;
        }
        let nulls = vec!["NULL"; parameters(sql)].join(", ");
        let arguments = if nulls.is_empty() { nulls } else { format!("({nulls})") };
        let explain = format!("EXPLAIN EXECUTE explained {arguments}");
        let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut connection).await?;
        rows.iter()
            .map(|row| Ok(row.try_get::<String, _>(0)? + "\n"))
            .collect::<Result<String, sqlx::Error>>()
    };
    explained.await.unwrap_or_else(|error| panic!("cannot explain {sql}: {error}"))
}

/// The highest `$n` of a statement.
fn parameters(sql: &str) -> usize {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    sql.split('$').skip(1).filter_map(number).max().unwrap_or(0)
}

/// Fails unless the statement's generic plan uses the index and reads no table from end to end. The test fills the tables with
/// realistic numbers of rows and runs ANALYZE before.
pub async fn assert_uses_index(pool: &PgPool, sql: &str, index: &str) {
    let plan = generic_plan(pool, sql).await;
    assert!(plan.contains(index), "{index} is not used:\n{plan}");
    assert!(!plan.contains("Seq Scan"), "a whole table is read:\n{plan}");
}
