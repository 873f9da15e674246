//! Typed questions to one java-tron node: paths, the JSON of requests, and answers that are none (a rate limit, closed history, text
//! instead of JSON).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use futures::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::{Address, TxHash};

use super::message::network_id;
use super::wire::{
    WireAccount, WireBlock, WireBroadcast, WireConstant, WireInfo, WireInfos, WireParameters, WireResources,
    WireTransaction, hash, plain,
};
use crate::error::NodeError;
use crate::node::NodeClient;
use crate::node::http::Http;
use crate::node::text::shorten;

/// The most blocks in one answer of `getblockbylimitnext`.
const BLOCKS_AT_ONCE: u64 = 100;
/// Error objects are small, so larger answers are not parsed for one.
const ERROR_BYTES: usize = 16 << 10;

/// Which state of a node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The newest block and the pool.
    Full,
    /// Solid blocks only.
    Solid,
}

impl Side {
    fn path(self, call: &str) -> String {
        match self {
            Self::Full => format!("/wallet/{call}"),
            Self::Solid => format!("/walletsolidity/{call}"),
        }
    }
}

#[derive(Debug)]
pub struct TronClient {
    http: Http,
    network_id: u64,
    /// Questions to this node at the same time, because it has no batches.
    at_once: usize,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(rename = "Error")]
    error: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Blocks {
    block: Vec<WireBlock>,
}

impl NodeClient for TronClient {
    /// Networks differ in their first block, which every node has.
    async fn verify(&self) -> Result<(), NodeError> {
        let first = self.block(Side::Full, Some(0), false).await?;
        let Some(first) = first else {
            return Err(NodeError::Declined { reason: "it does not show its first block".to_owned() });
        };
        let found = network_id(&hash(&first.block_id)?);
        if found == self.network_id {
            return Ok(());
        }
        Err(NodeError::WrongChain { expected: self.network_id.to_string(), found: found.to_string() })
    }
}

impl TronClient {
    pub fn new(http: Http, network_id: u64, at_once: usize) -> Self {
        Self { http, network_id, at_once: at_once.max(1) }
    }

    /// The block of this number, or the newest. `None` if the node has no such block on that side.
    pub async fn block(
        &self,
        side: Side,
        number: Option<u64>,
        detail: bool,
    ) -> Result<Option<WireBlock>, NodeError> {
        let mut question = json!({ "detail": detail });
        if let Some(number) = number {
            question["id_or_num"] = number.to_string().into();
        }
        let block: WireBlock = self.ask(side, "getblock", &question).await?;
        match (block.head()?, number) {
            (None, _) => Ok(None),
            (Some(head), Some(number)) if head.number != number => Err(NodeError::malformed("another block")),
            (Some(_), _) => Ok(Some(block)),
        }
    }

    /// Blocks of these numbers, ascending, up to the first that the node does not have.
    pub async fn blocks(
        &self,
        side: Side,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<WireBlock>, NodeError> {
        let (mut next, last) = (*numbers.start(), *numbers.end());
        let mut blocks = Vec::new();
        while next <= last {
            let end = last.min(next.saturating_add(BLOCKS_AT_ONCE - 1));
            let question = json!({ "startNum": next, "endNum": end + 1 });
            let mut some: Blocks = self.ask(side, "getblockbylimitnext", &question).await?;
            some.block.sort_by_key(|block| block.block_header.raw_data.number);
            for block in some.block {
                if block.head()?.is_none_or(|head| head.number != next) {
                    return Ok(blocks);
                }
                blocks.push(block);
                next += 1;
            }
            if next <= end {
                return Ok(blocks);
            }
        }
        Ok(blocks)
    }

    /// The receipt of each, in order; `None` where the node knows of no inclusion on that side.
    pub async fn infos(&self, side: Side, hashes: &[TxHash]) -> Result<Vec<Option<WireInfo>>, NodeError> {
        let questions = hashes.iter().map(|hash| async move {
            let question = json!({ "value": hash.bare() });
            let info: WireInfo = self.ask(side, "gettransactioninfobyid", &question).await?;
            if info.id.is_empty() {
                return Ok(None);
            }
            if info.id != hash.bare() {
                return Err(NodeError::malformed("the receipt of another transaction"));
            }
            Ok(Some(info))
        });
        self.each(questions).await
    }

    /// The transactions whose receipts the node keeps for this block. `None` if it has no such block on that side.
    pub async fn receipts_of(&self, side: Side, number: u64) -> Result<Option<Vec<TxHash>>, NodeError> {
        match self.ask(side, "gettransactioninfobyblocknum", &json!({ "num": number })).await? {
            WireInfos::Of(infos) => {
                infos.iter().map(|info| hash(&info.id)).collect::<Result<_, _>>().map(Some)
            }
            WireInfos::Missing(_) => Ok(None),
        }
    }

    /// Whether the node knows each of these, in a block or in its pool.
    pub async fn known(&self, hashes: &[TxHash]) -> Result<Vec<bool>, NodeError> {
        let questions = hashes.iter().map(|hash| async move {
            let question = json!({ "value": hash.bare() });
            let found: WireTransaction = self.ask(Side::Full, "gettransactionbyid", &question).await?;
            Ok(found.tx_id == hash.bare())
        });
        self.each(questions).await
    }

    /// Each account, in order; `None` for one that was never activated.
    pub async fn accounts(&self, of: &[Address]) -> Result<Vec<Option<WireAccount>>, NodeError> {
        let questions = of.iter().map(|address| async move {
            let question = json!({ "address": address.tron_hex() });
            let account: WireAccount = self.ask(Side::Full, "getaccount", &question).await?;
            Ok((!account.address.is_empty()).then_some(account))
        });
        self.each(questions).await
    }

    /// Staked resources of each account, in order.
    pub async fn resources(&self, of: &[Address]) -> Result<Vec<WireResources>, NodeError> {
        let questions = of.iter().map(|address| async move {
            self.ask(Side::Full, "getaccountresource", &json!({ "address": address.tron_hex() })).await
        });
        self.each(questions).await
    }

    pub async fn parameters(&self) -> Result<BTreeMap<String, i64>, NodeError> {
        let all: WireParameters = self.ask(Side::Full, "getchainparameters", &json!({})).await?;
        Ok(all.list.into_iter().map(|parameter| (parameter.key, parameter.value)).collect())
    }

    /// Simulates calls on the newest state, in order.
    pub async fn dry_runs(&self, calls: &[DryRun]) -> Result<Vec<WireConstant>, NodeError> {
        let questions = calls.iter().map(|call| async move {
            let question = json!({
                "owner_address": call.owner.tron_hex(),
                "contract_address": call.contract.tron_hex(),
                "data": alloy_primitives::hex::encode(&call.data),
            });
            self.ask(Side::Full, "triggerconstantcontract", &question).await
        });
        self.each(questions).await
    }

    /// Sends signed bytes as they are. An error object is part of the answer here, because it says nothing certain.
    pub async fn send(&self, raw: &[u8]) -> Result<WireBroadcast, NodeError> {
        let question = json!({ "transaction": alloy_primitives::hex::encode(raw) });
        let answer = self.exchange(&Side::Full.path("broadcasthex"), &question).await?;
        parse(&answer)
    }

    /// Runs a limited number of questions at a time, because nodes limit callers who ask too many at once.
    async fn each<T>(
        &self,
        questions: impl Iterator<Item = impl Future<Output = Result<T, NodeError>> + Send> + Send,
    ) -> Result<Vec<T>, NodeError> {
        let questions: Vec<_> = questions.collect();
        futures::stream::iter(questions).buffered(self.at_once).try_collect().await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        side: Side,
        call: &str,
        question: &Value,
    ) -> Result<T, NodeError> {
        let answer = self.exchange(&side.path(call), question).await?;
        let small = answer.len() <= ERROR_BYTES;
        if let Some(error) = small.then(|| serde_json::from_slice::<Fault>(&answer).ok()?.error).flatten() {
            return Err(NodeError::Declined { reason: shorten(&plain(&error)) });
        }
        parse(&answer)
    }

    async fn exchange(&self, path: &str, question: &Value) -> Result<Vec<u8>, NodeError> {
        let body = serde_json::to_vec(question).map_err(|error| NodeError::malformed(error.to_string()))?;
        let (status, answer) = self.http.post_to(path, body).await?;
        if !status.is_success() {
            return Err(NodeError::Http { status: status.as_u16() });
        }
        // A lite node answers with status 200 and a plain text that it has no such history.
        let text = !matches!(answer.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['));
        if text && String::from_utf8_lossy(&answer).contains("lite fullnode") {
            return Err(NodeError::Declined { reason: "it is a lite node without this history".to_owned() });
        }
        Ok(answer.to_vec())
    }
}

/// A call to be simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    pub owner: Address,
    pub contract: Address,
    pub data: Vec<u8>,
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, NodeError> {
    serde_json::from_slice(answer).map_err(|error| NodeError::malformed(error.to_string()))
}
