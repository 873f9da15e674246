//! A chain full of fee events: anvil with the fee collector, one transaction with a thousand events in each block.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use devstack::{Anvil, AnvilOptions, JsonRpc, Lifetime, Mining, Tools};
use proto::indexer::v1 as pb;
use serde_json::{Value, json};

use super::{Expected, source};

const COLLECTOR: &str = include_str!("../../../../tests/contracts/artifacts/FeeCollector.json");
pub(super) const CHAIN_ID: u64 = 56;
/// No round number: answers of a round size are read twice, in case they were cut off.
const EVENTS_PER_BLOCK: u64 = 997;
/// Blocks on top, so that everything below them is final for everybody.
const FINALITY: u64 = 100;
const MINED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct EventChain {
    anvil: Anvil,
    pub(super) contract: String,
    pub(super) expected: Expected,
    /// The last block with events.
    pub(super) last: u64,
    pub(super) head: u64,
}

impl EventChain {
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
        let node = JsonRpc::new(anvil.url())?;
        let account = node.call("eth_accounts", json!([])).await?[0].clone();
        let artifact: Value = serde_json::from_str(COLLECTOR)?;
        let code = artifact["bytecode"].as_str().context("no bytecode")?;
        let code = format!("0x{}", code.trim_start_matches("0x"));
        let receipt = mined(&node, json!({ "from": account, "data": code, "gas": "0x2dc6c0" })).await?;
        let contract = receipt["contractAddress"].as_str().context("no contract")?.to_owned();
        let selector = hex::encode(&alloy_primitives::keccak256("collectMany(address,address,uint256)")[..4]);
        let data = format!("0x{selector}{:064x}{:064x}{EVENTS_PER_BLOCK:064x}", 0xaaaa, 0xbbbb);
        let gas = format!("{:#x}", 100_000 + EVENTS_PER_BLOCK * 3_000);
        let mut expected = Expected::nothing();
        let mut last = 0;
        for _ in 0..blocks {
            let emit = json!({ "from": account, "to": contract, "data": data, "gas": gas });
            let receipt = mined(&node, emit).await?;
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
        source("bench", &self.contract, self.url())
    }
}

async fn mined(node: &JsonRpc, transaction: Value) -> Result<Value> {
    let hash = node.call("eth_sendTransaction", json!([transaction])).await?;
    node.call("anvil_mine", json!(["0x1"])).await?;
    // The receipt holds a thousand logs. Only its head is of interest, but a node gives no less.
    Ok(node.receipt(&hash, MINED).await?)
}
