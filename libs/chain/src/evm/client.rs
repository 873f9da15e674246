//! Typed questions to one EVM node, and the JSON of their requests.

use std::ops::RangeInclusive;

use alloy_primitives::{Address, Bytes, U64, U128, U256};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::TxHash;

use super::classify::read_fault;
use super::erc20;
use super::wire::{WireBlock, WireFeeHistory, WireHeader, WireReceipt, WireTransaction};
use crate::edge::{Block, Detail};
use crate::error::NodeError;
use crate::node::NodeClient;
use crate::node::jsonrpc::{JsonRpc, Reply, RpcCall, read};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Latest,
    Pending,
    Finalized,
    Number(u64),
}

impl At {
    fn json(self) -> Value {
        match self {
            Self::Latest => json!("latest"),
            Self::Pending => json!("pending"),
            Self::Finalized => json!("finalized"),
            Self::Number(number) => json!(U64::from(number)),
        }
    }
}

/// A call to be estimated or simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    pub from: Address,
    pub to: Address,
    pub value: U256,
    pub data: Bytes,
}

impl CallRequest {
    fn json(&self) -> Value {
        json!({"from": self.from, "to": self.to, "value": self.value, "data": self.data})
    }
}

#[derive(Debug)]
pub struct EvmClient {
    rpc: JsonRpc,
    chain_id: u64,
}

impl NodeClient for EvmClient {
    async fn verify(&self) -> Result<(), NodeError> {
        let found: U64 = self.rpc.call("eth_chainId", json!([])).await?;
        if found == U64::from(self.chain_id) {
            return Ok(());
        }
        Err(NodeError::WrongChain { expected: self.chain_id.to_string(), found: found.to_string() })
    }
}

impl EvmClient {
    pub fn new(rpc: JsonRpc, chain_id: u64) -> Self {
        Self { rpc, chain_id }
    }

    /// `None` if the node has no such block, for instance because it lags.
    pub async fn header(&self, at: At) -> Result<Option<WireHeader>, NodeError> {
        self.rpc.call("eth_getBlockByNumber", json!([at.json(), false])).await
    }

    pub async fn headers(&self, numbers: &[u64]) -> Result<Vec<Option<WireHeader>>, NodeError> {
        self.many(
            numbers
                .iter()
                .map(|number| RpcCall::new("eth_getBlockByNumber", json!([U64::from(*number), false]))),
        )
        .await
    }

    /// Blocks of these numbers, up to the first that the node does not have.
    pub async fn blocks(
        &self,
        numbers: RangeInclusive<u64>,
        detail: Detail,
    ) -> Result<Vec<Block>, NodeError> {
        let full = match detail {
            Detail::Hashes => false,
            Detail::Senders => true,
        };
        let blocks: Vec<Option<WireBlock>> = self
            .many(
                numbers.map(|number| RpcCall::new("eth_getBlockByNumber", json!([U64::from(number), full]))),
            )
            .await?;
        Ok(blocks.into_iter().map_while(|block| block.map(WireBlock::block)).collect())
    }

    pub async fn receipts(&self, hashes: &[TxHash]) -> Result<Vec<Option<WireReceipt>>, NodeError> {
        self.many(
            hashes.iter().map(|hash| RpcCall::new("eth_getTransactionReceipt", json!([hash.to_string()]))),
        )
        .await
    }

    pub async fn transactions(&self, hashes: &[TxHash]) -> Result<Vec<Option<WireTransaction>>, NodeError> {
        self.many(
            hashes.iter().map(|hash| RpcCall::new("eth_getTransactionByHash", json!([hash.to_string()]))),
        )
        .await
    }

    /// The number of transactions of this sender in the state at that block, which is the next nonce.
    pub async fn nonce(&self, sender: Address, at: At) -> Result<u64, NodeError> {
        let count: U64 = self.rpc.call("eth_getTransactionCount", json!([sender, at.json()])).await?;
        Ok(count.to())
    }

    /// The next nonce in the latest state, and the next nonce with the pool included.
    pub async fn nonces(&self, sender: Address) -> Result<(u64, u64), NodeError> {
        let calls = [At::Latest, At::Pending]
            .map(|at| RpcCall::new("eth_getTransactionCount", json!([sender, at.json()])));
        let counts: Vec<U64> = self.many(calls).await?;
        match counts[..] {
            [latest, pending] => Ok((latest.to(), pending.to())),
            _ => Err(NodeError::malformed("not two answers")),
        }
    }

    /// Balances in the latest state, native or by the `balanceOf` of a token. `None` where the contract gave no number, so that one
    /// bad token does not affect the others.
    pub async fn balances(&self, of: &[(Address, Option<Address>)]) -> Result<Vec<Option<U256>>, NodeError> {
        let calls: Vec<RpcCall> = of
            .iter()
            .map(|(holder, token)| match token {
                None => RpcCall::new("eth_getBalance", json!([holder, "latest"])),
                Some(token) => {
                    let data = erc20::balance_of_calldata(*holder);
                    RpcCall::new("eth_call", json!([{"to": token, "data": data}, "latest"]))
                }
            })
            .collect();
        let replies = self.rpc.batch(&calls).await?;
        let balance = |(reply, (_, token)): (Reply, &(Address, Option<Address>))| match (reply, token) {
            (Ok(raw), None) => read(&raw).map(Some),
            // An address without code answers `0x`, which is not a balance of zero.
            (Ok(raw), Some(_)) => read::<Bytes>(&raw).map(|word| erc20::decode_uint(&word)),
            (Err(fault), Some(_)) if !read_fault(&fault).is_of_the_node() => Ok(None),
            (Err(fault), _) => Err(fault.into()),
        };
        replies.into_iter().zip(of).map(balance).collect()
    }

    /// Gas for each of these calls. An inner error is about its own call; for instance it would revert.
    pub async fn estimate_gas(
        &self,
        calls: &[CallRequest],
    ) -> Result<Vec<Result<u64, NodeError>>, NodeError> {
        let calls: Vec<RpcCall> =
            calls.iter().map(|call| RpcCall::new("eth_estimateGas", json!([call.json()]))).collect();
        let gas = |reply: Reply| read::<U64>(&reply?).map(|gas| gas.to());
        Ok(self.rpc.batch(&calls).await?.into_iter().map(gas).collect())
    }

    pub async fn gas_price(&self) -> Result<u128, NodeError> {
        let price: U128 = self.rpc.call("eth_gasPrice", json!([])).await?;
        Ok(price.to())
    }

    pub async fn fee_history(&self, blocks: u64, percentile: u8) -> Result<WireFeeHistory, NodeError> {
        self.rpc.call("eth_feeHistory", json!([U64::from(blocks), "latest", [percentile]])).await
    }

    /// Sends signed transactions in order. The outer error is about all of them, an inner one about its own.
    pub async fn send_raw(&self, raw: &[Vec<u8>]) -> Result<Vec<Reply>, NodeError> {
        let calls: Vec<RpcCall> = raw
            .iter()
            .map(|raw| {
                RpcCall::new("eth_sendRawTransaction", json!([alloy_primitives::hex::encode_prefixed(raw)]))
            })
            .collect();
        self.rpc.batch(&calls).await
    }

    /// A batch in which every answer must be readable; the first error is returned.
    async fn many<T: DeserializeOwned>(
        &self,
        calls: impl IntoIterator<Item = RpcCall>,
    ) -> Result<Vec<T>, NodeError> {
        let calls: Vec<RpcCall> = calls.into_iter().collect();
        self.rpc.batch(&calls).await?.into_iter().map(|reply| read(&reply?)).collect()
    }
}
