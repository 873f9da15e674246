//! Lists of watches, newest first.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Row as _};
use types::{ChainName, JobId};
use uuid::Uuid;

use super::error::{WatchError, corrupt};
use super::row::{self, Stored};

/// Which watches, and where the page begins.
#[derive(Debug, Clone)]
pub struct Query {
    pub chain: Option<ChainName>,
    /// Empty for all.
    pub statuses: Vec<&'static str>,
    /// The last row of the page before.
    pub after: Option<(DateTime<Utc>, JobId)>,
    pub size: u32,
}

#[derive(Debug)]
pub struct Page {
    pub watches: Vec<Stored>,
    /// Whether there are more.
    pub more: bool,
}

/// Number of the newest canonical block of each chain.
pub type Tips = HashMap<ChainName, u64>;

pub async fn page(pool: &PgPool, query: &Query) -> Result<Page, WatchError> {
    let (at, job) = query.after.map_or((None, None), |(at, job)| (Some(at), Some(job.as_uuid())));
    let rows = sqlx::query(include_str!("../../queries/watch_page.sql"))
        .bind(query.chain.as_ref().map(ChainName::as_str))
        .bind((!query.statuses.is_empty()).then(|| query.statuses.clone()))
        .bind(at)
        .bind(job)
        // One more than asked for tells whether there is another page.
        .bind(i64::from(query.size) + 1)
        .fetch_all(pool)
        .await?;
    let size = usize::try_from(query.size).unwrap_or(usize::MAX);
    let more = rows.len() > size;
    let rows = &rows[..rows.len().min(size)];
    let ids = rows.iter().map(|row| row.try_get("job_id")).collect::<Result<Vec<Uuid>, _>>()?;
    let transactions =
        sqlx::query(include_str!("../../queries/watch_transactions.sql")).bind(&ids).fetch_all(pool).await?;
    Ok(Page { watches: row::stored(rows, &transactions)?, more })
}

pub async fn tips(pool: &PgPool) -> Result<Tips, WatchError> {
    let rows = sqlx::query(include_str!("../../queries/chain_standings.sql")).fetch_all(pool).await?;
    let mut tips = Tips::new();
    for row in rows {
        if let Some(number) = row.try_get::<Option<i64>, _>("number")? {
            let chain =
                row.try_get::<String, _>("chain")?.parse().map_err(|error| corrupt("chain", error))?;
            tips.insert(chain, u64::try_from(number).map_err(|error| corrupt("head", error))?);
        }
    }
    Ok(tips)
}
