//! What anybody would write by hand and then tune: get logs, decode, insert, a few at a time. No cursor, no lease, no check of
//! what came back, nothing to go on from after a crash.

use std::time::Instant;

use alloy_primitives::{Address, B256, Bytes, U64, U256};
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::chain::{CHAIN_ID, EventChain};
use super::{BATCH, IN_FLIGHT};

const TOPIC: &str = "FeesCollected(address,address,uint256,uint256)";

#[derive(Deserialize)]
struct GetLogsResponse {
    result: Vec<Log>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    address: Address,
    topics: Vec<B256>,
    data: Bytes,
    block_number: U64,
    block_hash: B256,
    block_timestamp: Option<U64>,
    transaction_hash: B256,
    log_index: U64,
}

/// The same fields that ours stores.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fee {
    #[serde(rename = "_id")]
    id: Binary,
    chain_id: i64,
    contract_address: String,
    token: String,
    integrator: String,
    integrator_fee: String,
    lifi_fee: String,
    block_number: i64,
    block_time: DateTime,
    transaction_hash: String,
    log_index: i64,
}

/// Events a second, from the first question to the last stored document.
pub(super) async fn rate(url: &str, database: &str, chain: &EventChain) -> Result<f64> {
    let fees = mongodb::Client::with_uri_str(url).await?.database(database).collection::<Fee>("feeEvents");
    let http = reqwest::Client::builder().no_proxy().build()?;
    let topic = alloy_primitives::keccak256(TOPIC);
    let began = Instant::now();
    let ranges = (0..=chain.last).step_by(usize::try_from(BATCH)?);
    let read = ranges.map(|from| {
        let (fees, http) = (fees.clone(), http.clone());
        let to = (from + BATCH - 1).min(chain.last);
        let filter = json!({
            "address": chain.contract,
            "topics": [topic],
            "fromBlock": format!("{from:#x}"),
            "toBlock": format!("{to:#x}"),
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [filter] });
        let node = chain.url();
        async move {
            let bytes = http.post(node).json(&body).send().await?.bytes().await?;
            let logs: GetLogsResponse = serde_json::from_slice(&bytes)?;
            let documents = logs.result.iter().map(fee).collect::<Result<Vec<Fee>>>()?;
            if !documents.is_empty() {
                fees.insert_many(documents).ordered(false).await?;
            }
            anyhow::Ok(logs.result.len())
        }
    });
    let stored: Vec<usize> =
        futures::stream::iter(read).buffer_unordered(usize::try_from(IN_FLIGHT)?).try_collect().await?;
    Ok(stored.iter().sum::<usize>() as f64 / began.elapsed().as_secs_f64())
}

fn fee(log: &Log) -> Result<Fee> {
    let [_, token, integrator] = &log.topics[..] else { anyhow::bail!("three topics") };
    let (first, second) = log.data.split_at_checked(32).context("two words")?;
    let (block, index) = (log.block_number.to::<u64>(), log.log_index.to::<u32>());
    let mut id = CHAIN_ID.to_be_bytes().to_vec();
    id.extend_from_slice(&block.to_be_bytes());
    id.extend_from_slice(log.block_hash.as_slice());
    id.extend_from_slice(&index.to_be_bytes());
    let hex = |bytes: &[u8]| alloy_primitives::hex::encode_prefixed(bytes);
    Ok(Fee {
        id: Binary { subtype: BinarySubtype::Generic, bytes: id },
        chain_id: i64::try_from(CHAIN_ID)?,
        contract_address: hex(log.address.as_slice()),
        token: hex(&token[12..]),
        integrator: hex(&integrator[12..]),
        integrator_fee: U256::from_be_slice(first).to_string(),
        lifi_fee: U256::from_be_slice(second).to_string(),
        block_number: i64::try_from(block)?,
        block_time: DateTime::from_millis(log.block_timestamp.map_or(0, |at| at.to::<i64>() * 1000)),
        transaction_hash: hex(log.transaction_hash.as_slice()),
        log_index: i64::from(index),
    })
}
