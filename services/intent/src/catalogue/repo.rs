//! SQL of the catalogue's copy.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sqlx::{FromRow, PgConnection};
use types::{Address, AddressFormat, AssetSymbol, ChainName};

use super::domain::{AddressKind, AssetOnChain, CatalogueEntry, columns};
use crate::error::{StoreError, decimals, parse};

const PUT: &str = include_str!("../../queries/catalogue_put.sql");
const FIND: &str = include_str!("../../queries/catalogue_find.sql");
const ADDRESS_KINDS: &str = include_str!("../../queries/catalogue_address_kinds.sql");

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

impl TryFrom<Row> for CatalogueEntry {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let format: AddressFormat = parse("address_format", &row.address_format)?;
        let address = |text: &str| {
            Address::parse(format, text).map_err(|error| StoreError::corrupt("contract_address", error))
        };
        Ok(Self {
            chain: parse("chain", &row.chain)?,
            asset: parse("asset", &row.asset)?,
            format,
            decimals: decimals(row.decimals)?,
            contract: row.contract_address.as_deref().map(address).transpose()?,
            enabled: row.enabled,
            minimum: parse("min_withdrawal_raw", &row.min_withdrawal_raw)?,
            revision: row.revision,
        })
    }
}

/// Stores an entry with the operation wallets of its chain, unless a newer one is stored. Returns whether it was stored.
pub async fn put_in(
    connection: &mut PgConnection,
    entry: &CatalogueEntry,
    own_addresses: &BTreeSet<Address>,
) -> Result<bool, StoreError> {
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

pub async fn find_in(
    connection: &mut PgConnection,
    chain: &ChainName,
    asset: &AssetSymbol,
) -> Result<Option<CatalogueEntry>, StoreError> {
    let asset = (chain.clone(), asset.clone());
    Ok(find_many_in(connection, &BTreeSet::from([asset.clone()])).await?.remove(&asset))
}

/// Leaves out what is not in the catalogue.
pub async fn find_many_in(
    connection: &mut PgConnection,
    assets: &BTreeSet<AssetOnChain>,
) -> Result<BTreeMap<AssetOnChain, CatalogueEntry>, StoreError> {
    let (chains, symbols) = columns(assets);
    let rows: Vec<Row> = sqlx::query_as(FIND).bind(chains).bind(symbols).fetch_all(connection).await?;
    let entries = rows.into_iter().map(|row| {
        let entry = CatalogueEntry::try_from(row)?;
        Ok(((entry.chain.clone(), entry.asset.clone()), entry))
    });
    entries.collect()
}

/// The kinds of addresses; unknown ones are left out. All assets of the chain are searched, because an operation
/// wallet holds more than one of them, and a token that is sent to another token's contract is lost as well.
pub async fn address_kinds_in(
    connection: &mut PgConnection,
    addresses: HashSet<(ChainName, Address)>,
) -> Result<HashMap<(ChainName, Address), AddressKind>, StoreError> {
    let addresses: Vec<(ChainName, Address)> = addresses.into_iter().collect();
    let rows: Vec<(i64, bool, bool)> = sqlx::query_as(ADDRESS_KINDS)
        .bind(addresses.iter().map(|(chain, _)| chain.as_str()).collect::<Vec<_>>())
        .bind(addresses.iter().map(|(_, address)| address.to_string()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let known = rows.into_iter().filter_map(|(place, contract, own)| {
        let address = addresses.get(usize::try_from(place).ok()?.checked_sub(1)?)?.clone();
        match (contract, own) {
            (true, _) => Some((address, AddressKind::TokenContract)),
            (false, true) => Some((address, AddressKind::OwnWallet)),
            (false, false) => None,
        }
    });
    Ok(known.collect())
}

/// Those of the chains that any asset is known of.
pub async fn known_chains_in(
    connection: &mut PgConnection,
    chains: &BTreeSet<ChainName>,
) -> Result<BTreeSet<ChainName>, StoreError> {
    let known: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT chain FROM catalogue_entries WHERE chain = ANY ($1)")
            .bind(chains.iter().map(ChainName::as_str).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
    known.iter().map(|chain| parse("chain", chain)).collect()
}
