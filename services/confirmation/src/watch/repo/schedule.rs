//! Which watches are looked up or checked next, and why the verdicts on others are delayed.

use std::time::Duration;

use chrono::TimeDelta;
use payment::BindingKind;
use sqlx::{PgConnection, PgPool, Row as _};
use types::{Address, ChainName, JobId, TxHash};

use crate::columns::{self, signed};
use crate::error::Error;

/// A waiting watch that must be looked up.
#[derive(Debug)]
pub struct DueWatch {
    pub job: JobId,
    pub version: i64,
    pub waited: TimeDelta,
    /// Of the present round, oldest first.
    pub hashes: Vec<TxHash>,
    /// Whether its nonce or its expiration is known.
    pub is_bound: bool,
}

pub async fn due(pool: &PgPool, chain: &ChainName, rows: i64) -> Result<Vec<DueWatch>, Error> {
    let rows = sqlx::query(include_str!("../../../queries/lookup_due.sql"))
        .bind(chain.as_str())
        .bind(rows)
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(DueWatch {
                job: columns::job(row)?,
                version: row.try_get("version")?,
                waited: TimeDelta::milliseconds(row.try_get("waited_ms")?),
                hashes: columns::hashes(row, "hashes")?,
                is_bound: row.try_get("is_bound")?,
            })
        })
        .collect()
}

/// Sets when each of these is looked up next: the job, the version that was read, and the pause.
pub async fn reschedule_in(tx: &mut PgConnection, next: &[(JobId, i64, Duration)]) -> Result<(), Error> {
    sqlx::query(include_str!("../../../queries/lookup_next.sql"))
        .bind(next.iter().map(|(job, ..)| job.as_uuid()).collect::<Vec<_>>())
        .bind(next.iter().map(|(_, version, _)| *version).collect::<Vec<_>>())
        .bind(next.iter().map(|(.., after)| columns::millis(*after)).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Makes every waiting watch of a chain due at once.
pub async fn make_all_due_in(tx: &mut PgConnection, chain: &ChainName) -> Result<(), Error> {
    sqlx::query("UPDATE watches SET check_due_at = now() WHERE chain = $1 AND status = 'waiting'")
        .bind(chain.as_str())
        .execute(tx)
        .await?;
    Ok(())
}

/// Which waiting watches to check for a used-up binding.
#[derive(Debug, Clone, Copy)]
pub struct VoidCandidates<'a> {
    pub binding: BindingKind,
    /// Time of the final block; windows that end later are still open.
    pub final_time_ms: u64,
    /// The check goes on behind this job.
    pub after: Option<JobId>,
    /// Jobs whose nonce is used up by something that may have paid them. They are checked in addition.
    pub doubted: &'a [JobId],
    pub rows: i64,
}

pub async fn void_candidates(
    pool: &PgPool,
    chain: &ChainName,
    wanted: VoidCandidates<'_>,
) -> Result<Vec<JobId>, Error> {
    let after = wanted.after.map(|job| job.as_uuid());
    let rows = match wanted.binding {
        BindingKind::Nonce => {
            sqlx::query(include_str!("../../../queries/void_nonces.sql"))
                .bind(chain.as_str())
                .bind(wanted.rows)
                .bind(after)
                .bind(wanted.doubted.iter().map(JobId::as_uuid).collect::<Vec<_>>())
                .fetch_all(pool)
                .await?
        }
        BindingKind::Window => {
            sqlx::query(include_str!("../../../queries/void_windows.sql"))
                .bind(chain.as_str())
                .bind(signed(wanted.final_time_ms))
                .bind(wanted.rows)
                .bind(after)
                .fetch_all(pool)
                .await?
        }
    };
    rows.iter().map(columns::job).collect()
}

/// Stores that this nonce, and so every higher one of the sender, was open as of a final block, and clears what delayed them.
pub async fn note_open_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    sender: Address,
    nonce: u64,
    final_number: u64,
) -> Result<(), Error> {
    sqlx::query(include_str!("../../../queries/void_open.sql"))
        .bind(chain.as_str())
        .bind(sender.to_string())
        .bind(signed(nonce))
        .bind(signed(final_number))
        .execute(tx)
        .await?;
    Ok(())
}

/// Stores why these watches are delayed. Only rows with another reason change.
pub async fn set_delayed_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    delayed: &[(JobId, String)],
) -> Result<(), Error> {
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

/// Stores one reason for the delay of every included watch of a chain.
pub async fn delay_included_in(tx: &mut PgConnection, chain: &ChainName, reason: &str) -> Result<(), Error> {
    sqlx::query(
        "UPDATE watches SET delayed_reason = $2, version = version + 1
         WHERE chain = $1 AND status = 'included' AND delayed_reason <> $2",
    )
    .bind(chain.as_str())
    .bind(reason)
    .execute(tx)
    .await?;
    Ok(())
}

/// Clears the reasons of included watches above the final block, which wait for nothing but their depth.
pub async fn clear_delays_above_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    final_number: u64,
) -> Result<(), Error> {
    sqlx::query(
        "UPDATE watches SET delayed_reason = '', version = version + 1
         WHERE chain = $1 AND status = 'included' AND block_number > $2 AND delayed_reason <> ''",
    )
    .bind(chain.as_str())
    .bind(signed(final_number))
    .execute(tx)
    .await?;
    Ok(())
}
