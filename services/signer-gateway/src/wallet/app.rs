//! Registering, listing and proving operation wallets.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use sqlx::PgPool;
use types::{Address, ChainName, WalletGroupId};

use super::repo;
use crate::audit::{self, Decision, draft};
use crate::group::{GroupError, Groups};
use crate::policy::GroupPurpose;
use crate::signing::PolicySource;

/// An address to which sweeps may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationWallet {
    pub chain: ChainName,
    pub address: Address,
    /// Group and index of its key; none for cold storage.
    pub key: Option<(WalletGroupId, u32)>,
}

#[derive(Debug, thiserror::Error)]
pub enum WalletError {
    #[error("chain {0} is not configured here")]
    UnknownChain(ChainName),
    /// The address is written for another kind of chain.
    #[error("the address is not of this chain's kind")]
    Format,
    #[error("that group and index are {0}")]
    OtherAddress(Address),
    /// Sweeps must not end in a deposit group.
    #[error("the group is not an operation group")]
    Purpose,
    /// The configuration lists the groups in which sweeps may end, and this is none of them.
    #[error("the group that begins with {0} is not listed in policy.operation_groups")]
    GroupNotListed(Address),
    #[error("the address is not listed as cold storage")]
    NotColdStorage,
    #[error("the address is registered with another {0}")]
    Exists(&'static str),
    #[error("the wallet group cannot be used")]
    Group(#[from] GroupError),
    #[error("the wallets cannot be read or written")]
    Database(#[from] sqlx::Error),
    #[error("a stored wallet cannot be understood: {0}")]
    Corrupt(&'static str),
}

impl WalletError {
    /// Stable reason for the log; none for what is no decision.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::UnknownChain(_) => Some("wallet.unknown_chain"),
            Self::Format => Some("wallet.format"),
            Self::OtherAddress(_) => Some("wallet.other_address"),
            Self::Purpose => Some("wallet.purpose"),
            Self::GroupNotListed(_) => Some("wallet.operation_group"),
            Self::NotColdStorage => Some("wallet.not_cold_storage"),
            Self::Exists(_) => Some("wallet.exists"),
            Self::Group(_) | Self::Database(_) | Self::Corrupt(_) => None,
        }
    }
}

type Origins = HashMap<(ChainName, Address), Address>;

#[derive(Debug, Clone)]
pub struct Wallets {
    pool: PgPool,
    groups: Arc<Groups>,
    policy: PolicySource,
    /// What a key derives never changes, so it is derived once.
    origins: Arc<RwLock<Origins>>,
}

impl Wallets {
    pub fn new(pool: PgPool, groups: Arc<Groups>, policy: PolicySource) -> Self {
        Self { pool, groups, policy, origins: Arc::default() }
    }

    /// Registers a wallet; a second time changes nothing.
    pub async fn register(&self, caller: &str, wallet: &OperationWallet) -> Result<(), WalletError> {
        let checked = self.check(wallet).await;
        let mut tx = db::begin(&self.pool).await?;
        let outcome = match checked {
            Ok(()) => repo::insert_in(&mut tx, caller, wallet).await,
            Err(error) => Err(error),
        };
        let (decision, reason) = match &outcome {
            Ok(true) => (Decision::Allowed, "wallet.registered"),
            Ok(false) => return Ok(()),
            Err(error) => match error.reason() {
                Some(reason) => (Decision::Refused, reason),
                None => return outcome.map(|_| ()),
            },
        };
        let detail = json!({
            "chain": wallet.chain.as_str(),
            "address": wallet.address.to_string(),
            "wallet_group_id": wallet.key.map(|(group, _)| group.to_string()),
            "derivation_index": wallet.key.map(|(_, index)| index),
        });
        let draft = draft(caller, "register_operation_wallet", decision, reason, &detail);
        audit::append_in(&mut tx, draft).await?;
        tx.commit().await?;
        outcome.map(|_| ())
    }

    async fn check(&self, wallet: &OperationWallet) -> Result<(), WalletError> {
        let policy = self.policy.current();
        let chain = policy
            .chains
            .get(&wallet.chain)
            .ok_or_else(|| WalletError::UnknownChain(wallet.chain.clone()))?;
        if chain.format != wallet.address.format() {
            return Err(WalletError::Format);
        }
        let Some((group, index)) = wallet.key else {
            return match chain.cold_storage.contains(&wallet.address) {
                true => Ok(()),
                false => Err(WalletError::NotColdStorage),
            };
        };
        let (key, purpose) = self.groups.wallet(group, chain.format, index).await?;
        if key.address() != wallet.address {
            return Err(WalletError::OtherAddress(key.address()));
        }
        if purpose != GroupPurpose::Operation {
            return Err(WalletError::Purpose);
        }
        let first_address = self.groups.first_address(group).await?;
        match policy.admits_group(&first_address) {
            true => Ok(()),
            false => Err(WalletError::GroupNotListed(first_address)),
        }
    }

    /// The first address of the group from which a registered wallet is derived; `None` for cold storage, and for what is not
    /// registered or not derived. It is derived and not read, because whoever can write the table could otherwise direct every
    /// sweep to an address of their own.
    pub(crate) async fn origin(
        &self,
        chain: &ChainName,
        address: Address,
    ) -> Result<Option<Address>, WalletError> {
        let place = (chain.clone(), address);
        let known = self.origins.read().unwrap_or_else(PoisonError::into_inner).get(&place).copied();
        if known.is_some() {
            return Ok(known);
        }
        let registered = repo::by_address(&self.pool, chain, &address).await?;
        let Some((group, index)) = registered.and_then(|wallet| wallet.key) else {
            return Ok(None);
        };
        let (key, _) = self.groups.wallet(group, address.format(), index).await?;
        if key.address() != address {
            tracing::error!(%chain, %address, %group, index, "a registered wallet is not derived from its group");
            return Ok(None);
        }
        let first = self.groups.first_address(group).await?;
        self.origins.write().unwrap_or_else(PoisonError::into_inner).insert(place, first);
        Ok(Some(first))
    }

    pub async fn list(&self) -> Result<Vec<OperationWallet>, WalletError> {
        repo::all(&self.pool).await
    }
}
