//! The parts of EVM nodes' JSON that Bursar reads.
//!
//! Only what is used is named, so that a chain with fields of its own (BSC's milliseconds, other receipt types) reads
//! like any other. Nothing is given a default that could be mistaken for a fact: a missing status stays missing.

use alloy_primitives::{Address, B256, Bytes, U64, U128, U256};
use payment::BlockRef;
use serde::Deserialize;
use types::{Address as AnyAddress, AddressFormat};

use crate::edge::{Block, TxRef};
use crate::heads::Head;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireHeader {
    pub number: U64,
    pub hash: B256,
    pub parent_hash: B256,
    /// Seconds.
    pub timestamp: U64,
    pub base_fee_per_gas: Option<U128>,
}

impl WireHeader {
    pub fn head(&self) -> Head {
        Head {
            number: self.number.to(),
            hash: self.hash.into(),
            parent: self.parent_hash.into(),
            timestamp_ms: self.timestamp.to::<u64>().saturating_mul(1000),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireBlock {
    pub number: U64,
    pub hash: B256,
    pub parent_hash: B256,
    pub timestamp: U64,
    pub transactions: Vec<WireTxRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum WireTxRef {
    Hash(B256),
    Full { hash: B256, from: Address, nonce: U64 },
}

impl WireBlock {
    pub fn block(self) -> Block {
        let head = Head {
            number: self.number.to(),
            hash: self.hash.into(),
            parent: self.parent_hash.into(),
            timestamp_ms: self.timestamp.to::<u64>().saturating_mul(1000),
        };
        let transactions = self
            .transactions
            .into_iter()
            .map(|tx| match tx {
                WireTxRef::Hash(hash) => TxRef { hash: hash.into(), origin: None },
                WireTxRef::Full { hash, from, nonce } => TxRef {
                    hash: hash.into(),
                    origin: Some((AnyAddress::from_body(AddressFormat::Evm, from.into_array()), nonce.to())),
                },
            })
            .collect();
        Block { head, transactions }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireTransaction {
    pub hash: B256,
    pub from: Address,
    /// Absent for a contract creation.
    pub to: Option<Address>,
    pub nonce: U64,
    pub value: U256,
    #[serde(default)]
    pub input: Bytes,
    /// Absent while pending.
    pub block_hash: Option<B256>,
    pub block_number: Option<U64>,
    pub gas_price: Option<U128>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireReceipt {
    pub transaction_hash: B256,
    pub block_hash: B256,
    pub block_number: U64,
    pub from: Address,
    pub to: Option<Address>,
    /// Absent before Byzantium.
    pub status: Option<U64>,
    pub gas_used: U64,
    pub effective_gas_price: Option<U128>,
    #[serde(default)]
    pub logs: Vec<WireLog>,
}

impl WireReceipt {
    pub fn block(&self) -> BlockRef {
        BlockRef { number: self.block_number.to(), hash: self.block_hash.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireLog {
    pub address: Address,
    pub topics: Vec<B256>,
    pub data: Bytes,
    pub block_number: Option<U64>,
    pub block_hash: Option<B256>,
    pub transaction_hash: Option<B256>,
    pub log_index: Option<U64>,
    /// True for a log that a reorg undid.
    #[serde(default)]
    pub removed: bool,
}

/// `eth_feeHistory`. The ratios in it are floating point and not used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireFeeHistory {
    /// One more than blocks: the last is the next block's.
    #[serde(default)]
    pub base_fee_per_gas: Vec<U128>,
    /// For each block, one value for each percentile asked; some nodes leave it out or write null.
    pub reward: Option<Vec<Vec<U128>>>,
}
