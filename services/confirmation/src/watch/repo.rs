//! Watches between the tables and the domain. Every write is part of somebody else's transaction.

use chain::BlockRef;
use chrono::{DateTime, Utc};
use serde::Serialize as _;
use sqlx::{PgConnection, PgPool};
use telemetry::propagation::TraceContext;
use types::{ChainName, JobId, TxHash};
use uuid::Uuid;

use super::domain::{Ending, State, Watch};
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

/// Inserts a watch without transactions unless there is one. Whether it was inserted.
pub async fn insert_in(
    tx: &mut PgConnection,
    watch: &Watch,
    trace: &TraceContext,
) -> Result<bool, WatchError> {
    let trace =
        trace.serialize(serde_json::value::Serializer).map_err(|error| corrupt("trace context", error))?;
    let contract = match watch.effect.asset {
        chain::AssetRef::Native => None,
        chain::AssetRef::Token(contract) => Some(contract.to_string()),
    };
    let done = sqlx::query(include_str!("../../queries/watch_insert.sql"))
        .bind(watch.job.as_uuid())
        .bind(watch.withdrawal.map(|id| id.as_uuid()))
        .bind(watch.chain.as_str())
        .bind(watch.effect.from.to_string())
        .bind(watch.effect.to.to_string())
        .bind(watch.effect.amount.to_string())
        .bind(contract)
        .bind(trace)
        .execute(tx)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Stores the transactions of a watch from position `from` on.
pub async fn insert_transactions_in(
    tx: &mut PgConnection,
    watch: &Watch,
    from: usize,
) -> Result<(), WatchError> {
    for (position, new) in watch.transactions.iter().enumerate().skip(from) {
        let done = sqlx::query(
            "INSERT INTO watched_transactions
             (chain, hash, job_id, round, position, is_cancellation, nonce, expires_at, reference_block)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(watch.chain.as_str())
        .bind(new.hash.0.as_slice())
        .bind(watch.job.as_uuid())
        .bind(i32::try_from(new.round).map_err(|error| corrupt("round", error))?)
        .bind(i32::try_from(position).map_err(|error| corrupt("position", error))?)
        .bind(new.is_cancellation)
        .bind(new.nonce.map(signed))
        .bind(new.expires_at)
        .bind(signed(new.reference_block))
        .execute(&mut *tx)
        .await;
        match done {
            Ok(_) => {}
            Err(error) if db::constraint(&error) == Some("watched_transactions_pkey") => {
                return Err(WatchError::HashTaken { hash: new.hash });
            }
            Err(error) => return Err(error.into()),
        }
    }
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
