//! Watched transactions: adding them, and in which block each was seen.

use std::collections::BTreeMap;

use payment::{BlockRef, Effect};
use sqlx::postgres::{PgDatabaseError, PgRow};
use sqlx::{PgConnection, PgExecutor, PgPool};
use types::{ChainName, JobId, TxHash};
use uuid::Uuid;

use super::row;
use crate::columns::{self, bytes, signed};
use crate::error::Error;
use crate::watch::domain::{Watch, WatchedTx};

/// The rows of all transactions of these jobs, in order of position.
pub(super) async fn of_jobs(db: impl PgExecutor<'_>, jobs: &[Uuid]) -> Result<Vec<PgRow>, Error> {
    Ok(sqlx::query(include_str!("../../../queries/watch_transactions.sql")).bind(jobs).fetch_all(db).await?)
}

/// Stores the transactions of watches, of each from a position on.
pub async fn insert_in(tx: &mut PgConnection, watches: &[(&Watch, usize)]) -> Result<(), Error> {
    let new = || {
        watches.iter().flat_map(|(watch, from)| {
            let numbered = watch.transactions.iter().enumerate().skip(*from);
            numbered.map(move |(position, new)| (*watch, position, new))
        })
    };
    let position = |place: usize| i32::try_from(place).map_err(|error| Error::corrupt("position", error));
    let done = sqlx::query(include_str!("../../../queries/transactions_insert.sql"))
        .bind(new().map(|(watch, ..)| watch.chain.as_str()).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| bytes(&new.hash)).collect::<Vec<_>>())
        .bind(new().map(|(watch, ..)| watch.job.as_uuid()).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| columns::round(new.round)).collect::<Vec<_>>())
        .bind(new().map(|(_, place, _)| position(place)).collect::<Result<Vec<_>, _>>()?)
        .bind(new().map(|(.., new)| new.is_cancellation()).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.nonce().map(signed)).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.expires_at()).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| signed(new.reference_block)).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.proven).collect::<Vec<_>>())
        .bind(new().map(|(watch, _, new)| own_effect(watch, new)).collect::<Result<Vec<_>, _>>()?)
        .execute(&mut *tx)
        .await;
    match done {
        Ok(_) => Ok(()),
        Err(error) if db::constraint(&error) == Some("watched_transactions_pkey") => {
            // The server's message names the hash in hexadecimal.
            let detail = error
                .as_database_error()
                .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
                .and_then(PgDatabaseError::detail)
                .unwrap_or_default();
            let taken = new().map(|(.., new)| new.hash).find(|hash| detail.contains(&hash.bare()));
            Err(taken.map_or(Error::Database(error), |hash| Error::HashTaken { hash }))
        }
        Err(error) => Err(error.into()),
    }
}

/// The effect that is stored with a transaction: none if it is that of its watch, or follows from being a cancellation.
fn own_effect(watch: &Watch, new: &WatchedTx) -> Result<Option<serde_json::Value>, Error> {
    let is_own = !new.is_cancellation() && new.effect != watch.effect;
    is_own.then(|| row::effect_json(&new.effect)).transpose()
}

/// Moves the transactions of the present round of these watches into it, to be judged again.
pub async fn judge_again_in(tx: &mut PgConnection, watches: &[&Watch]) -> Result<(), Error> {
    let present = || watches.iter().flat_map(|watch| watch.present().map(move |tx| (*watch, tx)));
    if watches.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "UPDATE watched_transactions AS t SET round = n.round, final_at = NULL
         FROM unnest($1::text[], $2::bytea[], $3::integer[]) AS n (chain, hash, round)
         WHERE t.chain = n.chain AND t.hash = n.hash",
    )
    .bind(present().map(|(watch, _)| watch.chain.as_str()).collect::<Vec<_>>())
    .bind(present().map(|(_, tx)| bytes(&tx.hash)).collect::<Vec<_>>())
    .bind(present().map(|(_, tx)| columns::round(tx.round)).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// A watched transaction and the block it was seen in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    pub job: JobId,
    pub tx: TxHash,
    pub block: BlockRef,
}

/// Finds watched transactions among those of new blocks, and stores in which block each is.
pub async fn find_included_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    blocks: &BTreeMap<TxHash, BlockRef>,
) -> Result<Vec<Sighting>, Error> {
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let rows =
        sqlx::query("SELECT hash, job_id FROM watched_transactions WHERE chain = $1 AND hash = ANY($2)")
            .bind(chain.as_str())
            .bind(blocks.keys().map(bytes).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let hash = columns::hash(row, "hash")?;
        if let Some(block) = blocks.get(&hash) {
            found.push(Sighting { job: columns::job(row)?, tx: hash, block: *block });
        }
    }
    include_in(tx, chain, &found).await?;
    Ok(found)
}

/// Stores in which block each transaction is. One that was final in another block must be judged again.
pub async fn include_in(tx: &mut PgConnection, chain: &ChainName, seen: &[Sighting]) -> Result<(), Error> {
    if seen.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("../../../queries/transactions_include.sql"))
        .bind(chain.as_str())
        .bind(seen.iter().map(|seen| bytes(&seen.tx)).collect::<Vec<_>>())
        .bind(seen.iter().map(|seen| signed(seen.block.number)).collect::<Vec<_>>())
        .bind(seen.iter().map(|seen| bytes(&seen.block.hash)).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Clears the blocks of transactions that were in undone blocks, and returns the jobs with the undone block of each. A final
/// transaction keeps its block: only agreement of the nodes may contradict that.
pub async fn undo_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    undone: &BTreeMap<TxHash, u64>,
) -> Result<Vec<(JobId, BlockRef)>, Error> {
    if undone.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(include_str!("../../../queries/transactions_undo.sql"))
        .bind(chain.as_str())
        .bind(undone.values().map(|number| signed(*number)).collect::<Vec<_>>())
        .bind(undone.keys().map(bytes).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    rows.iter().map(|row| Ok((columns::job(row)?, columns::block(row)?))).collect()
}

/// A transaction at or below the final block that was not judged yet.
#[derive(Debug)]
pub struct Undecided {
    pub hash: TxHash,
    pub job: JobId,
    pub block: BlockRef,
    pub effect: Effect,
}

/// A page of undecided transactions at or below a final block, beginning after `last`.
pub async fn undecided(
    pool: &PgPool,
    chain: &ChainName,
    final_number: u64,
    last: Option<&Undecided>,
    rows: i64,
) -> Result<Vec<Undecided>, Error> {
    let rows = sqlx::query(include_str!("../../../queries/transactions_undecided.sql"))
        .bind(chain.as_str())
        .bind(signed(final_number))
        .bind(last.map_or(-1, |last| signed(last.block.number)))
        .bind(last.map(|last| bytes(&last.hash)).unwrap_or_default())
        .bind(rows)
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Undecided {
                hash: columns::hash(row, "hash")?,
                job: columns::job(row)?,
                block: columns::block(row)?,
                effect: row::transaction_effect(row, &row::watch_effect(row)?)?,
            })
        })
        .collect()
}

/// Marks these as judged, in the block the nodes agreed on.
pub async fn finalize_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    finals: &[(TxHash, BlockRef)],
) -> Result<(), Error> {
    sqlx::query(
        "UPDATE watched_transactions AS t SET block_number = n.number, block_hash = n.block, final_at = now()
         FROM unnest($2::bytea[], $3::bigint[], $4::bytea[]) AS n (hash, number, block)
         WHERE t.chain = $1 AND t.hash = n.hash",
    )
    .bind(chain.as_str())
    .bind(finals.iter().map(|(hash, _)| bytes(hash)).collect::<Vec<_>>())
    .bind(finals.iter().map(|(_, block)| signed(block.number)).collect::<Vec<_>>())
    .bind(finals.iter().map(|(_, block)| bytes(&block.hash)).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Clears the blocks of transactions that the nodes agree are not there.
pub async fn clear_blocks_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    hashes: &[TxHash],
) -> Result<(), Error> {
    sqlx::query(
        "UPDATE watched_transactions SET block_number = NULL, block_hash = NULL
         WHERE chain = $1 AND hash = ANY($2)",
    )
    .bind(chain.as_str())
    .bind(hashes.iter().map(bytes).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}
