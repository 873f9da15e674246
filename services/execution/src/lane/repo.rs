//! SQL of lanes.

use std::collections::BTreeMap;
use std::time::Duration;

use chain::lane::{Lane, Slot};
use sqlx::{PgConnection, PgExecutor, Row as _};
use types::{Address, ChainName, JobId, RawAmount};
use uuid::Uuid;

use crate::sql::{amount, bigint, unsigned};

/// A lane, locked.
#[derive(Debug)]
pub struct LaneState {
    /// Open nonces from the asked one on; lower ones are of no concern to numbering.
    pub lane: Lane,
    pub halted_reason: Option<String>,
    /// What the transactions at open nonces from the chain's next one on can still take from the wallet.
    pub committed: RawAmount,
    /// How many those are.
    pub unmined: u64,
}

/// The next number of a line that nobody was ever given; zero for one that does not exist yet.
pub(crate) async fn next_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    address: &Address,
) -> Result<u64, sqlx::Error> {
    let next: Option<i64> =
        sqlx::query_scalar("SELECT next_nonce FROM lanes WHERE chain = $1 AND address = $2")
            .bind(chain.as_str())
            .bind(address.to_string())
            .fetch_optional(tx)
            .await?;
    Ok(next.unwrap_or(0).unsigned_abs())
}

/// Locks a lane, which is made first if need be. `mined` and `pending` are the chain's word, read before.
pub(crate) async fn lock_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    address: &Address,
    mined: u64,
    pending: u64,
) -> Result<LaneState, sqlx::Error> {
    let address = address.to_string();
    let row = sqlx::query(
        "INSERT INTO lanes (chain, address, next_nonce, mined_seen) VALUES ($1, $2, $3, $4)
         ON CONFLICT (chain, address) DO UPDATE SET
             -- Nonces that were used and that we never handed out: the key is used elsewhere.
             foreign_seen = lanes.foreign_seen + GREATEST(excluded.next_nonce - lanes.next_nonce, 0),
             next_nonce = GREATEST(lanes.next_nonce, excluded.next_nonce),
             mined_seen = GREATEST(lanes.mined_seen, excluded.mined_seen),
             updated_at = now()
         RETURNING next_nonce, halted_reason, mined_seen",
    )
    .bind(chain.as_str())
    .bind(&address)
    .bind(bigint(pending))
    .bind(bigint(mined))
    .fetch_one(&mut *tx)
    .await?;
    let next = unsigned(&row, "next_nonce")?;
    // The floor is the pool's count: what is in a pool, ours or not, is no gap.
    let floor = pending.max(unsigned(&row, "mined_seen")?);
    let halted_reason: Option<String> = row.try_get("halted_reason")?;
    let taken: Vec<i64> = sqlx::query_scalar(
        "SELECT nonce FROM lane_nonces WHERE chain = $1 AND address = $2 AND nonce >= $3 AND state <> 'free'",
    )
    .bind(chain.as_str())
    .bind(&address)
    .bind(bigint(floor))
    .fetch_all(&mut *tx)
    .await?;
    let open: BTreeMap<u64, Slot> = taken
        .into_iter()
        .map(|nonce| (nonce.unsigned_abs(), Slot::Reserved { held: Duration::ZERO }))
        .collect();
    let row = sqlx::query(
        "SELECT coalesce(sum(committed_raw), 0)::text AS committed, count(*) AS unmined
         FROM lane_nonces WHERE chain = $1 AND address = $2 AND nonce >= $3 AND state = 'open'",
    )
    .bind(chain.as_str())
    .bind(&address)
    .bind(bigint(mined))
    .fetch_one(tx)
    .await?;
    let lane = Lane { floor, next, open, halted: halted_reason.is_some() };
    Ok(LaneState {
        lane,
        halted_reason,
        committed: amount(&row, "committed")?,
        unmined: unsigned(&row, "unmined")?,
    })
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

/// Nothing new is numbered from here on, until a person says so.
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

/// Lets a lane go on. False if there is none.
pub(crate) async fn resume(
    db: impl PgExecutor<'_>,
    chain: &ChainName,
    address: &Address,
) -> Result<bool, sqlx::Error> {
    let resumed = sqlx::query(
        "UPDATE lanes SET halted_reason = NULL, halted_at = NULL, updated_at = now() WHERE chain = $1 AND address = $2",
    )
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
