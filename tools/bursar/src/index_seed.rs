//! The development chain's events: a contract that emits LiFi's fee event, and the sources that read it and the token.
//!
//! For a stack of `bursar up` only. Every step may be repeated: a restart on the same data finds what is there and adds nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proto::indexer::v1 as pb;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::seed;

/// The account that deploys the fee collector; its first transaction decides where that lies.
const DEPLOYER: usize = 8;
const COLLECTOR: &str = include_str!("../../../tests/contracts/artifacts/FeeCollector.json");
const OPERATOR: &str = "operator";
const MINED: Duration = Duration::from_secs(30);
const COLLECT: &str = "collectTokenFees(address,uint256,uint256,address)";
/// Somebody's address: development fees have to be owed to someone.
const INTEGRATOR: &str = "1111111111111111111111111111111111111111";
pub const FEES: &str = "lifi-bsc";

/// Deploys the contract, lets it emit, and tells the indexer what to read.
pub async fn development(connection: &Connection, node: &str, chain_id: u64) -> Result<()> {
    let node = Node::new(node)?;
    let collector = node.collector().await.context("cannot deploy the development fee collector")?;
    let token = seed::token_address()?;
    let fees = pb::Source {
        name: FEES.to_owned(),
        chain_id,
        contract_address: collector,
        nodes: vec![node.url.clone()],
        ..Default::default()
    };
    let transfers = pb::Source {
        name: "usdt-bsc".to_owned(),
        chain_id,
        contract_address: token,
        event_signature: "Transfer(address indexed from, address indexed to, uint256 value)".to_owned(),
        nodes: vec![node.url.clone()],
        ..Default::default()
    };
    let mut client = connection.indexer(OPERATOR)?;
    for source in [fees, transfers] {
        let name = source.name.clone();
        let added = client.add_source(pb::AddSourceRequest { source: Some(source) }).await;
        added.with_context(|| format!("the indexer does not take the source {name}"))?;
    }
    Ok(())
}

/// Lets the development fee collector emit one event; gives its transaction and block.
pub async fn emit(node: &str, amount: u64) -> Result<(String, u64)> {
    let node = Node::new(node)?;
    let collector = node.collector().await?;
    node.emit(&collector, amount).await
}

/// The development node, spoken to directly: its accounts are unlocked, so no key is needed.
struct Node {
    url: String,
    http: reqwest::Client,
}

impl Node {
    fn new(url: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        Ok(Self { url: url.to_owned(), http })
    }

    async fn deployer(&self) -> Result<String> {
        let accounts = self.call("eth_accounts", json!([])).await?;
        Ok(accounts[DEPLOYER].as_str().context("the node has too few accounts")?.to_owned())
    }

    /// The fee collector, deployed with a few events on the first call.
    async fn collector(&self) -> Result<String> {
        let deployer = self.deployer().await?;
        let sent = self.call("eth_getTransactionCount", json!([deployer, "latest"])).await?;
        let address = deployer.parse::<alloy::primitives::Address>()?.create(0).to_string();
        if sent == "0x0" {
            let artifact: Value = serde_json::from_str(COLLECTOR)?;
            let code = artifact["bytecode"].as_str().context("the artifact holds no bytecode")?;
            let code = format!("0x{}", code.trim_start_matches("0x"));
            // All at once: the node gives them nonces in the order it gets them.
            let mut sent = self.send(json!({ "from": deployer, "data": code, "gas": "0x2dc6c0" })).await?;
            for amount in [1_000, 2_000, 3_000] {
                sent = self.send(self.emission(&deployer, &address, amount)?).await?;
            }
            self.mined(&sent).await?;
        }
        Ok(address)
    }

    async fn emit(&self, collector: &str, amount: u64) -> Result<(String, u64)> {
        let deployer = self.deployer().await?;
        let hash = self.send(self.emission(&deployer, collector, amount)?).await?;
        let block = self.mined(&hash).await?;
        Ok((hash, block))
    }

    fn emission(&self, from: &str, collector: &str, amount: u64) -> Result<Value> {
        let token = seed::token_address()?.to_lowercase();
        let selector = hex::encode(&alloy::primitives::keccak256(COLLECT)[..4]);
        let data =
            format!("0x{selector}{:0>64}{amount:064x}{:064x}{INTEGRATOR:0>64}", &token[2..], amount / 10);
        Ok(json!({ "from": from, "to": collector, "data": data, "gas": "0x186a0" }))
    }

    async fn send(&self, transaction: Value) -> Result<String> {
        let hash = self.call("eth_sendTransaction", json!([transaction])).await?;
        Ok(hash.as_str().context("the node gave no hash")?.to_owned())
    }

    /// Waits for the block.
    async fn mined(&self, hash: &str) -> Result<u64> {
        let deadline = tokio::time::Instant::now() + MINED;
        loop {
            let receipt = self.call("eth_getTransactionReceipt", json!([hash])).await?;
            if !receipt.is_null() {
                ensure!(receipt["status"] == "0x1", "transaction {hash} reverted");
                let block = receipt["blockNumber"].as_str().unwrap_or_default();
                return Ok(u64::from_str_radix(block.trim_start_matches("0x"), 16)?);
            }
            ensure!(tokio::time::Instant::now() < deadline, "transaction {hash} was not mined");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut answer: Value = self.http.post(&self.url).json(&body).send().await?.json().await?;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]["message"]);
        Ok(answer["result"].take())
    }
}
