//! SQL of chains and assets.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, Row as _};
use types::{Address, AssetId, ChainName, Decimals};

use super::{Asset, Chain, Finality};
use crate::row::{amount, bad_column, bigint, count, text, unsigned};

const CHAIN: &str =
    "SELECT name, kind, network_id, nodes, finality, depth, dynamic_fees, max_gas_price::text,
    max_fee::text, bump_after_seconds, enabled, native_asset, revision FROM chains";

pub(crate) async fn chains(db: impl PgExecutor<'_>) -> Result<Vec<Chain>, sqlx::Error> {
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{CHAIN} ORDER BY name"))).fetch_all(db).await?;
    rows.iter().map(read_chain).collect()
}

pub(crate) async fn chain(db: impl PgExecutor<'_>, name: &ChainName) -> Result<Option<Chain>, sqlx::Error> {
    let sql = sqlx::AssertSqlSafe(format!("{CHAIN} WHERE name = $1"));
    sqlx::query(sql).bind(name.as_str()).fetch_optional(db).await?.as_ref().map(read_chain).transpose()
}

/// The chain, locked: whoever changes the catalogue of a chain does it one at a time, in the order of revisions.
pub(crate) async fn lock_chain_in(
    tx: &mut PgConnection,
    name: &ChainName,
) -> Result<Option<Chain>, sqlx::Error> {
    let sql = sqlx::AssertSqlSafe(format!("{CHAIN} WHERE name = $1 FOR UPDATE"));
    sqlx::query(sql).bind(name.as_str()).fetch_optional(tx).await?.as_ref().map(read_chain).transpose()
}

pub(crate) async fn next_revision_in(tx: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("SELECT nextval('catalogue_revision') AS revision").fetch_one(tx).await?;
    unsigned(&row, "revision")
}

/// Stores a chain. Two first calls at once meet at the key; the second one sees the first one's row.
pub(crate) async fn put_chain_in(tx: &mut PgConnection, chain: &Chain) -> Result<(), sqlx::Error> {
    let (finality, depth) = match chain.finality {
        Finality::Depth(depth) => ("depth", depth),
        Finality::Chain => ("chain", 0),
    };
    sqlx::query(include_str!("../../queries/put_chain.sql"))
        .bind(chain.name.as_str())
        .bind(chain.kind.as_str())
        .bind(bigint(chain.network_id))
        .bind(&chain.nodes)
        .bind(finality)
        .bind(i32::try_from(depth).unwrap_or(-1))
        .bind(chain.dynamic_fees)
        .bind(chain.max_gas_price.to_string())
        .bind(chain.max_fee.to_string())
        .bind(i32::try_from(chain.bump_after_seconds).unwrap_or(i32::MAX))
        .bind(chain.enabled)
        .bind(chain.native_asset.as_str())
        .bind(bigint(chain.revision))
        .execute(tx)
        .await?;
    Ok(())
}

const ASSET: &str = "SELECT a.id, a.chain, a.symbol, a.contract_address, a.decimals, a.enabled,
    a.min_withdrawal_raw::text, c.kind FROM assets AS a JOIN chains AS c ON c.name = a.chain";

pub(crate) async fn assets(
    db: impl PgExecutor<'_>,
    chain: Option<&ChainName>,
) -> Result<Vec<Asset>, sqlx::Error> {
    let sql = format!("{ASSET} WHERE $1::text IS NULL OR a.chain = $1 ORDER BY a.chain, a.symbol");
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(chain.map(ChainName::as_str)).fetch_all(db).await?;
    rows.iter().map(read_asset).collect()
}

pub(crate) async fn put_asset_in(tx: &mut PgConnection, asset: &Asset) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO assets (id, chain, symbol, is_native, contract_address, decimals, enabled, min_withdrawal_raw)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8::numeric)
         ON CONFLICT (id) DO UPDATE
         SET enabled = excluded.enabled, min_withdrawal_raw = excluded.min_withdrawal_raw, updated_at = now()",
    )
    .bind(asset.id.as_uuid())
    .bind(asset.chain.as_str())
    .bind(asset.symbol.as_str())
    .bind(asset.is_native())
    .bind(asset.contract.map(|contract| contract.to_string()))
    .bind(i16::from(asset.decimals.get()))
    .bind(asset.enabled)
    .bind(asset.min_withdrawal.to_string())
    .execute(tx)
    .await?;
    Ok(())
}

fn read_chain(row: &PgRow) -> Result<Chain, sqlx::Error> {
    let finality = match row.try_get("finality")? {
        "depth" => Finality::Depth(count(row, "depth")?),
        _ => Finality::Chain,
    };
    Ok(Chain {
        name: text(row, "name")?,
        kind: text(row, "kind")?,
        network_id: unsigned(row, "network_id")?,
        nodes: row.try_get("nodes")?,
        finality,
        dynamic_fees: row.try_get("dynamic_fees")?,
        max_gas_price: amount(row, "max_gas_price")?,
        max_fee: amount(row, "max_fee")?,
        bump_after_seconds: count(row, "bump_after_seconds")?,
        enabled: row.try_get("enabled")?,
        native_asset: text(row, "native_asset")?,
        revision: unsigned(row, "revision")?,
    })
}

fn read_asset(row: &PgRow) -> Result<Asset, sqlx::Error> {
    let format = text(row, "kind")?;
    let contract: Option<&str> = row.try_get("contract_address")?;
    let contract = contract.map(|text| Address::parse(format, text)).transpose();
    let decimals: i16 = row.try_get("decimals")?;
    let decimals = u8::try_from(decimals).map_err(|error| bad_column("decimals", error))?;
    Ok(Asset {
        id: AssetId::from_uuid(row.try_get("id")?),
        chain: text(row, "chain")?,
        symbol: text(row, "symbol")?,
        contract: contract.map_err(|error| bad_column("contract_address", error))?,
        decimals: Decimals::new(decimals).map_err(|error| bad_column("decimals", error))?,
        enabled: row.try_get("enabled")?,
        min_withdrawal: amount(row, "min_withdrawal_raw")?,
    })
}
