//! The development chain's events: a contract that emits LiFi's fee event, and the sources that read it and the token.
//!
//! For a stack of `bursar up` only. Every step may be repeated: a restart on the same data finds what is there and adds nothing.

use anyhow::{Context, Result};
use devstack::JsonRpc;
use proto::indexer::v1 as pb;
use serde_json::{Value, json};

use super::{MINED, OPERATOR, bytecode, contract_address, deployer, token_address};
use crate::client::Connection;

/// The account that deploys the fee collector; its first transaction decides where that lies.
const DEPLOYER: usize = 8;
const COLLECTOR: &str = include_str!("../../../../tests/contracts/artifacts/FeeCollector.json");
const COLLECT: &str = "collectTokenFees(address,uint256,uint256,address)";
/// Somebody's address: development fees have to be owed to someone.
const INTEGRATOR: &str = "1111111111111111111111111111111111111111";
pub const FEES: &str = "lifi-bsc";

/// Deploys the contract, lets it emit events, and adds the indexer's sources.
pub async fn development(connection: &Connection, node: &str, chain_id: u64) -> Result<()> {
    let deployed = collector(&JsonRpc::new(node)?).await;
    let (_, collector) = deployed.context("cannot deploy the development fee collector")?;
    let fees = pb::Source {
        name: FEES.to_owned(),
        chain_id,
        contract_address: collector,
        nodes: vec![node.to_owned()],
        ..Default::default()
    };
    let transfers = pb::Source {
        name: "usdt-bsc".to_owned(),
        chain_id,
        contract_address: token_address()?,
        event_signature: "Transfer(address indexed from, address indexed to, uint256 value)".to_owned(),
        nodes: vec![node.to_owned()],
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
    let node = JsonRpc::new(node)?;
    let (deployer, contract) = collector(&node).await?;
    let hash = node.call("eth_sendTransaction", json!([emission(&deployer, &contract, amount)?])).await?;
    let receipt = node.receipt(&hash, MINED).await?;
    let block = receipt["blockNumber"].as_str().unwrap_or_default();
    let hash = hash.as_str().context("the node gave no hash")?.to_owned();
    Ok((hash, u64::from_str_radix(block.trim_start_matches("0x"), 16)?))
}

/// The account that deploys, and the fee collector, which is deployed with a few events on the first call.
async fn collector(node: &JsonRpc) -> Result<(String, String)> {
    let (deployer, is_new) = deployer(node, DEPLOYER).await?;
    let address = contract_address(&deployer)?;
    if is_new {
        let deployment = json!({ "from": deployer, "data": bytecode(COLLECTOR)?, "gas": "0x2dc6c0" });
        // All at once: the node gives them nonces in the order it gets them.
        let mut last = node.call("eth_sendTransaction", json!([deployment])).await?;
        for amount in [1_000, 2_000, 3_000] {
            let emission = emission(&deployer, &address, amount)?;
            last = node.call("eth_sendTransaction", json!([emission])).await?;
        }
        node.receipt(&last, MINED).await?;
    }
    Ok((deployer, address))
}

fn emission(from: &str, collector: &str, amount: u64) -> Result<Value> {
    let token = token_address()?.to_lowercase();
    let selector = hex::encode(&alloy::primitives::keccak256(COLLECT)[..4]);
    let data = format!("0x{selector}{:0>64}{amount:064x}{:064x}{INTEGRATOR:0>64}", &token[2..], amount / 10);
    Ok(json!({ "from": from, "to": collector, "data": data, "gas": "0x186a0" }))
}
