use serde::{Deserialize, Serialize};
use types::{Address, RawAmount};

use crate::Transfer;

/// What a transaction must show on chain to count. It belongs to the transaction, not to the job: a fee bump of a native sweep
/// moves less than what it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The asset moved: for a token its own Transfer log, for the native coin the value of a successful transaction.
    Moves(Transfer),
    /// The sender's nonce was used without moving anything.
    Closes { sender: Address },
    /// The call of the contract succeeded.
    Succeeds { sender: Address, contract: Address },
}

impl Effect {
    pub fn sender(&self) -> Address {
        match self {
            Self::Moves(transfer) => transfer.from,
            Self::Closes { sender } | Self::Succeeds { sender, .. } => *sender,
        }
    }
}

/// Why an included transaction did not have its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoEffect {
    /// The token announced no such transfer: it returned false, or does nothing.
    NoTransferLog,
    /// Sender, receiver or contract of the transaction are others than expected.
    OtherTransaction,
    /// The receipt does not say whether it succeeded.
    NoStatus,
    /// The transaction itself is needed to judge a native payment, and the node did not give it.
    NoTransaction,
}

/// What an included transaction did, compared with its expected effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectCheck {
    Happened,
    /// Included and failed: nothing moved, the fee is gone.
    Reverted,
    NoEffect {
        why: NoEffect,
    },
    /// Something moved from payer to receiver, but not the expected transfer; `moved` is the receiver's net gain. It may equal
    /// the amount when the contract reported it in several pieces. A person decides what it means.
    WrongAmount {
        moved: RawAmount,
    },
}
