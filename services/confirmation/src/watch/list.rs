//! Lists of watches, newest first, and what was seen of one.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use payment::BlockRef;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row as _};
use types::{ChainName, JobId, TxHash};
use uuid::Uuid;

use super::error::{WatchError, corrupt};
use super::row::{self, Stored};

/// Observations shown of one watch.
const MOST_OBSERVATIONS: i64 = 500;

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

/// Something that was seen of a watch, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub kind: String,
    pub tx: Option<TxHash>,
    pub block: Option<BlockRef>,
    pub detail: String,
    pub at: DateTime<Utc>,
}

/// What was seen of one watch, oldest first; of a long history the newest.
pub async fn observations(pool: &PgPool, job: JobId) -> Result<Vec<Observed>, WatchError> {
    let rows = sqlx::query(
        "SELECT kind, tx_hash, block_number, block_hash, detail, at FROM observations
         WHERE job_id = $1 ORDER BY id DESC LIMIT $2",
    )
    .bind(job.as_uuid())
    .bind(MOST_OBSERVATIONS)
    .fetch_all(pool)
    .await?;
    rows.iter().rev().map(observed).collect()
}

fn observed(row: &PgRow) -> Result<Observed, WatchError> {
    let number = row.try_get::<Option<i64>, _>("block_number")?.map(u64::try_from).transpose();
    let number = number.map_err(|error| corrupt("observation", error))?;
    let hash = row.try_get::<Option<[u8; 32]>, _>("block_hash")?.map(TxHash);
    Ok(Observed {
        kind: row.try_get("kind")?,
        tx: row.try_get::<Option<[u8; 32]>, _>("tx_hash")?.map(TxHash),
        block: number.zip(hash).map(|(number, hash)| BlockRef { number, hash }),
        detail: row.try_get("detail")?,
        at: row.try_get("at")?,
    })
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
