//! One signed transaction of a job, from its reservation to its end. No I/O.
//!
//! Invariant: everything the signer is asked for is in the attempt (or fixed in the job), so that asking again is the same
//! request.

use chrono::{DateTime, Utc};
use payment::{BlockRef, GasFee, Price};
use types::{Address, AttemptId, JobId, RawAmount, TxHash};

use super::VoidProof;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptKind {
    Pay,
    Cancel,
}

impl AttemptKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pay => "pay",
            Self::Cancel => "cancel",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pay, Self::Cancel].into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptStatus {
    /// A nonce is taken; whether the signer signed is not known here.
    Reserved,
    /// Bytes and hash are stored; may have been sent.
    Signed,
    /// A node took it.
    Broadcast,
    /// Final: it paid, or it closed the nonce as a cancellation should.
    Settled,
    /// Final without effect.
    Reverted,
    /// Can never land.
    Void,
}

impl AttemptStatus {
    const ALL: [Self; 6] =
        [Self::Reserved, Self::Signed, Self::Broadcast, Self::Settled, Self::Reverted, Self::Void];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Signed => "signed",
            Self::Broadcast => "broadcast",
            Self::Settled => "settled",
            Self::Reverted => "reverted",
            Self::Void => "void",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether it can still land.
    pub fn is_live(self) -> bool {
        match self {
            Self::Reserved | Self::Signed | Self::Broadcast => true,
            Self::Settled | Self::Reverted | Self::Void => false,
        }
    }
}

/// The time in which an attempt may be included, on chains that have no nonces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// A final block that the transaction refers to.
    pub reference: BlockRef,
    pub expiration_ms: u64,
    /// The time it carries: what tells two equal payments of one wallet apart.
    pub made_ms: u64,
}

/// What is offered for a unit of gas, and for how many units. Where a limit is signed instead: that limit, at one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fee {
    pub gas_limit: u64,
    pub max_fee_per_gas: u128,
    /// None for a legacy price.
    pub max_priority_fee_per_gas: Option<u128>,
}

impl Fee {
    pub fn of(price: &Price) -> Self {
        let plain =
            |gas_limit, max_fee_per_gas| Self { gas_limit, max_fee_per_gas, max_priority_fee_per_gas: None };
        match *price {
            Price::Gas { limit: gas_limit, fee: GasFee::Dynamic { max_fee, max_priority } } => {
                Self { max_priority_fee_per_gas: Some(max_priority), ..plain(gas_limit, max_fee) }
            }
            Price::Gas { limit: gas_limit, fee: GasFee::Legacy { gas_price } } => plain(gas_limit, gas_price),
            Price::FeeLimit { sun } => plain(sun, 1),
        }
    }

    pub fn price(&self) -> Price {
        let fee = match self.max_priority_fee_per_gas {
            Some(max_priority) => GasFee::Dynamic { max_fee: self.max_fee_per_gas, max_priority },
            None => GasFee::Legacy { gas_price: self.max_fee_per_gas },
        };
        Price::Gas { limit: self.gas_limit, fee }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    pub job: JobId,
    pub number: u32,
    pub kind: AttemptKind,
    pub status: AttemptStatus,
    pub address: Address,
    /// None for what another system sent. With a window, its place in the wallet's line, which no chain knows.
    pub nonce: Option<u64>,
    pub window: Option<Window>,
    /// A block at which the nonce was certainly unused; with a window, the one it refers to. A further attempt at a nonce has
    /// that of the first, once it is stored.
    pub reference_block: u64,
    pub fee: Option<Fee>,
    pub void_proof: Option<VoidProof>,
    pub raw: Option<Vec<u8>>,
    pub tx_hash: Option<TxHash>,
    pub last_error: Option<String>,
    /// Whether every node refused these bytes for good, when last answered with certainty.
    pub rejected: bool,
    pub sends: u32,
    pub created_at: DateTime<Utc>,
    pub broadcast_at: Option<DateTime<Utc>>,
    pub gas_used: Option<RawAmount>,
    pub gas_price: Option<RawAmount>,
    pub block_number: Option<u64>,
}

impl Attempt {
    /// The signer's idempotency key.
    pub fn key(&self) -> String {
        format!("{}/{}", self.job, self.number)
    }
}
