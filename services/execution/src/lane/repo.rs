//! SQL of lanes.

use std::collections::BTreeSet;

use chain::NonceCounts;
use chain::lane::Lane;
use sqlx::{PgConnection, PgExecutor, Row as _};
use types::{Address, ChainName, JobId, RawAmount};
use uuid::Uuid;

use crate::row::{amount, bigint, text, unsigned};

/// A lane, locked.
#[derive(Debug)]
pub struct LaneState {
    pub lane: Lane,
    pub halted_reason: Option<String>,
    /// What the transactions at open nonces from the chain's next one on can still take from the wallet.
    pub committed: RawAmount,
    /// How many those are.
    pub unmined: u64,
}

/// Locks a lane, which is created if it does not exist. `sight` was read from the chain before; only what enough nodes say is
/// kept. None: there is no lane yet, and too few nodes answer to say where it begins.
pub(crate) async fn lock_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    address: &Address,
    sight: &NonceCounts,
) -> Result<Option<LaneState>, sqlx::Error> {
    let address = address.to_string();
    let locked = match sight.agreed {
        Some(agreed) => {
            let raised = sqlx::query(include_str!("../../queries/raise_lane.sql"))
                .bind(chain.as_str())
                .bind(&address)
                .bind(bigint(agreed))
                .bind(bigint(sight.mined));
            Some(raised.fetch_one(&mut *tx).await?)
        }
        None => {
            let as_it_is = sqlx::query(
                "SELECT next_nonce, halted_reason, mined_seen FROM lanes WHERE chain = $1 AND address = $2 FOR UPDATE",
            );
            as_it_is.bind(chain.as_str()).bind(&address).fetch_optional(&mut *tx).await?
        }
    };
    let Some(row) = locked else { return Ok(None) };
    let next = unsigned(&row, "next_nonce")?;
    let floor = sight.floor(next, unsigned(&row, "mined_seen")?);
    let halted_reason: Option<String> = row.try_get("halted_reason")?;
    let taken: Vec<i64> = sqlx::query_scalar(
        "SELECT nonce FROM lane_nonces WHERE chain = $1 AND address = $2 AND nonce >= $3 AND state <> 'free'",
    )
    .bind(chain.as_str())
    .bind(&address)
    .bind(bigint(floor))
    .fetch_all(&mut *tx)
    .await?;
    let open = taken.into_iter().map(i64::unsigned_abs).collect();
    let row = sqlx::query(
        "SELECT coalesce(sum(committed_raw), 0)::text AS committed, count(*) AS unmined
         FROM lane_nonces WHERE chain = $1 AND address = $2 AND nonce >= $3 AND state = 'open'",
    )
    .bind(chain.as_str())
    .bind(&address)
    .bind(bigint(sight.mined))
    .fetch_one(tx)
    .await?;
    let lane = Lane { floor, next, open, halted: halted_reason.is_some() };
    Ok(Some(LaneState {
        lane,
        halted_reason,
        committed: amount(&row, "committed")?,
        unmined: unsigned(&row, "unmined")?,
    }))
}

/// Nonces below the highest open one that neither the pool nor anybody here has, lowest first and `most` at most.
pub(crate) async fn gaps(
    db: impl PgExecutor<'_>,
    chain: &ChainName,
    address: &Address,
    sight: &NonceCounts,
    most: usize,
) -> Result<BTreeSet<u64>, sqlx::Error> {
    let rows = sqlx::query(include_str!("../../queries/held_nonces.sql"))
        .bind(chain.as_str())
        .bind(address.to_string())
        .bind(bigint(sight.pending.min(i64::MAX.unsigned_abs())))
        .fetch_all(db)
        .await?;
    let (mut held, mut highest, mut floor) = (BTreeSet::new(), None, 0);
    for row in &rows {
        let nonce = unsigned(row, "nonce")?;
        floor = unsigned(row, "floor")?;
        held.insert(nonce);
        if row.try_get("open")? {
            highest = Some(nonce);
        }
    }
    let Some(highest) = highest else { return Ok(BTreeSet::new()) };
    Ok((floor..highest).filter(|nonce| !held.contains(nonce)).take(most).collect())
}

/// A nonce taken for a job, and what it may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub nonce: u64,
    pub job: JobId,
    pub committed: RawAmount,
}

/// Writes nonces as taken. A nonce somebody holds is not overwritten; the caller compares the count.
pub(crate) async fn take_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    address: &Address,
    next: u64,
    taken: &[Taken],
) -> Result<u64, sqlx::Error> {
    let address = address.to_string();
    sqlx::query("UPDATE lanes SET next_nonce = GREATEST(next_nonce, $3), updated_at = now() WHERE chain = $1 AND address = $2")
        .bind(chain.as_str())
        .bind(&address)
        .bind(bigint(next))
        .execute(&mut *tx)
        .await?;
    let written = sqlx::query(
        "INSERT INTO lane_nonces (chain, address, nonce, state, job_id, committed_raw)
         SELECT $1, $2, n.nonce, 'open', n.job_id, n.committed::numeric
         FROM unnest($3::bigint[], $4::uuid[], $5::text[]) AS n (nonce, job_id, committed)
         ON CONFLICT (chain, address, nonce) DO UPDATE
         SET state = 'open', job_id = excluded.job_id, committed_raw = excluded.committed_raw, taken_at = now()
         WHERE lane_nonces.state = 'free'",
    )
    .bind(chain.as_str())
    .bind(&address)
    .bind(taken.iter().map(|taken| bigint(taken.nonce)).collect::<Vec<_>>())
    .bind(taken.iter().map(|taken| taken.job.as_uuid()).collect::<Vec<Uuid>>())
    .bind(taken.iter().map(|taken| taken.committed.to_string()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(written.rows_affected())
}

/// What a bump or a cancellation may cost at a nonce already held.
pub(crate) async fn recommit_in(
    tx: &mut PgConnection,
    job: JobId,
    committed: RawAmount,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE lane_nonces SET committed_raw = $2::numeric WHERE job_id = $1 AND state = 'open'")
        .bind(job.as_uuid())
        .bind(committed.to_string())
        .execute(tx)
        .await?;
    Ok(())
}

/// Nothing new is numbered in the lane until a person resumes it.
pub(crate) async fn halt_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    address: &Address,
    reason: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE lanes SET halted_reason = coalesce(halted_reason, $3), halted_at = coalesce(halted_at, now()),
             foreign_seen = foreign_seen + 1, updated_at = now()
         WHERE chain = $1 AND address = $2",
    )
    .bind(chain.as_str())
    .bind(address.to_string())
    .bind(reason)
    .execute(tx)
    .await?;
    Ok(())
}

/// Resumes a lane from what was handed out and what is final; the rest is read from the chain again. False if there is none.
pub(crate) async fn resume(
    db: impl PgExecutor<'_>,
    chain: &ChainName,
    address: &Address,
) -> Result<bool, sqlx::Error> {
    let resumed = sqlx::query(include_str!("../../queries/resume_lane.sql"))
        .bind(chain.as_str())
        .bind(address.to_string())
        .execute(db)
        .await?;
    Ok(resumed.rows_affected() == 1)
}

/// A lane as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    pub chain: String,
    pub address: String,
    pub next_nonce: u64,
    pub final_nonce: u64,
    pub open_nonces: Vec<u64>,
    /// Given by the signer to payments that are not known here.
    pub spent_nonces: Vec<u64>,
    pub halted_reason: Option<String>,
}

/// Most open nonces shown of one lane.
const SHOWN: i64 = 1000;

/// Lanes with their open nonces, lowest first.
pub(crate) async fn list(
    db: impl PgExecutor<'_>,
    chain: Option<&ChainName>,
    address: Option<&Address>,
) -> Result<Vec<LaneRow>, sqlx::Error> {
    let rows = sqlx::query(include_str!("../../queries/list_lanes.sql"))
        .bind(chain.map(ChainName::as_str))
        .bind(address.map(Address::to_string))
        .bind(SHOWN)
        .fetch_all(db)
        .await?;
    rows.iter()
        .map(|row| {
            let nonces = |column: &str| -> Result<Vec<u64>, sqlx::Error> {
                let nonces: Vec<i64> = row.try_get(column)?;
                Ok(nonces.into_iter().map(i64::unsigned_abs).collect())
            };
            Ok(LaneRow {
                chain: row.try_get("chain")?,
                address: row.try_get("address")?,
                next_nonce: unsigned(row, "next_nonce")?,
                final_nonce: unsigned(row, "final_nonce")?,
                open_nonces: nonces("open_nonces")?,
                spent_nonces: nonces("spent_nonces")?,
                halted_reason: row.try_get("halted_reason")?,
            })
        })
        .collect()
}

/// The addresses of lanes with something under way.
pub(crate) async fn busy(db: impl PgExecutor<'_>, chain: &ChainName) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(include_str!("../../queries/busy_lanes.sql")).bind(chain.as_str()).fetch_all(db).await
}

/// The lanes of a chain, counted.
pub(crate) struct LaneGauge {
    pub chain: ChainName,
    pub halted: u64,
    pub foreign_seen: u64,
    pub spent: u64,
}

pub(crate) async fn lane_gauges(db: impl PgExecutor<'_>) -> Result<Vec<LaneGauge>, sqlx::Error> {
    let rows = sqlx::query(include_str!("../../queries/lane_gauges.sql")).fetch_all(db).await?;
    let gauge = |row| {
        Ok(LaneGauge {
            chain: text(row, "chain")?,
            halted: unsigned(row, "halted")?,
            foreign_seen: unsigned(row, "foreign_seen")?,
            spent: unsigned(row, "spent")?,
        })
    };
    rows.iter().map(gauge).collect()
}
