//! Chains between the table and the domain.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use types::ChainName;

use super::domain::Settings;
use crate::columns;
use crate::error::Error;

const LIST: &str = include_str!("../../queries/chain_list.sql");

/// Stores settings unless newer or equal ones are there. Returns whether it did.
pub async fn put_in(tx: &mut PgConnection, settings: &Settings) -> Result<bool, Error> {
    let stuck_after = settings.stuck_after.map_or(0, |after| after.as_secs());
    let done = sqlx::query(include_str!("../../queries/chain_put.sql"))
        .bind(settings.name.as_str())
        .bind(settings.kind.as_str())
        .bind(i64::try_from(settings.network_id).map_err(corrupt)?)
        .bind(&settings.nodes)
        .bind(i32::try_from(settings.depth).map_err(corrupt)?)
        .bind(i32::try_from(stuck_after).map_err(corrupt)?)
        .bind(i64::try_from(settings.revision).map_err(corrupt)?)
        .execute(&mut *tx)
        .await?;
    sqlx::query("INSERT INTO chain_loops (chain) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(settings.name.as_str())
        .execute(&mut *tx)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether a chain of this name is known with another kind or network.
pub async fn is_other_network_in(tx: &mut PgConnection, settings: &Settings) -> Result<bool, Error> {
    let row = sqlx::query(LIST).bind(settings.name.as_str()).fetch_optional(tx).await?;
    let known = row.as_ref().map(self::settings).transpose()?;
    Ok(known.is_some_and(|known| (known.kind, known.network_id) != (settings.kind, settings.network_id)))
}

pub async fn list(pool: &PgPool) -> Result<Vec<Settings>, Error> {
    sqlx::query(LIST).bind(None::<&str>).fetch_all(pool).await?.iter().map(settings).collect()
}

pub async fn find(pool: &PgPool, chain: &ChainName) -> Result<Option<Settings>, Error> {
    let row = sqlx::query(LIST).bind(chain.as_str()).fetch_optional(pool).await?;
    row.as_ref().map(settings).transpose()
}

/// Ends the halt of a chain. Returns whether there is such a chain.
pub async fn resume(pool: &PgPool, chain: &ChainName) -> Result<bool, Error> {
    let done = sqlx::query("UPDATE chain_loops SET halted_at = NULL, halted_reason = NULL WHERE chain = $1")
        .bind(chain.as_str())
        .execute(pool)
        .await?;
    Ok(done.rows_affected() == 1)
}

fn settings(row: &PgRow) -> Result<Settings, Error> {
    let small = |column| u32::try_from(row.try_get::<i32, _>(column)?).map_err(corrupt);
    let stuck_after = small("stuck_after_seconds")?;
    Ok(Settings {
        name: row.try_get::<String, _>("name")?.parse().map_err(corrupt)?,
        kind: row.try_get::<&str, _>("kind")?.parse().map_err(corrupt)?,
        network_id: columns::number(row, "network_id")?,
        nodes: row.try_get("nodes")?,
        depth: small("depth")?,
        stuck_after: (stuck_after > 0).then(|| Duration::from_secs(stuck_after.into())),
        revision: columns::number(row, "revision")?,
    })
}

fn corrupt(reason: impl std::fmt::Display) -> Error {
    Error::corrupt("chain", reason)
}
