//! The parts of nodes' JSON that are read; other fields are ignored.

use alloy_primitives::{Address, B256, Bloom, Bytes, U64};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    number: U64,
    pub(crate) hash: B256,
    pub(crate) parent_hash: B256,
    timestamp: U64,
    /// Some chains leave it out.
    pub(crate) logs_bloom: Option<Box<Bloom>>,
}

impl Header {
    pub(crate) fn number(&self) -> u64 {
        self.number.to()
    }

    /// Seconds since 1970.
    pub(crate) fn time(&self) -> u64 {
        self.timestamp.to()
    }

    pub(crate) fn head(&self) -> chain::Head {
        chain::Head {
            number: self.number(),
            hash: self.hash.into(),
            parent: self.parent_hash.into(),
            timestamp_ms: self.time().saturating_mul(1000),
        }
    }

    #[cfg(test)]
    pub(super) fn test(number: u64, hash: B256, parent: B256, bloom: Option<Bloom>) -> Self {
        Self {
            number: U64::from(number),
            hash,
            parent_hash: parent,
            timestamp: U64::from(number),
            logs_bloom: bloom.map(Box::new),
        }
    }
}

/// A log in a block. Pending logs have no block and are refused as malformed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeLog {
    pub(crate) address: Address,
    pub(crate) topics: Vec<B256>,
    pub(crate) data: Bytes,
    block_number: U64,
    pub(crate) block_hash: B256,
    pub(crate) transaction_hash: B256,
    log_index: U64,
    /// True for a log that a reorganisation undid.
    #[serde(default)]
    pub(crate) removed: bool,
}

impl NodeLog {
    pub(crate) fn block(&self) -> u64 {
        self.block_number.to()
    }

    pub(crate) fn index(&self) -> u32 {
        u32::try_from(self.log_index).unwrap_or(u32::MAX)
    }

    /// Its position in the chain.
    pub(crate) fn place(&self) -> (u64, u32) {
        (self.block(), self.index())
    }

    #[cfg(test)]
    pub(super) fn test(block: u64, hash: B256, index: u64, address: Address, topic0: B256) -> Self {
        Self {
            address,
            topics: vec![topic0],
            data: Bytes::new(),
            block_number: U64::from(block),
            block_hash: hash,
            transaction_hash: B256::with_last_byte(1),
            log_index: U64::from(index),
            removed: false,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receipt {
    pub(super) block_hash: B256,
    #[serde(default)]
    pub(super) logs: Vec<NodeLog>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct BlockBody {
    pub(super) hash: B256,
    pub(super) transactions: Vec<B256>,
}
