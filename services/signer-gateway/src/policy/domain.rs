//! The signer's own configuration of what may be signed, after parsing. A caller cannot change any of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use types::{Address, AddressFormat, AssetSymbol, ChainName, RawAmount};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    /// The human behind the key: two keys of one person count once.
    pub person: String,
    pub key: VerifyingKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Largest amount of this tier; none for the last.
    pub up_to: Option<RawAmount>,
    /// Approvals needed, at least 1.
    pub approvals: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimit {
    pub window: Duration,
    pub amount: RawAmount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssetPolicy {
    /// The token's contract; none for the chain's own asset.
    pub contract: Option<Address>,
    pub max_transaction: RawAmount,
    pub window: Option<WindowLimit>,
    /// Approvals by amount, ascending, the last without bound.
    pub tiers: Vec<Tier>,
}

impl AssetPolicy {
    pub fn approvals_for(&self, amount: RawAmount) -> u32 {
        self.tiers
            .iter()
            .find(|tier| tier.up_to.is_none_or(|bound| amount <= bound))
            // A configuration without a last tier was refused at start; nobody can approve this many.
            .map_or(u32::MAX, |tier| tier.approvals)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DutyRule {
    pub contract: Address,
    /// First four bytes of each allowed method's call.
    pub selectors: HashSet<[u8; 4]>,
}

/// What TRON burns beside the energy that a fee limit bounds. The signer sees no chain, so these are settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TronPrices {
    /// For one byte of bandwidth.
    pub bandwidth_sun: u64,
    /// For opening the receiver's account.
    pub activation_sun: u64,
}

impl TronPrices {
    /// The main network's: 1,000 sun a byte; 1 TRX and another 0.1 TRX for a new account.
    pub const DEFAULT: Self = Self { bandwidth_sun: 1_000, activation_sun: 1_100_000 };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPolicy {
    /// How its addresses are written.
    pub format: AddressFormat,
    /// EIP-155 number; none on TRON.
    pub chain_id: Option<u64>,
    pub native: AssetSymbol,
    /// What is burnt beside the fee limit; none on EVM chains.
    pub tron_prices: Option<TronPrices>,
    pub max_fee: RawAmount,
    /// The most all transactions may cost in fees over time.
    pub fee_window: Option<WindowLimit>,
    /// The largest gas top-up; none forbids top-ups.
    pub max_top_up: Option<RawAmount>,
    pub top_up_window: Option<WindowLimit>,
    /// Replacements per nonce.
    pub max_bumps: u32,
    pub assets: HashMap<AssetSymbol, AssetPolicy>,
    /// Addresses without a key here to which sweeps may go once registered.
    pub cold_storage: HashSet<Address>,
    pub duties: Vec<DutyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub chains: HashMap<ChainName, ChainPolicy>,
    pub approvers: HashMap<String, Approver>,
    /// Keys whose void attestations are believed.
    pub confirmation_keys: Vec<VerifyingKey>,
    /// Approvals that live longer than this are refused.
    pub max_approval_validity: Duration,
    /// The operation groups in which sweeps may end, by their first EVM address; none: all of them.
    pub operation_groups: Option<Arc<HashSet<Address>>>,
}

impl Policy {
    /// Whether sweeps may end in the operation group that begins with this address.
    pub fn admits_group(&self, first_address: &Address) -> bool {
        self.operation_groups.as_ref().is_none_or(|listed| listed.contains(first_address))
    }
}
