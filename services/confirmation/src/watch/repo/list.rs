//! Lists of watches, newest first, and their counts.

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Row as _};
use types::{ChainName, JobId};
use uuid::Uuid;

use super::row::{self, StoredWatch};
use super::transactions;
use crate::error::Error;
use crate::watch::domain::Status;

/// Which watches to list, and where the page begins.
#[derive(Debug, Clone)]
pub struct WatchQuery {
    pub chain: Option<ChainName>,
    /// Empty for all.
    pub statuses: Vec<Status>,
    /// The last row of the page before.
    pub after: Option<(DateTime<Utc>, JobId)>,
    pub size: u32,
}

#[derive(Debug)]
pub struct WatchPage {
    pub watches: Vec<StoredWatch>,
    pub has_more: bool,
}

pub async fn page(pool: &PgPool, query: &WatchQuery) -> Result<WatchPage, Error> {
    let (at, job) = query.after.map_or((None, None), |(at, job)| (Some(at), Some(job.as_uuid())));
    let statuses: Vec<&'static str> = query.statuses.iter().map(Into::into).collect();
    let rows = sqlx::query(include_str!("../../../queries/watch_page.sql"))
        .bind(query.chain.as_ref().map(ChainName::as_str))
        .bind((!statuses.is_empty()).then_some(statuses))
        .bind(at)
        .bind(job)
        // One row more than requested shows whether there is another page.
        .bind(i64::from(query.size) + 1)
        .fetch_all(pool)
        .await?;
    let size = usize::try_from(query.size).unwrap_or(usize::MAX);
    let has_more = rows.len() > size;
    let rows = &rows[..rows.len().min(size)];
    let ids = rows.iter().map(|row| row.try_get("job_id")).collect::<Result<Vec<Uuid>, _>>()?;
    let transactions = transactions::of_jobs(pool, &ids).await?;
    Ok(WatchPage { watches: row::stored(rows, &transactions)?, has_more })
}

/// The open watches of one chain in one status.
#[derive(Debug, sqlx::FromRow)]
pub struct OpenWatches {
    pub chain: String,
    pub status: String,
    pub halted: bool,
    pub count: f64,
    pub oldest_seconds: f64,
    pub delayed: f64,
}

/// A row for every chain and open status, also where there are none.
pub async fn open_watches(pool: &PgPool) -> Result<Vec<OpenWatches>, Error> {
    Ok(sqlx::query_as(include_str!("../../../queries/watch_gauges.sql")).fetch_all(pool).await?)
}
