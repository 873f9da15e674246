//! The parts of java-tron's JSON that Bursar reads.
//!
//! Only the fields that are used are named. Nodes leave defaults out and answer `{}` for "not found", so every field may be absent. The
//! reader of a field decides whether absence means zero or no answer.

use alloy_primitives::{Address, Bytes};
use serde::Deserialize;
use types::TxHash;

use super::message::merkle::root;
use super::message::{BlockHeaderRaw, block_id, number_of, tx_id};
use crate::edge::{Block, TxRef};
use crate::error::NodeError;
use crate::evm::wire::WireLog;
use crate::heads::Head;
use crate::node::text::clean;

#[derive(Debug, Clone, Default, Deserialize)]
pub struct WireBlock {
    #[serde(rename = "blockID", default)]
    pub block_id: String,
    #[serde(default)]
    pub block_header: WireHeader,
    #[serde(default)]
    pub transactions: Vec<WireTransaction>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct WireHeader {
    #[serde(default)]
    pub raw_data: WireHeaderRaw,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireHeaderRaw {
    pub number: i64,
    #[serde(rename = "txTrieRoot")]
    pub tx_trie_root: String,
    #[serde(rename = "parentHash")]
    pub parent_hash: String,
    pub witness_id: i64,
    pub witness_address: String,
    pub version: i32,
    #[serde(rename = "accountStateRoot")]
    pub account_state_root: String,
    pub timestamp: i64,
}

impl WireBlock {
    /// `None` for `{}`: the node has no such block.
    pub fn head(&self) -> Result<Option<Head>, NodeError> {
        if self.block_id.is_empty() {
            return Ok(None);
        }
        let raw = &self.block_header.raw_data;
        let (hash, parent) = (hash(&self.block_id)?, hash(&raw.parent_hash)?);
        let number = unsigned(raw.number)?;
        if number_of(&hash) != number {
            return Err(NodeError::malformed("a block's id does not begin with its number"));
        }
        Ok(Some(Head { number, hash, parent, timestamp_ms: unsigned(raw.timestamp)? }))
    }

    /// Whether the id is the hash of this header. Number, parent and time are then those that the producer signed.
    pub fn is_whole(&self) -> bool {
        let raw = &self.block_header.raw_data;
        let bytes = |text: &str| alloy_primitives::hex::decode(text).ok();
        let header = || {
            Some(BlockHeaderRaw {
                timestamp: raw.timestamp,
                tx_trie_root: bytes(&raw.tx_trie_root)?,
                parent_hash: bytes(&raw.parent_hash)?,
                number: raw.number,
                witness_id: raw.witness_id,
                witness_address: bytes(&raw.witness_address)?,
                version: raw.version,
                account_state_root: bytes(&raw.account_state_root)?,
            })
        };
        header().is_some_and(|header| self.block_id.parse() == Ok(block_id(&header)))
    }

    /// Ids of all transactions, computed from their bytes, and whether they certainly match the root in the header.
    pub fn contents(&self) -> Result<(Vec<TxHash>, bool), NodeError> {
        let id = |transaction: &WireTransaction| {
            let raw = alloy_primitives::hex::decode(&transaction.raw_data_hex);
            raw.map(|raw| tx_id(&raw)).map_err(|_| NodeError::malformed("raw data is not hex"))
        };
        let ids = self.transactions.iter().map(id).collect::<Result<_, _>>()?;
        let named = alloy_primitives::hex::decode(&self.block_header.raw_data.tx_trie_root).ok();
        let proven = named.is_some_and(|named| root(&self.transactions).is_some_and(|root| named == root));
        Ok((ids, proven))
    }

    /// Ids of all transactions, as the node names them. The root of an empty list is all zeros; with another root the list was cut.
    pub fn ids(&self) -> Result<Vec<TxHash>, NodeError> {
        let root = &self.block_header.raw_data.tx_trie_root;
        if self.transactions.is_empty() && root.bytes().any(|digit| digit != b'0') {
            return Err(NodeError::malformed("a block without the transactions of its root"));
        }
        self.transactions.iter().map(|transaction| hash(&transaction.tx_id)).collect()
    }

    pub fn block(&self) -> Result<Option<Block>, NodeError> {
        let Some(head) = self.head()? else { return Ok(None) };
        let transactions = self.ids()?.into_iter().map(|hash| TxRef { hash, origin: None }).collect();
        Ok(Some(Block { head, transactions }))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct WireTransaction {
    #[serde(rename = "txID", default)]
    pub tx_id: String,
    #[serde(default)]
    pub raw_data_hex: String,
    #[serde(default)]
    pub signature: Vec<String>,
    /// Its result, in a block.
    #[serde(default)]
    pub ret: Vec<serde_json::Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WireInfo {
    pub id: String,
    pub fee: i64,
    #[serde(rename = "blockNumber")]
    pub block_number: i64,
    pub receipt: WireReceipt,
    pub log: Vec<WireTronLog>,
    /// `FAILED`, or absent.
    pub result: Option<String>,
}

/// The receipts of a block; no list if there is no such block.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum WireInfos {
    Of(Vec<WireInfoId>),
    Missing(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
pub struct WireInfoId {
    pub id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WireReceipt {
    pub energy_usage_total: i64,
    pub energy_fee: i64,
    /// Of a contract call: `SUCCESS`, `REVERT`, `OUT_OF_ENERGY`, ..; absent for a transfer of TRX.
    pub result: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WireTronLog {
    /// Twenty bytes, without the prefix.
    pub address: String,
    pub topics: Vec<String>,
    pub data: String,
}

impl WireTronLog {
    /// The same log in the JSON form of EVM nodes.
    pub fn log(&self) -> Result<WireLog, NodeError> {
        let bytes = |text: &str| {
            alloy_primitives::hex::decode(text).map_err(|_| NodeError::malformed("a log is not hex"))
        };
        let address = bytes(&self.address)?;
        let topics = self.topics.iter().map(|topic| topic.parse());
        Ok(WireLog {
            address: Address::try_from(address.as_slice())
                .map_err(|_| NodeError::malformed("a log has no address"))?,
            topics: topics
                .collect::<Result<_, _>>()
                .map_err(|_| NodeError::malformed("a log has a bad topic"))?,
            data: Bytes::from(bytes(&self.data)?),
            block_number: None,
            block_hash: None,
            transaction_hash: None,
            log_index: None,
            removed: false,
        })
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireAccount {
    pub address: String,
    pub balance: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WireResources {
    #[serde(rename = "NetLimit")]
    pub net_limit: i64,
    #[serde(rename = "NetUsed")]
    pub net_used: i64,
    #[serde(rename = "EnergyLimit")]
    pub energy_limit: i64,
    #[serde(rename = "EnergyUsed")]
    pub energy_used: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireParameters {
    #[serde(rename = "chainParameter")]
    pub list: Vec<WireParameter>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireParameter {
    pub key: String,
    pub value: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireConstant {
    pub result: WireResult,
    pub energy_used: i64,
    pub constant_result: Vec<String>,
    pub transaction: WireDryRun,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireResult {
    pub result: bool,
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireDryRun {
    pub ret: Vec<WireRet>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WireRet {
    pub ret: String,
}

/// The answer to a broadcast.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WireBroadcast {
    pub result: bool,
    pub code: String,
    pub message: String,
    #[serde(rename = "Error")]
    pub error: Option<String>,
}

pub(super) fn hash(text: &str) -> Result<TxHash, NodeError> {
    text.parse().map_err(|error: types::TxHashError| NodeError::malformed(error.to_string()))
}

/// Amounts, numbers and times are signed integers in the JSON and never negative.
pub(super) fn unsigned(value: i64) -> Result<u64, NodeError> {
    u64::try_from(value).map_err(|_| NodeError::malformed("a negative number"))
}

/// Messages of nodes are plain text on some paths and hex of that text on others.
pub(super) fn plain(message: &str) -> String {
    let decoded = alloy_primitives::hex::decode(message).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded {
        Some(text) if !text.is_empty() && !text.contains(char::is_control) => text,
        _ => clean(message).into_owned(),
    }
}
