//! Chains between the table and the domain.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use types::ChainName;

use super::domain::Settings;
use super::error::ChainsError;

const COLUMNS: &str = include_str!("../../queries/chain_list.sql");

/// Stores settings unless newer or equal ones are there. Whether they were stored.
pub async fn put_in(tx: &mut PgConnection, settings: &Settings) -> Result<bool, ChainsError> {
    let stuck_after = settings.stuck_after.map_or(0, |after| after.as_secs());
    let done = sqlx::query(include_str!("../../queries/chain_put.sql"))
        .bind(settings.name.as_str())
        .bind(settings.kind.as_str())
        .bind(i64::try_from(settings.network_id).map_err(too_large)?)
        .bind(&settings.nodes)
        .bind(i32::try_from(settings.depth).map_err(too_large)?)
        .bind(i32::try_from(stuck_after).map_err(too_large)?)
        .bind(i64::try_from(settings.revision).map_err(too_large)?)
        .execute(&mut *tx)
        .await?;
    sqlx::query("INSERT INTO chain_loops (chain) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(settings.name.as_str())
        .execute(&mut *tx)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether a chain of this name is known with another kind or network.
pub async fn is_other_network_in(tx: &mut PgConnection, settings: &Settings) -> Result<bool, ChainsError> {
    let row = sqlx::query(COLUMNS).bind(settings.name.as_str()).fetch_optional(tx).await?;
    let known = row.as_ref().map(self::settings).transpose()?;
    Ok(known.is_some_and(|known| (known.kind, known.network_id) != (settings.kind, settings.network_id)))
}

pub async fn list(pool: &PgPool) -> Result<Vec<Settings>, ChainsError> {
    sqlx::query(COLUMNS).bind(None::<&str>).fetch_all(pool).await?.iter().map(settings).collect()
}

pub async fn find(pool: &PgPool, chain: &ChainName) -> Result<Option<Settings>, ChainsError> {
    let row = sqlx::query(COLUMNS).bind(chain.as_str()).fetch_optional(pool).await?;
    row.as_ref().map(settings).transpose()
}

/// Lets a halted chain go on. Whether there is such a chain.
pub async fn resume(pool: &PgPool, chain: &ChainName) -> Result<bool, ChainsError> {
    let done = sqlx::query("UPDATE chain_loops SET halted_at = NULL, halted_reason = NULL WHERE chain = $1")
        .bind(chain.as_str())
        .execute(pool)
        .await?;
    Ok(done.rows_affected() == 1)
}

fn settings(row: &PgRow) -> Result<Settings, ChainsError> {
    let stuck_after = number(row.try_get("stuck_after_seconds")?)?;
    Ok(Settings {
        name: row.try_get::<String, _>("name")?.parse().map_err(corrupt)?,
        kind: row.try_get::<&str, _>("kind")?.parse().map_err(corrupt)?,
        network_id: u64::try_from(row.try_get::<i64, _>("network_id")?).map_err(corrupt)?,
        nodes: row.try_get("nodes")?,
        depth: number(row.try_get("depth")?)?,
        stuck_after: (stuck_after > 0).then(|| Duration::from_secs(stuck_after.into())),
        revision: u64::try_from(row.try_get::<i64, _>("revision")?).map_err(corrupt)?,
    })
}

fn number(value: i32) -> Result<u32, ChainsError> {
    u32::try_from(value).map_err(corrupt)
}

fn corrupt(reason: impl std::fmt::Display) -> ChainsError {
    ChainsError::Corrupt { reason: reason.to_string() }
}

/// Parsing at the edge admits only what fits; this is the second lock on the same door.
fn too_large(error: std::num::TryFromIntError) -> ChainsError {
    corrupt(error)
}
