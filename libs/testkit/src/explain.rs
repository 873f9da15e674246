//! The plans that PostgreSQL chooses.

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Row as _};

/// A statement with parameters as a session of a service keeps it: prepared once, with one generic plan.
#[derive(Debug)]
pub struct PreparedStatement {
    connection: PgConnection,
    explain: String,
}

impl PreparedStatement {
    pub async fn new(pool: &PgPool, sql: &str) -> Self {
        let prepared = async {
            // Not given back to the pool, whose other sessions must not keep the setting.
            let mut connection = pool.acquire().await?.detach();
            let prepare = format!("SET plan_cache_mode = force_generic_plan; PREPARE explained AS {sql}");
            sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut connection).await?;
            Ok::<_, sqlx::Error>(connection)
        };
        let connection = prepared.await.unwrap_or_else(|error| panic!("cannot prepare {sql}: {error}"));
        let nulls = vec!["NULL"; parameters(sql)].join(", ");
        let arguments = if nulls.is_empty() { nulls } else { format!("({nulls})") };
        Self { connection, explain: format!("EXPLAIN EXECUTE explained {arguments}") }
    }

    /// The plan that the session would use now.
    pub async fn plan(&mut self) -> String {
        let explain = AssertSqlSafe(self.explain.clone());
        let rows = sqlx::raw_sql(explain).fetch_all(&mut self.connection).await;
        let rows = rows.unwrap_or_else(|error| panic!("cannot explain: {error}"));
        rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
    }
}

/// The highest `$n` of a statement.
fn parameters(sql: &str) -> usize {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    sql.split('$').skip(1).filter_map(number).max().unwrap_or(0)
}

/// The generic plan of a statement with parameters: the one that a prepared statement keeps.
pub async fn generic_plan(pool: &PgPool, sql: &str) -> String {
    PreparedStatement::new(pool, sql).await.plan().await
}

/// Fails unless the statement's generic plan uses the index and reads no table from end to end. The test fills the tables with
/// realistic numbers of rows and runs ANALYZE before.
pub async fn assert_uses_index(pool: &PgPool, sql: &str, index: &str) {
    let plan = generic_plan(pool, sql).await;
    assert!(plan.contains(index), "{index} is not used:\n{plan}");
    assert!(!plan.contains("Seq Scan"), "a whole table is read:\n{plan}");
}
