//! From an action to the exact bytes of a transaction. A family of chains is one file here that implements [`Family`], and one
//! line in [`family`]: what its parameters mean, its limits and settings, its addresses, its bytes and its signatures.
//!
//! Never takes call data or raw bytes for a payment from a caller: a digest that is signed was computed here, from typed
//! fields. Never holds a key for longer than one signature.

mod evm;
#[cfg(test)]
mod tests;
mod tron;

use std::fmt;

use chrono::{DateTime, Utc};
use payment::{Action, Binding, Price};
use serde::{Serialize, Serializer};
use serde_json::Value;
use service::config::Reader;
use types::{Address, AddressFormat, ChainName, RawAmount, TxHash};

use crate::guard::{Bid, Slot};
use crate::keys::{KeyError, RecoverableSignature, Scheme, WalletKey};
use crate::policy::Outcome;

/// The family whose first address names a wallet group, whatever chains the group pays on.
pub(crate) const NAMING_FORMAT: AddressFormat = AddressFormat::Evm;

const FORMATS: [AddressFormat; 2] = [AddressFormat::Evm, AddressFormat::Tron];

/// The family whose addresses have this format.
pub(crate) fn family(format: AddressFormat) -> &'static dyn Family {
    match format {
        AddressFormat::Evm => &evm::Evm,
        AddressFormat::Tron => &tron::Tron,
    }
}

/// How wallets of chains with this format of address are derived.
pub fn scheme(format: AddressFormat) -> Scheme {
    family(format).scheme()
}

pub(crate) fn families() -> impl Iterator<Item = &'static dyn Family> {
    FORMATS.into_iter().map(family)
}

/// What the signer must know about a family of chains.
pub(crate) trait Family: fmt::Debug + Send + Sync {
    /// How wallets and their addresses are derived from a seed. No two families share a coin number.
    fn scheme(&self) -> Scheme;

    /// Reads the settings of a chain that only this family has.
    fn read_settings(&self, section: &Reader) -> ChainSettings;

    /// Whether the parameters are of this family.
    fn owns(&self, parameters: &Parameters) -> bool;

    /// The fields of the contract in which the parameters arrive, as `message.field`. [`Family::numbers`] uses the same last parts.
    fn fields(&self) -> &'static [&'static str];

    /// The parameters as the canonical form of a request writes them, in that order.
    fn numbers(&self, parameters: &Parameters) -> Numbers;

    /// Whether the parameters are for the network that is configured under this name.
    fn check_network(&self, chain: &ChainName, settings: &ChainSettings, parameters: &Parameters) -> Outcome;

    /// Whether the parameters are for the present.
    fn check_time(&self, now: DateTime<Utc>, parameters: &Parameters) -> Outcome;

    /// Builds the transaction in which `from` does `action`. `from` is the address that the signer derived itself.
    fn build(&self, from: Address, action: &Action, parameters: &Parameters) -> Result<Unsigned, BuildError>;
}

/// The numbers of a transaction besides what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// The number of the network, on families that sign it.
    pub network_id: Option<u64>,
    pub binding: Binding,
    pub price: Price,
}

impl Parameters {
    pub(crate) fn family(&self) -> Option<&'static dyn Family> {
        families().find(|family| family.owns(self))
    }
}

/// Settings of a chain that only its family has. The signer sees no chain, so what a network burns is a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainSettings {
    /// The number that is signed, so that a transaction is valid on one network only. Without it nothing in the bytes names the
    /// network.
    pub network_id: Option<u64>,
    /// Burnt for each byte of the signed transaction, besides the limit in the transaction itself.
    pub byte_price: u64,
    /// Burnt when a transfer of the native asset opens the receiver's account.
    pub activation_price: u64,
}

/// A part of the canonical form: names and values in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Numbers(Vec<(&'static str, Value)>);

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Why no transaction can be built. Each names the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("{field} is not of this chain's kind")]
    WrongKind { field: &'static str },
    #[error("{field} {problem}")]
    OutOfRange { field: &'static str, problem: &'static str },
    /// The family has no such action: without nonces nothing can be closed without a payment.
    #[error("this chain has no {0}")]
    Unsupported(&'static str),
}

/// A transaction that was built and not signed.
#[derive(Debug)]
pub struct Unsigned {
    pub(crate) slot: Slot,
    pub(crate) bid: Bid,
    /// The most that its gas or energy can cost.
    limit: RawAmount,
    /// Bytes of the signed transaction that are paid for besides the limit; 0 where gas pays for them.
    charged_bytes: u64,
    /// Whether it may have to pay for the opening of the receiver's account.
    opens_account: bool,
    digest: [u8; 32],
    body: Box<dyn Body>,
}

/// What becomes a signed transaction once there is a signature of its digest.
trait Body: fmt::Debug + Send + Sync {
    fn finish(&self, signature: &RecoverableSignature) -> Signed;
}

/// A transaction ready to be broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub raw: Vec<u8>,
    pub tx_hash: TxHash,
}

impl Unsigned {
    pub fn build(from: Address, action: &Action, parameters: &Parameters) -> Result<Self, BuildError> {
        let family = parameters.family().ok_or(BuildError::WrongKind { field: "parameters" })?;
        family.build(from, action, parameters)
    }

    /// The most it can cost in the chain's own asset besides what it moves. Free or staked resources are not counted on: the
    /// signer cannot see them.
    pub(crate) fn max_cost(&self, settings: &ChainSettings) -> RawAmount {
        let activation = if self.opens_account { settings.activation_price } else { 0 };
        let besides = self.charged_bytes.saturating_mul(settings.byte_price).saturating_add(activation);
        self.limit.checked_add(RawAmount::from(besides)).unwrap_or(RawAmount::MAX)
    }

    /// Signs exactly this transaction.
    pub fn sign(&self, key: &WalletKey) -> Result<Signed, KeyError> {
        Ok(self.body.finish(&key.sign(self.digest)?))
    }
}

/// Call data of a token's `transfer(address,uint256)`.
fn token_transfer_call(to: Address, amount: RawAmount) -> Vec<u8> {
    let mut data = Vec::with_capacity(68);
    data.extend_from_slice(&[0xa9, 0x05, 0x9c, 0xbb]);
    data.extend_from_slice(&[0; 12]);
    data.extend_from_slice(&to.body());
    data.extend_from_slice(&amount.as_u256().to_be_bytes::<32>());
    data
}

fn positive(amount: RawAmount) -> Result<RawAmount, BuildError> {
    if amount.is_zero() {
        return Err(BuildError::OutOfRange { field: "amount", problem: "must be greater than zero" });
    }
    Ok(amount)
}

/// The last twenty bytes of the public key's hash, of which both families make their addresses.
fn address_body(public_key: &[u8; 65]) -> [u8; 20] {
    let hash = alloy_primitives::keccak256(&public_key[1..]);
    let mut body = [0; 20];
    body.copy_from_slice(&hash[12..]);
    body
}

fn of_format(address: Address, format: AddressFormat, field: &'static str) -> Result<Address, BuildError> {
    if address.format() == format { Ok(address) } else { Err(BuildError::WrongKind { field }) }
}
