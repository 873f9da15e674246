//! Use cases of wallets: register, list, read balances from the chain.

use std::collections::BTreeSet;

use chain::BalanceOf;
use payment::AssetRef;
use sqlx::PgPool;
use types::{Address, ChainName, WalletId};

use super::{NewWallet, OperationWallet, WalletError, WalletRole, repo};
use crate::catalogue;
use crate::chains::Chains;
use crate::job::repo::wake_blocked_in;

#[derive(Debug, Clone)]
pub struct Wallets {
    pool: PgPool,
    chains: Chains,
}

impl Wallets {
    pub fn new(pool: PgPool, chains: Chains) -> Self {
        Self { pool, chains }
    }

    /// Registers an operation wallet, or changes its role, status or label.
    pub async fn put(&self, wallet: NewWallet) -> Result<OperationWallet, WalletError> {
        let mut tx = db::begin(&self.pool).await?;
        let chain = catalogue::repo::lock_chain_in(&mut tx, &wallet.chain)
            .await?
            .ok_or_else(|| WalletError::NoChain(wallet.chain.clone()))?;
        let invalid = |problem: String| WalletError::Invalid { field: "wallet.address", problem };
        let address =
            Address::parse(chain.kind, &wallet.address).map_err(|error| invalid(error.to_string()))?;
        if address.is_zero() {
            return Err(invalid("is the zero address".to_owned()));
        }
        let known = repo::list(&mut *tx, Some(&chain.name), None, Some(&address)).await?.pop();
        if let Some(known) = &known {
            known.may_become(&wallet)?;
        }
        let id = known.as_ref().map_or_else(WalletId::new, |known| known.id);
        repo::put_in(&mut tx, id, &wallet, &address).await.map_err(|error| match db::constraint(&error) {
            Some("operation_wallets_key_key") => WalletError::KeyTaken,
            _ => WalletError::Database(error),
        })?;
        repo::ensure_holdings_in(&mut tx, &chain.name).await?;
        if known.is_none() {
            // A new address of our own is one more that intent must refuse as a destination.
            catalogue::announce_entries_in(&mut tx, &chain).await?;
        }
        let stored = repo::list(&mut *tx, Some(&chain.name), None, Some(&address)).await?.pop();
        tx.commit().await?;
        tracing::info!(chain = %chain.name, %address, role = %wallet.role, "operation wallet stored");
        stored.ok_or_else(|| WalletError::NoWallet { chain: chain.name, address: address.to_string() })
    }

    pub async fn list(
        &self,
        chain: Option<&ChainName>,
        role: Option<WalletRole>,
    ) -> Result<Vec<OperationWallet>, WalletError> {
        Ok(repo::list(&self.pool, chain, role, None).await?)
    }

    /// Reads balances from the chain and wakes jobs that waited for them. Without addresses: of all wallets.
    pub async fn refresh(&self, chain: &ChainName, addresses: &[String]) -> Result<u32, WalletError> {
        let handle = self.chains.get(chain).await?.ok_or_else(|| WalletError::NoChain(chain.clone()))?;
        let addresses = self.canonical(&handle.settings, addresses)?;
        let keys = repo::holdings(&self.pool, chain, addresses.as_deref()).await?;
        if let Some(wanted) = addresses {
            let known: BTreeSet<String> = keys.iter().map(|key| key.holder.to_string()).collect();
            if let Some(address) = wanted.into_iter().find(|address| !known.contains(address)) {
                return Err(WalletError::NoWallet { chain: chain.clone(), address });
            }
        }
        if keys.is_empty() {
            return Ok(0);
        }
        // The block first: the balances are then at least as new as it says.
        let block = handle.edge.head().await?.number;
        let wanted: Vec<BalanceOf> = keys
            .iter()
            .map(|key| BalanceOf { holder: key.holder, asset: AssetRef::of_contract(key.contract) })
            .collect();
        let balances = handle.edge.balances(&wanted).await?;
        // A contract that gives no balance says nothing; what was known stays.
        let read: Vec<_> =
            keys.into_iter().zip(balances).filter_map(|(key, balance)| Some((key, balance?))).collect();
        let mut tx = db::begin(&self.pool).await?;
        let grown = repo::record_balances_in(&mut tx, &read, block).await?;
        if !grown.is_empty() {
            let woken = wake_blocked_in(&mut tx, chain).await?;
            tracing::info!(%chain, woken, "balances grew");
        }
        tx.commit().await?;
        Ok(u32::try_from(read.len()).unwrap_or(u32::MAX))
    }

    fn canonical(
        &self,
        chain: &catalogue::Chain,
        addresses: &[String],
    ) -> Result<Option<Vec<String>>, WalletError> {
        if addresses.is_empty() {
            return Ok(None);
        }
        let parsed = addresses.iter().map(|text| {
            Address::parse(chain.kind, text)
                .map(|address| address.to_string())
                .map_err(|error| WalletError::Invalid { field: "addresses", problem: error.to_string() })
        });
        parsed.collect::<Result<Vec<_>, _>>().map(Some)
    }
}
