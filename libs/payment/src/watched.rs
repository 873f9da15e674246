use chrono::{DateTime, Utc};
use types::TxHash;

use crate::Effect;

/// A signed transaction that confirmation is asked to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedTransaction {
    pub hash: TxHash,
    pub effect: Effect,
    /// On chains that have nonces.
    pub nonce: Option<u64>,
    /// In block time, on chains where a transaction expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// A block at which nothing of it was included; the search for what closed its binding begins there.
    pub reference_block: u64,
    /// The signed bytes. Without them nothing about the transaction can be attested.
    pub raw: Vec<u8>,
}

impl WatchedTransaction {
    pub fn is_cancellation(&self) -> bool {
        matches!(self.effect, Effect::Closes { .. })
    }
}
