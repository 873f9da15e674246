use serde::{Deserialize, Serialize};
use types::{Address, TxHash};

/// A block by number and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockRef {
    pub number: u64,
    pub hash: TxHash,
}

/// How a transaction with a window refers to a block: the end of its number and the middle of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockReference {
    pub number_end: [u8; 2],
    pub hash_middle: [u8; 8],
}

/// The time in which a transaction may be included, on chains that have no nonces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    pub reference: BlockReference,
    /// In block time.
    pub expiration_ms: u64,
    /// It is signed too. Two payments of one amount to one receiver in one window differ only in this value: with the same value
    /// they would be one transaction, and only one of them would be paid.
    pub made_ms: u64,
}

/// How a chain keeps two attempts of one job from both landing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BindingKind {
    /// Each sender has sequence numbers: there are lanes, fee bumps and cancellations.
    Nonce,
    /// A time window: there is one signature, which is sent again unchanged until it expires.
    Window,
}

/// What makes at most one transaction of an attempt land. It is stored with the attempt before anything is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    Nonce { sender: Address, nonce: u64 },
    Window { sender: Address, window: Window },
}

impl Binding {
    pub fn kind(&self) -> BindingKind {
        match self {
            Self::Nonce { .. } => BindingKind::Nonce,
            Self::Window { .. } => BindingKind::Window,
        }
    }

    pub fn sender(&self) -> Address {
        match self {
            Self::Nonce { sender, .. } | Self::Window { sender, .. } => *sender,
        }
    }

    /// What must be seen on chain for the binding to be used up.
    pub fn closing(&self) -> Closing {
        match self {
            Self::Nonce { sender, nonce } => Closing::Nonce { sender: *sender, nonce: *nonce },
            Self::Window { window, .. } => Closing::Window { expiration_ms: window.expiration_ms },
        }
    }
}

/// What ends a binding; this is all that is needed to find out whether it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closing {
    /// A final transaction at this nonce.
    Nonce { sender: Address, nonce: u64 },
    /// A final block at or beyond this time.
    Window { expiration_ms: u64 },
}
