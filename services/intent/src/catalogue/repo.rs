//! SQL of the catalogue's copy.

use std::collections::{BTreeSet, HashMap, HashSet};

use sqlx::{FromRow, PgConnection};
use types::{Address, AddressFormat, AssetSymbol, ChainName, Decimals};

use super::domain::{Entry, Standing};
use super::error::CatalogueError;

const PUT: &str = include_str!("../../queries/catalogue_put.sql");
const STANDINGS: &str = "SELECT asked.place, coalesce(bool_or(entry.contract_address = asked.address), false), \
                         coalesce(bool_or(asked.address = ANY (entry.own_addresses)), false) \
                         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (chain, address, place) \
                         JOIN catalogue_entries AS entry ON entry.chain = asked.chain GROUP BY asked.place";
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
        let format: AddressFormat =
            row.address_format.parse().map_err(|error| corrupt("address_format", error))?;
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

/// What addresses are to us; those that are nothing to us are left out. Looked up over all assets of the chain: an operation
/// wallet holds more than one of them, and a token sent to another token's contract is lost as well.
pub async fn standings_in(
    connection: &mut PgConnection,
    asked: HashSet<(ChainName, Address)>,
) -> Result<HashMap<(ChainName, Address), Standing>, CatalogueError> {
    let asked: Vec<(ChainName, Address)> = asked.into_iter().collect();
    let rows: Vec<(i64, bool, bool)> = sqlx::query_as(STANDINGS)
        .bind(asked.iter().map(|(chain, _)| chain.as_str()).collect::<Vec<_>>())
        .bind(asked.iter().map(|(_, address)| address.to_string()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let known = rows.into_iter().filter_map(|(place, contract, own)| {
        let named = asked.get(usize::try_from(place).ok()?.checked_sub(1)?)?.clone();
        match (contract, own) {
            (true, _) => Some((named, Standing::Contract)),
            (false, true) => Some((named, Standing::Own)),
            (false, false) => None,
        }
    });
    Ok(known.collect())
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
