//! A chain full of fee events: anvil with the fee collector, one transaction with a thousand events in each block.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use devstack::{Anvil, AnvilOptions, Lifetime, Mining, Tools};
use proto::indexer::v1 as pb;
use serde_json::{Value, json};

use super::{BATCH, Expected, IN_FLIGHT};

const COLLECTOR: &str = include_str!("../../../../tests/contracts/artifacts/FeeCollector.json");
pub(super) const CHAIN_ID: u64 = 56;
/// No round number: answers of a round size are read twice, in case they were cut off.
const EVENTS_PER_BLOCK: u64 = 997;
/// Blocks on top, so that everything below them is final for everybody.
const FINALITY: u64 = 100;

#[derive(Debug)]
pub(super) struct Emitting {
    anvil: Anvil,
    pub(super) contract: String,
    pub(super) expected: Expected,
    /// The last block with events.
    pub(super) last: u64,
    pub(super) head: u64,
}

impl Emitting {
    pub(super) async fn start(tools: &Tools, dir: &Path, blocks: u64) -> Result<Self> {
        let own = dir.join("anvil-events");
        let options = AnvilOptions {
            dir: own.clone(),
            chain_id: CHAIN_ID,
            mining: Mining::Manual,
            lifetime: Lifetime::OwnedWithDirectory(own),
            extra_args: ["--gas-limit", "300000000", "--quiet"].map(str::to_owned).to_vec(),
            ..AnvilOptions::default()
        };
        let anvil = Anvil::start(tools, &options).await?;
        let node = Node::new(&anvil.url())?;
        let account = node.call("eth_accounts", json!([])).await?[0].clone();
        let artifact: Value = serde_json::from_str(COLLECTOR)?;
        let code = artifact["bytecode"].as_str().context("no bytecode")?;
        let code = format!("0x{}", code.trim_start_matches("0x"));
        let receipt = node.mined(json!({ "from": account, "data": code, "gas": "0x2dc6c0" })).await?;
        let contract = receipt["contractAddress"].as_str().context("no contract")?.to_owned();
        let selector = hex::encode(&alloy_primitives::keccak256("collectMany(address,address,uint256)")[..4]);
        let data = format!("0x{selector}{:064x}{:064x}{EVENTS_PER_BLOCK:064x}", 0xaaaa, 0xbbbb);
        let gas = format!("{:#x}", 100_000 + EVENTS_PER_BLOCK * 3_000);
        let mut expected = Expected::nothing();
        let mut last = 0;
        for _ in 0..blocks {
            let emit = json!({ "from": account, "to": contract, "data": data, "gas": gas });
            let receipt = node.mined(emit).await?;
            ensure!(receipt["status"] == "0x1", "an emission reverted");
            let block = receipt["blockNumber"].as_str().context("no block")?;
            last = u64::from_str_radix(block.trim_start_matches("0x"), 16)?;
            (0..EVENTS_PER_BLOCK).for_each(|log| expected.add(last, log, log + 1));
        }
        node.call("anvil_mine", json!([format!("{FINALITY:#x}")])).await?;
        Ok(Self { anvil, contract, expected, last, head: last + FINALITY })
    }

    pub(super) fn url(&self) -> String {
        self.anvil.url()
    }

    pub(super) fn source(&self) -> pb::Source {
        pb::Source {
            name: "bench".to_owned(),
            chain_id: CHAIN_ID,
            contract_address: self.contract.clone(),
            batch_size: u32::try_from(BATCH).unwrap_or(10),
            concurrency: u32::try_from(IN_FLIGHT).unwrap_or(3),
            nodes: vec![self.url()],
            ..Default::default()
        }
    }
}

struct Node {
    url: String,
    http: reqwest::Client,
}

impl Node {
    fn new(url: &str) -> Result<Self> {
        Ok(Self { url: url.to_owned(), http: reqwest::Client::builder().no_proxy().build()? })
    }

    async fn mined(&self, transaction: Value) -> Result<Value> {
        let hash = self.call("eth_sendTransaction", json!([transaction])).await?;
        self.call("anvil_mine", json!(["0x1"])).await?;
        // The receipt holds a thousand logs: only its head is of interest, but there is no asking for less.
        self.call("eth_getTransactionReceipt", json!([hash])).await
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut answer: Value = self.http.post(&self.url).json(&body).send().await?.json().await?;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]["message"]);
        Ok(answer["result"].take())
    }
}
