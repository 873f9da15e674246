//! Watches between the tables and the domain. Every write is part of the caller's transaction.
//!
//! ```text
//! row            rows to domain values        transactions   where transactions were seen, which are undecided
//! list           pages, counts for gauges     schedule       what is looked up or checked next, and what delays it
//! ```

pub mod list;
mod row;
pub mod schedule;
pub mod transactions;

use std::collections::HashSet;

use payment::{BlockRef, Effect, Transfer};
use serde::Serialize as _;
use sqlx::{PgConnection, PgPool};
use telemetry::propagation::TraceContext;
use types::{Address, ChainName, JobId, RawAmount, TxHash};
use uuid::Uuid;

use super::domain::{Ending, State, Watch};
use crate::columns::{self, bytes, signed};
use crate::error::Error;

pub use row::StoredWatch;

/// Loads and locks these watches in the order of their ids. Unknown ones are left out.
pub async fn load_in(tx: &mut PgConnection, jobs: &[JobId]) -> Result<Vec<StoredWatch>, Error> {
    let ids: Vec<Uuid> = jobs.iter().map(JobId::as_uuid).collect();
    let watches =
        sqlx::query(include_str!("../../../queries/watch_load.sql")).bind(&ids).fetch_all(&mut *tx).await?;
    row::stored(&watches, &transactions::of_jobs(tx, &ids).await?)
}

/// Reads one watch without locking it.
pub async fn find(pool: &PgPool, job: JobId) -> Result<Option<StoredWatch>, Error> {
    let watches = sqlx::query(include_str!("../../../queries/watch_find.sql"))
        .bind(job.as_uuid())
        .fetch_all(pool)
        .await?;
    Ok(row::stored(&watches, &transactions::of_jobs(pool, &[job.as_uuid()]).await?)?.pop())
}

/// Inserts watches without transactions where there are none yet, each job once. Returns those that were inserted.
pub async fn insert_in(
    tx: &mut PgConnection,
    watches: &[(Watch, &TraceContext)],
) -> Result<HashSet<JobId>, Error> {
    let mut traces = Vec::with_capacity(watches.len());
    for (_, trace) in watches {
        let trace = trace.serialize(serde_json::value::Serializer);
        traces.push(trace.map_err(|error| Error::corrupt("trace context", error))?);
    }
    let each = || watches.iter().map(|(watch, _)| watch);
    let effects = each().map(|watch| effect_columns(&watch.effect)).collect::<Result<Vec<_>, _>>()?;
    let inserted: Vec<Uuid> = sqlx::query_scalar(include_str!("../../../queries/watch_insert.sql"))
        .bind(each().map(|watch| watch.job.as_uuid()).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.withdrawal.map(|id| id.as_uuid())).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.chain.as_str()).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.effect.sender().to_string()).collect::<Vec<_>>())
        .bind(effects.iter().map(|(to, ..)| to.to_string()).collect::<Vec<_>>())
        .bind(effects.iter().map(|(_, amount, ..)| amount.to_string()).collect::<Vec<_>>())
        .bind(effects.iter().map(|(.., contract, _)| contract.map(|it| it.to_string())).collect::<Vec<_>>())
        .bind(traces)
        .bind(effects.into_iter().map(|(.., other)| other).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    Ok(inserted.into_iter().map(JobId::from_uuid).collect())
}

/// Receiver, amount and contract of a transfer, which the columns of a watch can describe, or any other effect as JSON.
type EffectColumns = (Address, RawAmount, Option<Address>, Option<serde_json::Value>);

fn effect_columns(effect: &Effect) -> Result<EffectColumns, Error> {
    Ok(match *effect {
        Effect::Moves(Transfer { to, amount, asset, .. }) => (to, amount, asset.contract(), None),
        Effect::Closes { sender: to } | Effect::Succeeds { contract: to, .. } => {
            (to, RawAmount::ZERO, None, Some(row::effect_json(effect)?))
        }
    })
}

#[derive(Debug)]
pub struct ChangedWatch<'a> {
    pub stored: &'a StoredWatch,
    /// A newer transaction was added, so its waiting begins now.
    pub renewed: bool,
}

/// Saves watches that were loaded in this transaction.
pub async fn save_in(tx: &mut PgConnection, changed: &[ChangedWatch<'_>]) -> Result<(), Error> {
    let Some(first) = changed.first() else { return Ok(()) };
    let each = || changed.iter().map(|change| change.stored);
    let states: Vec<_> = each().map(|stored| state_columns(&stored.watch.state)).collect();
    let done = sqlx::query(include_str!("../../../queries/watch_save.sql"))
        .bind(each().map(|stored| stored.watch.job.as_uuid()).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.version).collect::<Vec<_>>())
        .bind(each().map(|stored| columns::round(stored.watch.round)).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.watch.nonce().map(signed)).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.watch.status().into()).collect::<Vec<&'static str>>())
        .bind(states.iter().map(|(tx, ..)| tx.as_ref().map(bytes)).collect::<Vec<_>>())
        .bind(states.iter().map(|(_, block, _)| block.map(|block| signed(block.number))).collect::<Vec<_>>())
        .bind(states.iter().map(|(_, block, _)| block.map(|block| bytes(&block.hash))).collect::<Vec<_>>())
        .bind(states.iter().map(|(.., value_moved)| *value_moved).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.delayed_reason.as_str()).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.watch.contradicted).collect::<Vec<_>>())
        .bind(changed.iter().map(|change| change.renewed).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    db::cas::expect_rows(done, changed.len()).map_err(|_| Error::Conflict { job: first.stored.watch.job })
}

/// The transaction, the block and whether value moved, as far as the state has them.
fn state_columns(state: &State) -> (Option<TxHash>, Option<BlockRef>, Option<bool>) {
    match *state {
        State::Waiting => (None, None, None),
        State::Included { tx, block }
        | State::Ended(Ending::Settled { tx, block } | Ending::Cancelled { tx, block }) => {
            (Some(tx), Some(block), None)
        }
        State::Ended(Ending::Reverted { tx, block, value_moved }) => {
            (Some(tx), Some(block), Some(value_moved))
        }
        State::Ended(Ending::Void { foreign, block }) => (foreign, Some(block), None),
    }
}

/// The ended watches whose evidence is in a block of this number or above.
pub async fn ended_since_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    number: u64,
) -> Result<Vec<(JobId, BlockRef)>, Error> {
    let rows = sqlx::query(
        "SELECT job_id, block_number, block_hash FROM watches
         WHERE chain = $1 AND block_number >= $2 AND status IN ('settled', 'reverted', 'void', 'cancelled')",
    )
    .bind(chain.as_str())
    .bind(signed(number))
    .fetch_all(tx)
    .await?;
    rows.iter().map(|row| Ok((columns::job(row)?, columns::block(row)?))).collect()
}
