//! Keeps the planner's knowledge of table sizes fresh while tables grow fast.
//!
//! A session keeps the plan of a prepared statement until the statistics of one of its tables change. A plan made while a queue
//! was empty reads the whole table, which is slow once the queue is full, and autovacuum, which would refresh the
//! statistics, looks at a database only once a minute. Therefore the service itself runs ANALYZE on each table that has
//! outgrown its statistics. That also makes every session replace its plans.
//!
//! Owns no table. It never fails a service: without it plans are only renewed later.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(1);

/// Refreshes the statistics of fast-growing tables until `stop`.
pub async fn keep_statistics(pool: &PgPool, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Some(Err(error)) = stop.run_until_cancelled(refresh_statistics(pool)).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot refresh table statistics");
        }
        stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await;
    }
}

/// Runs ANALYZE on the tables that have more than doubled since their statistics were written; returns how many those were.
pub async fn refresh_statistics(pool: &PgPool) -> Result<usize, sqlx::Error> {
    let outgrown: Vec<String> =
        sqlx::query_scalar(include_str!("../queries/tables_outgrown.sql")).fetch_all(pool).await?;
    for table in &outgrown {
        // A table that another instance of the service analyzes at this moment is left to it.
        let analyze = AssertSqlSafe(format!("ANALYZE (SKIP_LOCKED) {table}"));
        sqlx::raw_sql(analyze).execute(pool).await?;
        tracing::debug!(table, "table statistics refreshed");
    }
    Ok(outgrown.len())
}
