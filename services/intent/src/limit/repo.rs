//! SQL of limits, and the locks under which a window is added up.
//!
//! Two requests that are checked at the same time would not see each other and would both fit. So each transaction first takes a
//! lock named after what is added up and keeps it until it ends; the next one then sees the committed row. This bounds every
//! window, not only those that end now: the request of a window that was checked last has seen all others.
//!
//! Triggers add up whole hours in the transaction of each change (`limit_usage_of_assets`, `limit_usage_of_users`), so that the
//! cost of a check grows with the hours of a window and not with its requests. These sums are committed together with the
//! requests that they count.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{FromRow, PgConnection};

use super::domain::{AppliedLimit, Headroom, Limit, LimitId};
use crate::catalogue::{AssetOnChain, columns};
use crate::error::{StoreError, decimals, parse};

const PUT: &str = include_str!("../../queries/limit_put.sql");
const REMAINING: &str = include_str!("../../queries/limit_remaining.sql");
const SELECT: &str = include_str!("../../queries/limit_select.sql");

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

impl TryFrom<Row> for Limit {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            scope: parse("scope", &row.scope)?,
            chain: parse("chain", &row.chain)?,
            asset: parse("asset", &row.asset)?,
            window_seconds: row.window_seconds,
            max: parse("max_amount_raw", &row.max_amount_raw)?,
            decimals: decimals(row.decimals)?,
        })
    }
}

/// Creates or replaces a limit; it keeps its id.
pub async fn put_in(connection: &mut PgConnection, limit: &Limit, by: &str) -> Result<LimitId, StoreError> {
    let id: uuid::Uuid = sqlx::query_scalar(PUT)
        .bind(limit.id.as_uuid())
        .bind(limit.scope.into_str())
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

/// Returns whether there was such a limit.
pub async fn delete_in(connection: &mut PgConnection, id: LimitId) -> Result<bool, StoreError> {
    let deleted =
        sqlx::query("DELETE FROM limits WHERE id = $1").bind(id.as_uuid()).execute(connection).await?;
    Ok(deleted.rows_affected() == 1)
}

pub async fn list_in(connection: &mut PgConnection) -> Result<Vec<Limit>, StoreError> {
    select_in(connection, None).await
}

/// The limits of these assets, by asset.
pub async fn find_many_in(
    connection: &mut PgConnection,
    assets: &BTreeSet<AssetOnChain>,
) -> Result<BTreeMap<AssetOnChain, Vec<Limit>>, StoreError> {
    let mut found: BTreeMap<AssetOnChain, Vec<Limit>> = BTreeMap::new();
    for limit in select_in(connection, Some(columns(assets))).await? {
        found.entry((limit.chain.clone(), limit.asset.clone())).or_default().push(limit);
    }
    Ok(found)
}

async fn select_in(
    connection: &mut PgConnection,
    assets: Option<(Vec<&str>, Vec<&str>)>,
) -> Result<Vec<Limit>, StoreError> {
    let (chains, symbols) = assets.unzip();
    let rows: Vec<Row> = sqlx::query_as(SELECT).bind(chains).bind(symbols).fetch_all(connection).await?;
    rows.into_iter().map(Limit::try_from).collect()
}

/// Takes the locks of these names until the transaction ends. They are sorted, so that all transactions take them in the same
/// order and cannot deadlock.
pub async fn lock_in(tx: &mut PgConnection, names: &BTreeSet<String>) -> Result<(), StoreError> {
    if !names.is_empty() {
        // The rows, and so the locks, are taken in the order given.
        sqlx::query(
            "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest($1::text[]) AS name",
        )
        .bind(names.iter().collect::<Vec<_>>())
        .execute(tx)
        .await?;
    }
    Ok(())
}

/// What is left under these limits. It stays true until the transaction ends if their locks are held.
pub async fn headroom_in(
    tx: &mut PgConnection,
    applied: &[AppliedLimit<'_>],
) -> Result<Headroom, StoreError> {
    let mut headroom = Headroom::default();
    if applied.is_empty() {
        return Ok(headroom);
    }
    let limits = || applied.iter().map(|applied| applied.limit);
    let remaining: Vec<String> = sqlx::query_scalar(REMAINING)
        .bind(limits().map(|limit| limit.chain.as_str()).collect::<Vec<_>>())
        .bind(limits().map(|limit| limit.asset.as_str()).collect::<Vec<_>>())
        .bind(applied.iter().map(|applied| applied.user.map(|user| user.as_uuid())).collect::<Vec<_>>())
        .bind(limits().map(|limit| limit.window_seconds).collect::<Vec<_>>())
        .bind(limits().map(|limit| limit.max.to_string()).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    for (applied, left) in applied.iter().zip(remaining) {
        if !left.starts_with('-') {
            headroom.set(applied, parse("remaining", &left)?);
        }
    }
    Ok(headroom)
}
