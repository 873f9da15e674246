//! SQL of the catalogue's copy.

use std::collections::BTreeSet;

use sqlx::{FromRow, PgConnection};
use types::{Address, AddressFormat, AssetSymbol, ChainName, Decimals};

use super::domain::{Entry, Standing};
use super::error::CatalogueError;

const PUT: &str = include_str!("../../queries/catalogue_put.sql");
const STANDING: &str = "SELECT coalesce(bool_or(contract_address = $2), false), \
                        coalesce(bool_or($2 = ANY (own_addresses)), false) FROM catalogue_entries WHERE chain = $1";
const FIND: &str = "SELECT chain, asset, address_format, decimals, contract_address, enabled, min_withdrawal_raw::text, \
                    revision FROM catalogue_entries WHERE chain = $1 AND asset = $2";

#[derive(FromRow)]
struct Row {
    chain: String,
    asset: String,
    address_format: String,
    decimals: i16,
    contract_address: Option<String>,
    enabled: bool,
    min_withdrawal_raw: String,
    revision: i64,
}

fn corrupt(what: &str, error: impl std::fmt::Display) -> CatalogueError {
    CatalogueError::Corrupt(format!("{what}: {error}"))
}

fn address(format: AddressFormat, text: &str) -> Result<Address, CatalogueError> {
    Address::parse(format, text).map_err(|error| corrupt("address", error))
}

impl TryFrom<Row> for Entry {
    type Error = CatalogueError;

    fn try_from(row: Row) -> Result<Self, CatalogueError> {
        let format = match row.address_format.as_str() {
            "evm" => AddressFormat::Evm,
            "tron" => AddressFormat::Tron,
            other => return Err(corrupt("address_format", other)),
        };
        let decimals = u8::try_from(row.decimals).map_err(|error| corrupt("decimals", error))?;
        Ok(Self {
            chain: row.chain.parse().map_err(|error| corrupt("chain", error))?,
            asset: row.asset.parse().map_err(|error| corrupt("asset", error))?,
            format,
            decimals: Decimals::new(decimals).map_err(|error| corrupt("decimals", error))?,
            contract: row.contract_address.as_deref().map(|text| address(format, text)).transpose()?,
            enabled: row.enabled,
            minimum: row.min_withdrawal_raw.parse().map_err(|error| corrupt("min_withdrawal_raw", error))?,
            revision: row.revision,
        })
    }
}

/// Stores an entry with the operation wallets of its chain, unless a newer one is there. Says whether it was stored.
pub async fn put_in(
    connection: &mut PgConnection,
    entry: &Entry,
    own_addresses: &BTreeSet<Address>,
) -> Result<bool, CatalogueError> {
    let own: Vec<String> = own_addresses.iter().map(Address::to_string).collect();
    let stored = sqlx::query(PUT)
        .bind(entry.chain.as_str())
        .bind(entry.asset.as_str())
        .bind(entry.format.as_str())
        .bind(i16::from(entry.decimals.get()))
        .bind(entry.contract.as_ref().map(Address::to_string))
        .bind(entry.enabled)
        .bind(entry.minimum.to_string())
        .bind(entry.revision)
        .bind(own)
        .execute(connection)
        .await?;
    Ok(stored.rows_affected() == 1)
}

/// The entry of an asset on a chain.
pub async fn find_in(
    connection: &mut PgConnection,
    chain: &ChainName,
    asset: &AssetSymbol,
) -> Result<Option<Entry>, CatalogueError> {
    let row: Option<Row> =
        sqlx::query_as(FIND).bind(chain.as_str()).bind(asset.as_str()).fetch_optional(connection).await?;
    row.map(Entry::try_from).transpose()
}

/// What an address is to us. Looked up over all assets of the chain: an operation wallet holds more than one of them, and a
/// token sent to another token's contract is lost as well.
pub async fn standing_in(
    connection: &mut PgConnection,
    chain: &ChainName,
    address: &Address,
) -> Result<Standing, CatalogueError> {
    let (contract, own): (bool, bool) =
        sqlx::query_as(STANDING).bind(chain.as_str()).bind(address.to_string()).fetch_one(connection).await?;
    Ok(match (contract, own) {
        (true, _) => Standing::Contract,
        (false, true) => Standing::Own,
        (false, false) => Standing::Foreign,
    })
}

/// Whether any asset of the chain is known: to say which of the two names is wrong.
pub async fn chain_known_in(
    connection: &mut PgConnection,
    chain: &ChainName,
) -> Result<bool, CatalogueError> {
    let known = sqlx::query_scalar("SELECT EXISTS (SELECT FROM catalogue_entries WHERE chain = $1)")
        .bind(chain.as_str())
        .fetch_one(connection)
        .await?;
    Ok(known)
}
