//! Typed requests to one node. Never decides which node to use or whether a response is complete.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U64};
use chain::NodeError;
use chain::jsonrpc::{JsonRpc, RpcCall, read};
use chain::node::NodeClient;
use serde_json::{Value, json};

use super::json::{BlockBody, Header, NodeLog, Receipt};
use super::refusal::{Refusal, refusal};

/// Longest wait for a head or a chain id. All nodes are queried for theirs before anything is read: one that hangs must not
/// delay the others for as long as the logs of a large range may take.
const SMALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Which events are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogFilter {
    pub(crate) address: Option<Address>,
    pub(crate) topic0: B256,
}

impl LogFilter {
    pub(crate) fn admits(&self, log: &NodeLog) -> bool {
        log.topics.first() == Some(&self.topic0) && self.address.is_none_or(|address| address == log.address)
    }

    fn json(&self) -> serde_json::Map<String, Value> {
        let mut filter = serde_json::Map::new();
        if let Some(address) = self.address {
            filter.insert("address".to_owned(), json!(address));
        }
        filter.insert("topics".to_owned(), json!([self.topic0]));
        filter
    }
}

#[derive(Debug)]
pub(crate) struct LogClient {
    rpc: JsonRpc,
    chain_id: u64,
    /// Set when the node does not know `eth_getBlockReceipts`.
    no_block_receipts: AtomicBool,
}

impl NodeClient for LogClient {
    async fn verify(&self) -> Result<(), NodeError> {
        let found: U64 = soon(self.rpc.call("eth_chainId", json!([]))).await?;
        if found == U64::from(self.chain_id) {
            return Ok(());
        }
        Err(NodeError::WrongChain { expected: self.chain_id.to_string(), found: found.to_string() })
    }
}

impl LogClient {
    pub(crate) fn new(rpc: JsonRpc, chain_id: u64) -> Self {
        Self { rpc, chain_id, no_block_receipts: AtomicBool::new(false) }
    }

    /// The newest block, as the node reports it.
    pub(crate) async fn head(&self) -> Result<Header, NodeError> {
        let latest: Option<Header> =
            soon(self.rpc.call("eth_getBlockByNumber", json!(["latest", false]))).await?;
        latest.ok_or_else(|| malformed("no latest block"))
    }

    /// `None` when the node has no such block, for instance because it lags.
    pub(crate) async fn header(&self, number: u64) -> Result<Option<Header>, NodeError> {
        soon(self.rpc.call("eth_getBlockByNumber", json!([U64::from(number), false]))).await
    }

    /// The headers of these blocks, up to the first that the node does not have.
    pub(crate) async fn headers(&self, blocks: RangeInclusive<u64>) -> Result<Vec<Header>, NodeError> {
        let calls: Vec<RpcCall> = blocks
            .map(|number| RpcCall::new("eth_getBlockByNumber", json!([U64::from(number), false])))
            .collect();
        let mut headers = Vec::with_capacity(calls.len());
        for reply in self.rpc.batch(&calls).await? {
            match reply {
                Ok(raw) => match read::<Option<Header>>(&raw)? {
                    Some(header) => headers.push(header),
                    None => break,
                },
                Err(fault) if refusal(&fault) == Refusal::NotThere => break,
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(headers)
    }

    pub(crate) async fn logs(
        &self,
        filter: &LogFilter,
        blocks: &RangeInclusive<u64>,
    ) -> Result<Vec<NodeLog>, NodeError> {
        let mut filter = filter.json();
        filter.insert("fromBlock".to_owned(), json!(U64::from(*blocks.start())));
        filter.insert("toBlock".to_owned(), json!(U64::from(*blocks.end())));
        self.rpc.call("eth_getLogs", json!([filter])).await
    }

    /// The logs of single blocks by hash, one request for each.
    pub(crate) async fn logs_of(
        &self,
        filter: &LogFilter,
        blocks: &[B256],
    ) -> Result<Vec<Vec<NodeLog>>, NodeError> {
        let calls: Vec<RpcCall> = blocks
            .iter()
            .map(|hash| {
                let mut filter = filter.json();
                filter.insert("blockHash".to_owned(), json!(hash));
                RpcCall::new("eth_getLogs", json!([filter]))
            })
            .collect();
        self.rpc.batch(&calls).await?.into_iter().map(|reply| read(&reply?)).collect()
    }

    /// The matching logs of a block, read from its receipts. `None` when the node has another block of that number, or none.
    pub(crate) async fn receipt_logs(
        &self,
        filter: &LogFilter,
        header: &Header,
    ) -> Result<Option<Vec<NodeLog>>, NodeError> {
        let Some(receipts) = self.receipts(header.number(), header.hash).await? else { return Ok(None) };
        if receipts.iter().any(|receipt| receipt.block_hash != header.hash) {
            return Ok(None);
        }
        // Some nodes return an empty list for a block that they do not have yet. A block with logs has receipts.
        if receipts.is_empty() && header.logs_bloom.as_ref().is_some_and(|bloom| !bloom.is_zero()) {
            return Ok(None);
        }
        let logs = receipts.into_iter().flat_map(|receipt| receipt.logs);
        Ok(Some(logs.filter(|log| filter.admits(log)).collect()))
    }

    async fn receipts(&self, number: u64, hash: B256) -> Result<Option<Vec<Receipt>>, NodeError> {
        if !self.no_block_receipts.load(Ordering::Relaxed) {
            match self.rpc.call("eth_getBlockReceipts", json!([U64::from(number)])).await {
                Err(NodeError::Rpc(fault)) if refusal(&fault) == Refusal::NoSuchMethod => {
                    self.no_block_receipts.store(true, Ordering::Relaxed);
                }
                outcome => return outcome,
            }
        }
        let body: Option<BlockBody> =
            self.rpc.call("eth_getBlockByNumber", json!([U64::from(number), false])).await?;
        let Some(body) = body.filter(|body| body.hash == hash) else { return Ok(None) };
        let calls: Vec<RpcCall> = body
            .transactions
            .iter()
            .map(|transaction| RpcCall::new("eth_getTransactionReceipt", json!([transaction])))
            .collect();
        let replies = self.rpc.batch(&calls).await?;
        // A receipt that is missing means that the block is no longer canonical.
        replies.into_iter().map(|reply| read::<Option<Receipt>>(&reply?)).collect()
    }

    pub(crate) async fn code(&self, address: Address) -> Result<Bytes, NodeError> {
        self.rpc.call("eth_getCode", json!([address, "latest"])).await
    }
}

/// Limits a request with a small response to [`SMALL_TIMEOUT`].
async fn soon<T>(request: impl Future<Output = Result<T, NodeError>>) -> Result<T, NodeError> {
    let after_ms = u64::try_from(SMALL_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let response = tokio::time::timeout(SMALL_TIMEOUT, request).await;
    response.unwrap_or(Err(NodeError::Timeout { after_ms }))
}

pub(super) fn malformed(reason: &str) -> NodeError {
    NodeError::Malformed { reason: reason.to_owned() }
}
