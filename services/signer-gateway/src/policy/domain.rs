//! The signer's own configuration of what may be signed, after parsing. A caller cannot change any of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use types::{Address, AddressFormat, AssetSymbol, ChainName, RawAmount};

use crate::builder::ChainSettings;

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

/// What a group's keys may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum GroupPurpose {
    /// Withdrawals and top-ups leave from here.
    Operation,
    /// Customers deposit here; sweeps leave from here.
    Deposit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPolicy {
    /// How its addresses are written.
    pub format: AddressFormat,
    /// What only its family of chains has.
    pub settings: ChainSettings,
    pub native: AssetSymbol,
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
    /// The operation groups in which sweeps may end, by their first address; `None` admits all.
    pub operation_groups: Option<Arc<HashSet<Address>>>,
}

impl Policy {
    /// Whether sweeps may end in the operation group that begins with this address.
    pub fn admits_group(&self, first_address: &Address) -> bool {
        self.operation_groups.as_ref().is_none_or(|listed| listed.contains(first_address))
    }
}
