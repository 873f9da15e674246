//! SQL of limits, and the locks under which a window is added up.
//!
//! Two requests that are checked at the same time would each not see the other and both fit. So whoever checks first takes a
//! lock named after what is added up, held until the transaction ends; the next one adds up after that and sees the row.
//! That bounds every window, not only those that end now: of the rows within one, the last that was checked has seen all.
//!
//! Whole hours are added up already, by triggers in the transaction of each change (`limit_usage_of_assets`,
//! `limit_usage_of_users`), so that the price of a window is its hours and not its requests. They are committed with the
//! requests they count, so whoever sees one sees the other.

use std::collections::BTreeSet;

use sqlx::{FromRow, PgConnection};
use types::{AssetSymbol, ChainName, Decimals};

use super::domain::{Limit, LimitId, Room, Scope, Whose};
use super::error::LimitError;

const PUT: &str = include_str!("../../queries/limit_put.sql");
const ROOM: &str = include_str!("../../queries/limit_room.sql");
const LIST: &str = "SELECT id, scope, chain, asset, window_seconds, max_amount_raw::text AS max_amount_raw, decimals \
                    FROM limits ORDER BY chain, asset, scope, window_seconds";
const OF_ASSET: &str = "SELECT id, scope, chain, asset, window_seconds, max_amount_raw::text AS max_amount_raw, decimals \
                        FROM limits WHERE chain = $1 AND asset = $2 ORDER BY scope, window_seconds";
// One after the other, in the order given.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest($1::text[]) AS name";

#[derive(FromRow)]
struct Row {
    id: uuid::Uuid,
    scope: String,
    chain: String,
    asset: String,
    window_seconds: i64,
    max_amount_raw: String,
    decimals: i16,
}

fn corrupt(what: &str, error: impl std::fmt::Display) -> LimitError {
    LimitError::Corrupt(format!("{what}: {error}"))
}

impl TryFrom<Row> for Limit {
    type Error = LimitError;

    fn try_from(row: Row) -> Result<Self, LimitError> {
        let decimals = u8::try_from(row.decimals).map_err(|error| corrupt("decimals", error))?;
        Ok(Self {
            id: row.id.into(),
            scope: match row.scope.as_str() {
                "user" => Scope::User,
                "asset" => Scope::Asset,
                other => return Err(corrupt("scope", other)),
            },
            chain: row.chain.parse().map_err(|error| corrupt("chain", error))?,
            asset: row.asset.parse().map_err(|error| corrupt("asset", error))?,
            window_seconds: row.window_seconds,
            max: row.max_amount_raw.parse().map_err(|error| corrupt("max_amount_raw", error))?,
            decimals: Decimals::new(decimals).map_err(|error| corrupt("decimals", error))?,
        })
    }
}

/// Creates or replaces a limit; it keeps its id.
pub async fn put_in(connection: &mut PgConnection, limit: &Limit, by: &str) -> Result<LimitId, LimitError> {
    let id: uuid::Uuid = sqlx::query_scalar(PUT)
        .bind(limit.id.as_uuid())
        .bind(limit.scope.as_str())
        .bind(limit.chain.as_str())
        .bind(limit.asset.as_str())
        .bind(limit.window_seconds)
        .bind(limit.max.to_string())
        .bind(i16::from(limit.decimals.get()))
        .bind(by)
        .fetch_one(connection)
        .await?;
    Ok(id.into())
}

/// Removes a limit. False when there is none.
pub async fn delete_in(connection: &mut PgConnection, id: LimitId) -> Result<bool, LimitError> {
    let gone = sqlx::query("DELETE FROM limits WHERE id = $1").bind(id.as_uuid()).execute(connection).await?;
    Ok(gone.rows_affected() == 1)
}

/// Every limit.
pub async fn list_in(connection: &mut PgConnection) -> Result<Vec<Limit>, LimitError> {
    let rows: Vec<Row> = sqlx::query_as(LIST).fetch_all(connection).await?;
    rows.into_iter().map(Limit::try_from).collect()
}

/// The limits of an asset.
pub async fn of_asset_in(
    connection: &mut PgConnection,
    chain: &ChainName,
    asset: &AssetSymbol,
) -> Result<Vec<Limit>, LimitError> {
    let rows: Vec<Row> =
        sqlx::query_as(OF_ASSET).bind(chain.as_str()).bind(asset.as_str()).fetch_all(connection).await?;
    rows.into_iter().map(Limit::try_from).collect()
}

/// Takes the locks of these names until the transaction ends. Sorted and without repeats: everybody takes the same locks in the
/// same order, so nobody waits in a circle.
pub async fn lock_in(tx: &mut PgConnection, names: &BTreeSet<String>) -> Result<(), LimitError> {
    if !names.is_empty() {
        sqlx::query(LOCK).bind(names.iter().collect::<Vec<_>>()).execute(tx).await?;
    }
    Ok(())
}

/// What is left under these limits. It holds until the transaction ends if their locks are held.
pub async fn room_in(tx: &mut PgConnection, asked: &[Whose<'_>]) -> Result<Room, LimitError> {
    let mut room = Room::default();
    if asked.is_empty() {
        return Ok(room);
    }
    let limits = || asked.iter().map(|whose| whose.limit);
    let left: Vec<String> = sqlx::query_scalar(ROOM)
        .bind(limits().map(|limit| limit.chain.as_str()).collect::<Vec<_>>())
        .bind(limits().map(|limit| limit.asset.as_str()).collect::<Vec<_>>())
        .bind(asked.iter().map(|whose| whose.user.map(|user| user.as_uuid())).collect::<Vec<_>>())
        .bind(limits().map(|limit| limit.window_seconds).collect::<Vec<_>>())
        .bind(limits().map(|limit| limit.max.to_string()).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    for (whose, left) in asked.iter().zip(left) {
        if !left.starts_with('-') {
            room.note(whose, left.parse().map_err(|error| corrupt("what is left", error))?);
        }
    }
    Ok(room)
}
