//! Watches between the tables and the domain. Every write is part of somebody else's transaction.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use payment::BlockRef;
use serde::Serialize as _;
use sqlx::postgres::PgDatabaseError;
use sqlx::{PgConnection, PgPool};
use telemetry::propagation::TraceContext;
use types::{ChainName, JobId, TxHash};
use uuid::Uuid;

use super::domain::{Ending, State, Watch, WatchedTx};
use super::error::{WatchError, corrupt};
use super::row::{self, Stored};
use crate::heads::repo::signed;

/// Loads and locks these watches, in the order of their ids; unknown ones are left out.
pub async fn load_in(tx: &mut PgConnection, jobs: &[JobId]) -> Result<Vec<Stored>, WatchError> {
    let ids: Vec<Uuid> = jobs.iter().map(JobId::as_uuid).collect();
    let watches =
        sqlx::query(include_str!("../../queries/watch_load.sql")).bind(&ids).fetch_all(&mut *tx).await?;
    let transactions =
        sqlx::query(include_str!("../../queries/watch_transactions.sql")).bind(&ids).fetch_all(tx).await?;
    row::stored(&watches, &transactions)
}

/// One watch as it stands, without locking it.
pub async fn find(pool: &PgPool, job: JobId) -> Result<Option<Stored>, WatchError> {
    let watches =
        sqlx::query(include_str!("../../queries/watch_find.sql")).bind(job.as_uuid()).fetch_all(pool).await?;
    let transactions = sqlx::query(include_str!("../../queries/watch_transactions.sql"))
        .bind([job.as_uuid()])
        .fetch_all(pool)
        .await?;
    Ok(row::stored(&watches, &transactions)?.pop())
}

/// Inserts watches without transactions where there are none yet, each job once. Those that were inserted.
pub async fn insert_in(
    tx: &mut PgConnection,
    watches: &[(Watch, &TraceContext)],
) -> Result<HashSet<JobId>, WatchError> {
    let mut traces = Vec::with_capacity(watches.len());
    for (_, trace) in watches {
        let trace = trace.serialize(serde_json::value::Serializer);
        traces.push(trace.map_err(|error| corrupt("trace context", error))?);
    }
    let each = || watches.iter().map(|(watch, _)| watch);
    let contract = |watch: &Watch| match watch.effect.asset {
        payment::AssetRef::Native => None,
        payment::AssetRef::Token(contract) => Some(contract.to_string()),
    };
    let inserted: Vec<Uuid> = sqlx::query_scalar(include_str!("../../queries/watch_insert.sql"))
        .bind(each().map(|watch| watch.job.as_uuid()).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.withdrawal.map(|id| id.as_uuid())).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.chain.as_str()).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.effect.from.to_string()).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.effect.to.to_string()).collect::<Vec<_>>())
        .bind(each().map(|watch| watch.effect.amount.to_string()).collect::<Vec<_>>())
        .bind(each().map(contract).collect::<Vec<_>>())
        .bind(traces)
        .fetch_all(tx)
        .await?;
    Ok(inserted.into_iter().map(JobId::from_uuid).collect())
}

/// Stores the transactions of watches, of each from a position on.
pub async fn insert_transactions_in(
    tx: &mut PgConnection,
    watches: &[(&Watch, usize)],
) -> Result<(), WatchError> {
    let new = || {
        watches.iter().flat_map(|(watch, from)| {
            let numbered = watch.transactions.iter().enumerate().skip(*from);
            numbered.map(move |(position, new)| (*watch, position, new))
        })
    };
    let small = |number: u64, what| i32::try_from(number).map_err(|error| corrupt(what, error));
    let round = |new: &WatchedTx| small(u64::from(new.round), "round");
    let done = sqlx::query(include_str!("../../queries/transactions_insert.sql"))
        .bind(new().map(|(watch, ..)| watch.chain.as_str()).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.hash.0.to_vec()).collect::<Vec<_>>())
        .bind(new().map(|(watch, ..)| watch.job.as_uuid()).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| round(new)).collect::<Result<Vec<_>, _>>()?)
        .bind(new().map(|(_, place, _)| small(place as u64, "position")).collect::<Result<Vec<_>, _>>()?)
        .bind(new().map(|(.., new)| new.is_cancellation).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.nonce.map(signed)).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.expires_at).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| signed(new.reference_block)).collect::<Vec<_>>())
        .bind(new().map(|(.., new)| new.proven).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await;
    match done {
        Ok(_) => Ok(()),
        Err(error) if db::constraint(&error) == Some("watched_transactions_pkey") => {
            // The server says which of them, in hexadecimal.
            let told =
                error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
            let told = told.and_then(PgDatabaseError::detail).unwrap_or_default();
            let taken = new().map(|(.., new)| new.hash).find(|hash| told.contains(&hash.bare()));
            Err(taken.map_or(WatchError::Database(error), |hash| WatchError::HashTaken { hash }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Puts the transactions of these watches that belong to their present round into it, to be judged anew.
pub async fn judge_again_in(tx: &mut PgConnection, watches: &[&Watch]) -> Result<(), WatchError> {
    if watches.is_empty() {
        return Ok(());
    }
    let carried = || watches.iter().flat_map(|watch| watch.present().map(move |tx| (*watch, tx)));
    sqlx::query(
        "UPDATE watched_transactions AS t SET round = n.round, final_at = NULL
         FROM unnest($1::text[], $2::bytea[], $3::integer[]) AS n (chain, hash, round)
         WHERE t.chain = n.chain AND t.hash = n.hash",
    )
    .bind(carried().map(|(watch, _)| watch.chain.as_str()).collect::<Vec<_>>())
    .bind(carried().map(|(_, tx)| tx.hash.0.to_vec()).collect::<Vec<_>>())
    .bind(carried().map(|(_, tx)| i32::try_from(tx.round).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// One changed watch.
#[derive(Debug)]
pub struct Changed<'a> {
    pub stored: &'a Stored,
    /// A newer transaction was added: its waiting begins now.
    pub renewed: bool,
}

/// Saves watches that were loaded in this transaction.
pub async fn save_in(tx: &mut PgConnection, changed: &[Changed<'_>]) -> Result<(), WatchError> {
    let Some(first) = changed.first() else { return Ok(()) };
    let each = || changed.iter().map(|change| change.stored);
    let states: Vec<Columns> = each().map(|stored| Columns::of(&stored.watch.state)).collect();
    let done = sqlx::query(include_str!("../../queries/watch_save.sql"))
        .bind(each().map(|stored| stored.watch.job.as_uuid()).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.version).collect::<Vec<_>>())
        .bind(each().map(|stored| i32::try_from(stored.watch.round).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.watch.nonce().map(signed)).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.watch.status()).collect::<Vec<_>>())
        .bind(states.iter().map(|state| state.tx.map(|hash| hash.0.to_vec())).collect::<Vec<_>>())
        .bind(states.iter().map(|state| state.block.map(|block| signed(block.number))).collect::<Vec<_>>())
        .bind(states.iter().map(|state| state.block.map(|block| block.hash.0.to_vec())).collect::<Vec<_>>())
        .bind(states.iter().map(|state| state.value_moved).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.delayed_reason.as_str()).collect::<Vec<_>>())
        .bind(each().map(|stored| stored.watch.contradicted).collect::<Vec<_>>())
        .bind(changed.iter().map(|change| change.renewed).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    db::cas::expect_rows(done, changed.len())
        .map_err(|_| WatchError::Conflict { job: first.stored.watch.job })
}

struct Columns {
    tx: Option<TxHash>,
    block: Option<BlockRef>,
    value_moved: Option<bool>,
}

impl Columns {
    fn of(state: &State) -> Self {
        let (tx, block, value_moved) = match *state {
            State::Waiting => (None, None, None),
            State::Included { tx, block }
            | State::Ended(Ending::Settled { tx, block } | Ending::Cancelled { tx, block }) => {
                (Some(tx), Some(block), None)
            }
            State::Ended(Ending::Reverted { tx, block, value_moved }) => {
                (Some(tx), Some(block), Some(value_moved))
            }
            State::Ended(Ending::Void { foreign, block }) => (foreign, Some(block), None),
        };
        Self { tx, block, value_moved }
    }
}

/// Something seen, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub job: JobId,
    pub kind: &'static str,
    pub tx: Option<TxHash>,
    pub block: Option<BlockRef>,
    pub detail: String,
}

pub async fn observe_in(tx: &mut PgConnection, seen: &[Observation]) -> Result<(), WatchError> {
    if seen.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO observations (job_id, kind, tx_hash, block_number, block_hash, detail)
         SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::bytea[], $6::text[])",
    )
    .bind(seen.iter().map(|seen| seen.job.as_uuid()).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.kind).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.tx.map(|hash| hash.0.to_vec())).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.block.map(|block| signed(block.number))).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.block.map(|block| block.hash.0.to_vec())).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.detail.as_str()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// A verdict as it is stored.
#[derive(Debug, Clone)]
pub struct VerdictRow {
    pub id: Uuid,
    pub job: JobId,
    pub round: u32,
    pub kind: &'static str,
    pub payload: Vec<u8>,
}

pub async fn insert_verdicts_in(
    tx: &mut PgConnection,
    verdicts: &[VerdictRow],
    at: DateTime<Utc>,
) -> Result<(), WatchError> {
    sqlx::query(
        "INSERT INTO verdicts (id, job_id, round, kind, payload, at)
         SELECT *, $6 FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::bytea[])",
    )
    .bind(verdicts.iter().map(|verdict| verdict.id).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| verdict.job.as_uuid()).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| i32::try_from(verdict.round).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| verdict.kind).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| verdict.payload.as_slice()).collect::<Vec<_>>())
    .bind(at)
    .execute(tx)
    .await?;
    Ok(())
}

/// Says on a chain's watches why they are delayed; only rows that say something else are touched.
pub async fn set_delayed_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    delayed: &[(JobId, String)],
) -> Result<(), WatchError> {
    sqlx::query(
        "UPDATE watches AS w SET delayed_reason = n.reason, version = w.version + 1
         FROM unnest($2::uuid[], $3::text[]) AS n (job_id, reason)
         WHERE w.job_id = n.job_id AND w.chain = $1 AND w.delayed_reason <> n.reason",
    )
    .bind(chain.as_str())
    .bind(delayed.iter().map(|(job, _)| job.as_uuid()).collect::<Vec<_>>())
    .bind(delayed.iter().map(|(_, reason)| reason.as_str()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}
