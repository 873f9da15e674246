//! One signed transaction of a job, from its reservation to its end. No I/O.
//!
//! Invariant: everything that goes into the request to the signer is in the attempt or fixed in the job, so that a repeated
//! request is the same request.

use chrono::{DateTime, Utc};
use payment::{Action, Binding, BindingKind, Price, VoidProof};
use types::{Address, AttemptId, JobId, RawAmount, TxHash};

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AttemptStatus {
    /// The binding is taken; whether the signer signed is not known here.
    Reserved,
    /// Bytes and hash are stored; they may have been sent.
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
    pub fn can_land(self) -> bool {
        match self {
            Self::Reserved | Self::Signed | Self::Broadcast => true,
            Self::Settled | Self::Reverted | Self::Void => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    pub job: JobId,
    pub number: u32,
    pub action: Action,
    pub status: AttemptStatus,
    /// Its place in the wallet's lane. None for what another system sent.
    pub nonce: Option<u64>,
    /// None for what another system sent.
    pub binding: Option<Binding>,
    /// A block at which the nonce was certainly unused; with a window, the block it refers to. A further attempt at a nonce has
    /// that of the first, once it is stored.
    pub reference_block: u64,
    pub price: Option<Price>,
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

    pub fn sender(&self) -> Address {
        self.action.sender()
    }

    pub fn has_window(&self) -> bool {
        self.binding.is_some_and(|binding| binding.kind() == BindingKind::Window)
    }

    /// The nonce that the chain knows.
    pub fn chain_nonce(&self) -> Option<u64> {
        self.nonce.filter(|_| !self.has_window())
    }
}
