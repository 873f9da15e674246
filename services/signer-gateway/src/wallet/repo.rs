//! Rows of operation wallets.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, PgPool, Row};
use types::{Address, ChainName};
use uuid::Uuid;

use super::{OperationWallet, WalletError};

/// Whether the wallet is new; a known one must be the same.
pub(super) async fn insert_in(
    connection: &mut PgConnection,
    caller: &str,
    wallet: &OperationWallet,
) -> Result<bool, WalletError> {
    let (chain, address) = (wallet.chain.as_str(), wallet.address.to_string());
    let done = sqlx::query(
        "INSERT INTO operation_wallets (chain, address, wallet_group_id, derivation_index, registered_by) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT ON CONSTRAINT operation_wallets_pkey DO NOTHING",
    )
    .bind(chain)
    .bind(&address)
    .bind(wallet.key.map(|(group, _)| group.as_uuid()))
    .bind(wallet.key.map(|(_, index)| i64::from(index)))
    .bind(caller)
    .execute(&mut *connection)
    .await?;
    if done.rows_affected() == 1 {
        return Ok(true);
    }
    match select(&mut *connection, Some((chain, &address))).await?.pop() {
        Some(known) if known == *wallet => Ok(false),
        Some(_) | None => Err(WalletError::Exists("wallet_group_id")),
    }
}

pub(super) async fn by_address(
    pool: &PgPool,
    chain: &ChainName,
    address: &Address,
) -> Result<Option<OperationWallet>, WalletError> {
    Ok(select(pool, Some((chain.as_str(), &address.to_string()))).await?.pop())
}

pub(super) async fn all(pool: &PgPool) -> Result<Vec<OperationWallet>, WalletError> {
    select(pool, None).await
}

async fn select(
    executor: impl PgExecutor<'_>,
    place: Option<(&str, &str)>,
) -> Result<Vec<OperationWallet>, WalletError> {
    let rows = sqlx::query(
        "SELECT chain, address, wallet_group_id, derivation_index FROM operation_wallets \
         WHERE ($1::text IS NULL OR (chain = $1 AND address = $2)) ORDER BY chain, address",
    )
    .bind(place.map(|(chain, _)| chain))
    .bind(place.map(|(_, address)| address))
    .fetch_all(executor)
    .await?;
    rows.iter().map(wallet_of).collect()
}

fn wallet_of(row: &PgRow) -> Result<OperationWallet, WalletError> {
    let corrupt = |_| WalletError::Corrupt("operation_wallets");
    let group: Option<Uuid> = row.try_get("wallet_group_id")?;
    let index: Option<i64> = row.try_get("derivation_index")?;
    let key = match (group, index) {
        (Some(group), Some(index)) => {
            let index = u32::try_from(index).map_err(|_| WalletError::Corrupt("derivation_index"))?;
            Some((group.into(), index))
        }
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(WalletError::Corrupt("derivation_index")),
    };
    Ok(OperationWallet {
        chain: row.try_get::<String, _>("chain")?.parse().map_err(|_| WalletError::Corrupt("chain"))?,
        address: row.try_get::<String, _>("address")?.parse().map_err(corrupt)?,
        key,
    })
}
