//! What an operation wallet is. No I/O.

use chrono::{DateTime, Utc};
use types::{Address, AssetSymbol, ChainName, Decimals, RawAmount, WalletGroupId, WalletId};

use super::WalletError;

/// What a wallet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr)]
pub enum WalletRole {
    /// Pays withdrawals and receives sweeps.
    #[strum(serialize = "hot_wallet")]
    Hot,
    /// Tops up deposit wallets.
    #[strum(serialize = "gas_wallet")]
    Gas,
    /// Receives and never pays.
    #[strum(serialize = "cold_wallet")]
    Cold,
}

/// Whether a wallet takes new work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum WalletStatus {
    Active,
    /// Finishes what it has.
    Paused,
    /// Kept for history.
    Retired,
}

/// A wallet as requested; its address is read once the chain's kind is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWallet {
    pub chain: ChainName,
    pub address: String,
    pub role: WalletRole,
    pub status: WalletStatus,
    /// The signer's key; only cold storage has none.
    pub key: Option<(WalletGroupId, u32)>,
    pub label: String,
}

/// A wallet of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationWallet {
    pub id: WalletId,
    pub chain: ChainName,
    pub address: Address,
    pub role: WalletRole,
    pub status: WalletStatus,
    pub key: Option<(WalletGroupId, u32)>,
    pub label: String,
    pub last_used_at: Option<DateTime<Utc>>,
    pub holdings: Vec<Holding>,
}

impl OperationWallet {
    /// Whether `new` may take the place of this one: role, status and label may change, the key may not.
    pub fn may_become(&self, new: &NewWallet) -> Result<(), WalletError> {
        if self.key != new.key {
            return Err(WalletError::KeyFixed);
        }
        Ok(())
    }
}

/// How much of an asset a wallet holds, and how much of it is reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub asset: AssetSymbol,
    pub decimals: Decimals,
    pub balance: RawAmount,
    pub reserved: RawAmount,
    pub block_number: u64,
}
