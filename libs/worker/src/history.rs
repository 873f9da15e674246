//! What a worker has done, in a SQLite file of its own: `{dir}/{id}.db`.
//!
//! Owns two tables: `cycles`, written by the scheduler loop, and `records`, which a worker may write itself, by kind. Rows older
//! than the retention (90 days) are pruned at start and once a day. A worker does not need the file to continue its work.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::WorkerId;

pub const RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);

const SCHEMA: &str = include_str!("history.sql");

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("cannot make the directory {path}")]
    Directory { path: String, source: std::io::Error },
    #[error("the history file cannot be used")]
    Store(#[from] sqlx::Error),
    #[error("a record in the history file is not JSON")]
    Damaged(#[from] serde_json::Error),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CycleRow {
    pub epoch: u64,
    pub began_at: DateTime<Utc>,
    pub took: Duration,
    /// What it reported; absent when it failed.
    pub report: Option<Value>,
    pub error: Option<String>,
}

/// A worker's file. Clones share it.
#[derive(Debug, Clone)]
pub struct History {
    pool: SqlitePool,
    retention: Duration,
}

impl History {
    /// Opens or creates the file, and prunes it.
    pub async fn open(dir: &Path, id: &WorkerId, retention: Duration) -> Result<Self, HistoryError> {
        std::fs::create_dir_all(dir)
            .map_err(|source| HistoryError::Directory { path: dir.display().to_string(), source })?;
        let options = SqliteConnectOptions::new()
            .filename(dir.join(format!("{id}.db")))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(5));
        // One writer is all that SQLite has.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        let history = Self { pool, retention };
        history.prune(Utc::now()).await?;
        Ok(history)
    }

    /// Keeps a cycle.
    pub async fn cycle(&self, row: &CycleRow) -> Result<(), HistoryError> {
        sqlx::query("INSERT INTO cycles (epoch, began_ms, took_ms, report, error) VALUES (?, ?, ?, ?, ?)")
            .bind(i64::try_from(row.epoch).unwrap_or(i64::MAX))
            .bind(row.began_at.timestamp_millis())
            .bind(i64::try_from(row.took.as_millis()).unwrap_or(i64::MAX))
            .bind(row.report.as_ref().map(Value::to_string))
            .bind(&row.error)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The last cycles, newest first.
    pub async fn cycles(&self, limit: u32) -> Result<Vec<CycleRow>, HistoryError> {
        let rows = sqlx::query(
            "SELECT epoch, began_ms, took_ms, report, error FROM cycles ORDER BY id DESC LIMIT ?",
        )
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                let (epoch, took): (i64, i64) = (row.try_get("epoch")?, row.try_get("took_ms")?);
                let report: Option<String> = row.try_get("report")?;
                Ok(CycleRow {
                    epoch: epoch.unsigned_abs(),
                    began_at: moment(row.try_get("began_ms")?),
                    took: Duration::from_millis(took.unsigned_abs()),
                    report: report.as_deref().map(serde_json::from_str).transpose()?,
                    error: row.try_get("error")?,
                })
            })
            .collect()
    }

    /// Keeps a record of a kind (`decision`, `candles`, ..) at a time. The same kind, name and time again replaces it.
    pub async fn put(
        &self,
        kind: &str,
        name: &str,
        at: DateTime<Utc>,
        body: &Value,
    ) -> Result<(), HistoryError> {
        sqlx::query("INSERT OR REPLACE INTO records (kind, name, at_ms, body) VALUES (?, ?, ?, ?)")
            .bind(kind)
            .bind(name)
            .bind(at.timestamp_millis())
            .bind(body.to_string())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Records of a kind and name since a time, oldest first.
    pub async fn since(
        &self,
        kind: &str,
        name: &str,
        since: DateTime<Utc>,
    ) -> Result<Vec<(DateTime<Utc>, Value)>, HistoryError> {
        let rows = sqlx::query(
            "SELECT at_ms, body FROM records WHERE kind = ? AND name = ? AND at_ms >= ? ORDER BY at_ms",
        )
        .bind(kind)
        .bind(name)
        .bind(since.timestamp_millis())
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                let body: String = row.try_get("body")?;
                Ok((moment(row.try_get("at_ms")?), serde_json::from_str(&body)?))
            })
            .collect()
    }

    /// Removes rows older than the retention, and returns how many those were.
    ///
    /// If the clock is ahead of the newest row, age is counted from that row, because a clock that jumped ahead must not empty
    /// the file.
    pub async fn prune(&self, now: DateTime<Utc>) -> Result<u64, HistoryError> {
        let newest: Option<i64> =
            sqlx::query_scalar("SELECT max(at) FROM (SELECT max(at_ms) AS at FROM records UNION ALL SELECT max(began_ms) FROM cycles)")
                .fetch_one(&self.pool)
                .await?;
        let now = now.timestamp_millis();
        let retention = i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX);
        let before = newest.map_or(now, |newest| newest.min(now)).saturating_sub(retention);
        let records =
            sqlx::query("DELETE FROM records WHERE at_ms < ?").bind(before).execute(&self.pool).await?;
        let cycles =
            sqlx::query("DELETE FROM cycles WHERE began_ms < ?").bind(before).execute(&self.pool).await?;
        Ok(records.rows_affected() + cycles.rows_affected())
    }

    /// For a worker's own tables and queries.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

fn moment(millis: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(millis).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cycle(epoch: u64, began_at: DateTime<Utc>) -> CycleRow {
        let report = Some(json!({"moved": epoch}));
        CycleRow { epoch, began_at, took: Duration::from_millis(7), report, error: None }
    }

    #[tokio::test]
    async fn what_is_older_than_the_retention_goes_and_the_rest_survives_a_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let id: WorkerId = "USDC-USDT".parse().unwrap();
        let (now, day) = (moment(1_800_000_000_000), chrono::Duration::days(1));
        let history = History::open(dir.path(), &id, RETENTION).await.unwrap();
        for (epoch, days) in [(1, 91), (2, 89), (3, 0)] {
            history.cycle(&cycle(epoch, now - day * days)).await.unwrap();
            history.put("decision", "main", now - day * days, &json!({"epoch": epoch})).await.unwrap();
        }
        assert_eq!(history.prune(now).await.unwrap(), 2);
        history.close().await;
        assert!(dir.path().join("USDC-USDT.db").is_file());

        let history = History::open(dir.path(), &id, RETENTION).await.unwrap();
        let cycles = history.cycles(10).await.unwrap();
        assert_eq!(cycles, [cycle(3, now), cycle(2, now - day * 89)]);
        let kept = history.since("decision", "main", now - day * 100).await.unwrap();
        assert_eq!(
            kept.iter().map(|(_, body)| body["epoch"].clone()).collect::<Vec<_>>(),
            [json!(2), json!(3)]
        );
    }

    #[tokio::test]
    async fn the_same_record_again_replaces_the_first_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let now = moment(1_800_000_000_000);
        let history = History::open(dir.path(), &"a".parse().unwrap(), RETENTION).await.unwrap();
        for (name, body) in [("x", "first"), ("y", "other"), ("x", "second")] {
            history.put("candle", name, now, &json!(body)).await.unwrap();
        }
        assert_eq!(history.since("candle", "x", now).await.unwrap(), [(now, json!("second"))]);
        assert_eq!(history.since("candle", "y", now).await.unwrap(), [(now, json!("other"))]);
    }

    #[tokio::test]
    async fn a_clock_that_jumps_ahead_empties_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let now = moment(1_800_000_000_000);
        let history = History::open(dir.path(), &"a".parse().unwrap(), RETENTION).await.unwrap();
        history.cycle(&cycle(1, now)).await.unwrap();
        assert_eq!(history.prune(now + chrono::Duration::days(3650)).await.unwrap(), 0);
        assert_eq!(history.cycles(10).await.unwrap().len(), 1);
    }
}
