//! SQL of operation wallets and their holdings.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, Row as _};
use types::{Address, AssetId, ChainName, Decimals, RawAmount, WalletGroupId, WalletId};
use uuid::Uuid;

use super::{Candidate, Choice, Holding, NewWallet, OperationWallet, WalletRole};
use crate::row::{amount, bad_column, bigint, text, unsigned};

/// Every address of a chain's operation wallets, in canonical spelling.
pub(crate) async fn addresses_in(
    tx: &mut PgConnection,
    chain: &ChainName,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT address FROM operation_wallets WHERE chain = $1 ORDER BY address")
        .bind(chain.as_str())
        .fetch_all(tx)
        .await
}

/// A holding for every wallet and asset of a chain, so that a refresh finds what it has to read.
pub(crate) async fn ensure_holdings_in(tx: &mut PgConnection, chain: &ChainName) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO wallet_holdings (wallet_id, asset_id)
         SELECT w.id, a.id FROM operation_wallets AS w JOIN assets AS a USING (chain) WHERE chain = $1
         ON CONFLICT DO NOTHING",
    )
    .bind(chain.as_str())
    .execute(tx)
    .await?;
    Ok(())
}

pub(crate) async fn put_in(
    tx: &mut PgConnection,
    id: WalletId,
    wallet: &NewWallet,
    address: &Address,
) -> Result<(), sqlx::Error> {
    let (group, index) = wallet.key.unzip();
    sqlx::query(
        "INSERT INTO operation_wallets (id, chain, address, role, status, wallet_group_id, derivation_index, label)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (id) DO UPDATE
         SET role = excluded.role, status = excluded.status, label = excluded.label, updated_at = now()",
    )
    .bind(id.as_uuid())
    .bind(wallet.chain.as_str())
    .bind(address.to_string())
    .bind(<&'static str>::from(wallet.role))
    .bind(<&'static str>::from(wallet.status))
    .bind(group.map(|group| group.as_uuid()))
    .bind(index.map(|index| i32::try_from(index).unwrap_or(-1)))
    .bind(&wallet.label)
    .execute(tx)
    .await?;
    Ok(())
}

/// Wallets with their holdings, by chain, role and id. `role` and `address` narrow it down.
pub(crate) async fn list(
    db: impl PgExecutor<'_>,
    chain: Option<&ChainName>,
    role: Option<WalletRole>,
    address: Option<&Address>,
) -> Result<Vec<OperationWallet>, sqlx::Error> {
    let rows = sqlx::query(include_str!("../../queries/list_wallets.sql"))
        .bind(chain.map(ChainName::as_str))
        .bind(role.map(<&'static str>::from))
        .bind(address.map(Address::to_string))
        .fetch_all(db)
        .await?;
    let mut wallets: Vec<OperationWallet> = Vec::new();
    for row in &rows {
        let id = WalletId::from_uuid(row.try_get("id")?);
        if wallets.last().is_none_or(|last| last.id != id) {
            wallets.push(read_wallet(row)?);
        }
        if let (Some(last), Some(holding)) = (wallets.last_mut(), read_holding(row)?) {
            last.holdings.push(holding);
        }
    }
    Ok(wallets)
}

/// What has to be read from the chain.
#[derive(Debug, Clone)]
pub(crate) struct HoldingKey {
    pub wallet: WalletId,
    pub asset: AssetId,
    pub holder: Address,
    pub contract: Option<Address>,
}

/// The holdings of a chain's wallets that are in use; with `addresses`, of those alone.
pub(crate) async fn holdings(
    db: impl PgExecutor<'_>,
    chain: &ChainName,
    addresses: Option<&[String]>,
) -> Result<Vec<HoldingKey>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT h.wallet_id, h.asset_id, w.address, a.contract_address, c.kind
         FROM wallet_holdings AS h
         JOIN operation_wallets AS w ON w.id = h.wallet_id
         JOIN assets AS a ON a.id = h.asset_id
         JOIN chains AS c ON c.name = w.chain
         WHERE w.chain = $1 AND w.status <> 'retired' AND ($2::text[] IS NULL OR w.address = ANY ($2))
         ORDER BY h.wallet_id, h.asset_id",
    )
    .bind(chain.as_str())
    .bind(addresses)
    .fetch_all(db)
    .await?;
    rows.iter()
        .map(|row| {
            let contract: Option<String> = row.try_get("contract_address")?;
            Ok(HoldingKey {
                wallet: WalletId::from_uuid(row.try_get("wallet_id")?),
                asset: AssetId::from_uuid(row.try_get("asset_id")?),
                holder: address(row, "address")?,
                contract: contract.map(|_| address(row, "contract_address")).transpose()?,
            })
        })
        .collect()
}

/// Whether a wallet or an asset is new and its balance was never read.
pub(crate) async fn has_unread(db: impl PgExecutor<'_>, chain: &ChainName) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (
             SELECT FROM wallet_holdings AS h JOIN operation_wallets AS w ON w.id = h.wallet_id
             WHERE w.chain = $1 AND w.status <> 'retired' AND h.refreshed_at IS NULL
         )",
    )
    .bind(chain.as_str())
    .fetch_one(db)
    .await
}

/// Writes balances read at `block`; returns the assets of which some wallet now holds more than before.
pub(crate) async fn record_balances_in(
    tx: &mut PgConnection,
    read: &[(HoldingKey, RawAmount)],
    block: u64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let wallets: Vec<Uuid> = read.iter().map(|(key, _)| key.wallet.as_uuid()).collect();
    let assets: Vec<Uuid> = read.iter().map(|(key, _)| key.asset.as_uuid()).collect();
    let balances: Vec<String> = read.iter().map(|(_, balance)| balance.to_string()).collect();
    sqlx::query_scalar(include_str!("../../queries/record_balances.sql"))
        .bind(wallets)
        .bind(assets)
        .bind(balances)
        .bind(bigint(block))
        .fetch_all(tx)
        .await
}

/// Locks the choice of wallets on a chain until the transaction ends: choices follow each other, and each sees what the
/// ones before reserved.
pub(crate) async fn lock_selection_in(
    tx: &mut PgConnection,
    chain: &ChainName,
) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('bursar/wallet-selection/' || $1, 0))")
        .bind(chain.as_str())
        .execute(&mut *tx)
        .await?;
    sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(tx).await
}

/// Wallets of a role that could pay these assets. Call under [`lock_selection_in`].
pub(crate) async fn candidates_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    role: WalletRole,
    assets: &[Uuid],
) -> Result<BTreeMap<Uuid, Vec<Candidate>>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT h.asset_id, w.id, w.last_used_at, h.balance_raw::text, h.reserved_raw::text
         FROM wallet_holdings AS h JOIN operation_wallets AS w ON w.id = h.wallet_id
         WHERE w.chain = $1 AND w.role = $3 AND w.status = 'active' AND h.asset_id = ANY ($2)
         ORDER BY h.wallet_id, h.asset_id
         FOR UPDATE OF h",
    )
    .bind(chain.as_str())
    .bind(assets)
    .bind(<&'static str>::from(role))
    .fetch_all(tx)
    .await?;
    let mut by_asset: BTreeMap<Uuid, Vec<Candidate>> = BTreeMap::new();
    for row in &rows {
        by_asset.entry(row.try_get("asset_id")?).or_default().push(Candidate {
            wallet: WalletId::from_uuid(row.try_get("id")?),
            last_used_at: row.try_get("last_used_at")?,
            balance: amount(row, "balance_raw")?,
            reserved: amount(row, "reserved_raw")?,
        });
    }
    Ok(by_asset)
}

/// Adds to what is reserved, and notes when each wallet was used.
pub(crate) async fn reserve_in(
    tx: &mut PgConnection,
    booked: &[(Uuid, Choice, RawAmount)],
) -> Result<(), sqlx::Error> {
    let mut sums: BTreeMap<(Uuid, Uuid), RawAmount> = BTreeMap::new();
    let mut used: BTreeMap<Uuid, DateTime<Utc>> = BTreeMap::new();
    for (asset, choice, amount) in booked {
        let key = (choice.wallet.as_uuid(), *asset);
        let sum = sums.get(&key).copied().unwrap_or(RawAmount::ZERO);
        let sum = sum.checked_add(*amount).ok_or_else(|| bad_column("reserved_raw", "out of range"))?;
        sums.insert(key, sum);
        let last = used.entry(choice.wallet.as_uuid()).or_insert(choice.used_at);
        *last = choice.used_at.max(*last);
    }
    let (keys, amounts): (Vec<_>, Vec<_>) = sums.into_iter().map(|(key, sum)| (key, sum.to_string())).unzip();
    let (wallets, assets): (Vec<Uuid>, Vec<Uuid>) = keys.into_iter().unzip();
    sqlx::query(
        "UPDATE wallet_holdings AS h SET reserved_raw = h.reserved_raw + n.amount::numeric
         FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS n (wallet_id, asset_id, amount)
         WHERE h.wallet_id = n.wallet_id AND h.asset_id = n.asset_id",
    )
    .bind(wallets)
    .bind(assets)
    .bind(amounts)
    .execute(&mut *tx)
    .await?;
    let (wallets, times): (Vec<Uuid>, Vec<DateTime<Utc>>) = used.into_iter().unzip();
    sqlx::query(
        "UPDATE operation_wallets AS w SET last_used_at = n.used_at
         FROM unnest($1::uuid[], $2::timestamptz[]) AS n (id, used_at) WHERE w.id = n.id",
    )
    .bind(wallets)
    .bind(times)
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes a reservation back. With `settled_at`, the block of the payment, the amount has left the wallet: it is taken
/// off the balance too unless the balance was read later than that.
pub(crate) async fn release_in(
    tx: &mut PgConnection,
    wallet: WalletId,
    asset: AssetId,
    amount: RawAmount,
    settled_at: Option<u64>,
) -> Result<(), sqlx::Error> {
    let released = sqlx::query(
        "UPDATE wallet_holdings SET
             reserved_raw = reserved_raw - $3::numeric,
             balance_raw = CASE WHEN block_number < $4 THEN GREATEST(balance_raw - $3::numeric, 0) ELSE balance_raw END
         WHERE wallet_id = $1 AND asset_id = $2",
    )
    .bind(wallet.as_uuid())
    .bind(asset.as_uuid())
    .bind(amount.to_string())
    .bind(settled_at.map(bigint))
    .execute(tx)
    .await?;
    db::expect_one(released).map_err(|conflict| bad_column("reserved_raw", conflict))
}

fn read_wallet(row: &PgRow) -> Result<OperationWallet, sqlx::Error> {
    let group: Option<Uuid> = row.try_get("wallet_group_id")?;
    let index: Option<i32> = row.try_get("derivation_index")?;
    let index =
        index.map(u32::try_from).transpose().map_err(|error| bad_column("derivation_index", error))?;
    Ok(OperationWallet {
        id: WalletId::from_uuid(row.try_get("id")?),
        chain: text(row, "chain")?,
        address: address(row, "address")?,
        role: text(row, "role")?,
        status: text(row, "status")?,
        key: group.map(WalletGroupId::from_uuid).zip(index),
        label: row.try_get("label")?,
        last_used_at: row.try_get("last_used_at")?,
        holdings: Vec::new(),
    })
}

fn read_holding(row: &PgRow) -> Result<Option<Holding>, sqlx::Error> {
    let symbol: Option<&str> = row.try_get("symbol")?;
    if symbol.is_none() {
        return Ok(None);
    }
    let decimals: i16 = row.try_get("decimals")?;
    let decimals = u8::try_from(decimals).map_err(|error| bad_column("decimals", error))?;
    Ok(Some(Holding {
        asset: text(row, "symbol")?,
        decimals: Decimals::new(decimals).map_err(|error| bad_column("decimals", error))?,
        balance: amount(row, "balance_raw")?,
        reserved: amount(row, "reserved_raw")?,
        block_number: unsigned(row, "block_number")?,
    }))
}

/// An address in a row that also says the chain's kind.
pub(crate) fn address(row: &PgRow, column: &str) -> Result<Address, sqlx::Error> {
    Address::parse(text(row, "kind")?, row.try_get(column)?).map_err(|error| bad_column(column, error))
}
