//! Use cases of the catalogue: store, list, and notify confirmation and intent of changes.

use proto::confirmation::v1::ChainSettings;
use proto::intent::v1::CatalogueEntry;
use sqlx::{PgConnection, PgPool};
use types::ChainName;

use super::{Asset, CatalogueError, Chain, Finality, NewAsset, repo};
use crate::outbox::{JobMessage, enqueue_in};
use crate::wallet;

#[derive(Debug, Clone)]
pub struct Catalogue {
    pool: PgPool,
}

impl Catalogue {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    pub async fn chains(&self) -> Result<Vec<Chain>, CatalogueError> {
        Ok(repo::chains(&self.pool).await?)
    }

    pub async fn assets(&self, chain: Option<&ChainName>) -> Result<Vec<Asset>, CatalogueError> {
        Ok(repo::assets(&self.pool, chain).await?)
    }

    /// Creates or replaces a chain. Storing what is stored already changes nothing and notifies nobody.
    pub async fn put_chain(&self, chain: Chain) -> Result<Chain, CatalogueError> {
        let mut tx = db::begin(&self.pool).await?;
        if let Some(known) = repo::lock_chain_in(&mut tx, &chain.name).await? {
            known.may_become(&chain)?;
            if known.same_as(&chain) {
                return Ok(known);
            }
        }
        let revision = repo::next_revision_in(&mut tx).await?;
        let chain = Chain { revision, ..chain };
        repo::put_chain_in(&mut tx, &chain).await?;
        enqueue_in(&mut tx, &[JobMessage::chain(settings(&chain))]).await?;
        announce_entries_in(&mut tx, &chain).await?;
        tx.commit().await?;
        tracing::info!(chain = %chain.name, revision, enabled = chain.enabled, nodes = chain.nodes.len(), "chain stored");
        Ok(chain)
    }

    /// Creates or replaces an asset on a chain.
    pub async fn put_asset(&self, asset: NewAsset) -> Result<Asset, CatalogueError> {
        let mut tx = db::begin(&self.pool).await?;
        let chain = repo::lock_chain_in(&mut tx, &asset.chain)
            .await?
            .ok_or_else(|| CatalogueError::NoChain(asset.chain.clone()))?;
        let mut asset = asset.on(&chain)?;
        let known = repo::assets(&mut *tx, Some(&chain.name)).await?;
        if let Some(known) = known.into_iter().find(|known| known.symbol == asset.symbol) {
            known.may_become(&asset)?;
            asset.id = known.id;
            if known == asset {
                return Ok(known);
            }
        }
        repo::put_asset_in(&mut tx, &asset).await.map_err(|error| match db::constraint(&error) {
            Some("assets_chain_contract_key") => CatalogueError::ContractTaken,
            _ => CatalogueError::Database(error),
        })?;
        wallet::repo::ensure_holdings_in(&mut tx, &chain.name).await?;
        announce_entries_in(&mut tx, &chain).await?;
        tx.commit().await?;
        tracing::info!(chain = %asset.chain, asset = %asset.symbol, "asset stored");
        Ok(asset)
    }
}

/// Notifies intent of every asset of a chain, under a revision of its own. The chain must be locked.
pub(crate) async fn announce_entries_in(tx: &mut PgConnection, chain: &Chain) -> Result<(), CatalogueError> {
    let revision = repo::next_revision_in(tx).await?;
    let own_addresses = wallet::repo::addresses_in(tx, &chain.name).await?;
    let assets = repo::assets(&mut *tx, Some(&chain.name)).await?;
    let entries = assets.into_iter().map(|asset| {
        JobMessage::catalogue_entry(CatalogueEntry {
            chain: chain.name.to_string(),
            address_format: chain.kind.as_str().to_owned(),
            asset: asset.symbol.to_string(),
            decimals: u32::from(asset.decimals.get()),
            contract_address: asset.contract.map(|contract| contract.to_string()).unwrap_or_default(),
            enabled: chain.enabled && asset.enabled,
            min_withdrawal_raw: asset.min_withdrawal.to_string(),
            revision,
            own_addresses: own_addresses.clone(),
        })
    });
    let entries: Vec<JobMessage> = entries.collect();
    Ok(enqueue_in(tx, &entries).await?)
}

fn settings(chain: &Chain) -> ChainSettings {
    let depth = match chain.finality {
        Finality::Depth(depth) => depth,
        Finality::Chain => 0,
    };
    ChainSettings {
        name: chain.name.to_string(),
        kind: chain.kind.as_str().to_owned(),
        network_id: chain.network_id,
        nodes: chain.nodes.clone(),
        depth,
        stuck_after_seconds: chain.bump_after_seconds,
        revision: chain.revision,
    }
}
