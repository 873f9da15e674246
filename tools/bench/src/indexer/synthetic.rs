//! A node that never was: it answers for a chain of any length, a thousand fee events in each block, computed as they are asked
//! for. For what needs more events than a development node can hold in memory; never for a rate.

use std::fmt::Write as _;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use proto::indexer::v1 as pb;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::chain::CHAIN_ID;
use super::{Expected, source};

/// No round number: answers of a round size are read twice, in case they were cut off.
const PER_BLOCK: u64 = 1_003;
const CONTRACT: &str = "0x00000000000000000000000000000000000000fe";

#[derive(Debug)]
pub(super) struct SyntheticNode {
    url: String,
    pub(super) blocks: u64,
    pub(super) expected: Expected,
    serving: JoinHandle<()>,
}

impl SyntheticNode {
    pub(super) async fn start(blocks: u64) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/", post(answer)).with_state(blocks);
        let serving = tokio::spawn(async move {
            // Ends with the measurement that owns it.
            axum::serve(listener, router).await.ok();
        });
        let mut expected = Expected::nothing();
        (0..blocks).for_each(|block| (0..PER_BLOCK).for_each(|log| expected.add(block, log, log + 1)));
        Ok(Self { url, blocks, expected, serving })
    }

    pub(super) fn source(&self) -> pb::Source {
        source("many", CONTRACT, self.url.clone())
    }
}

impl Drop for SyntheticNode {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(blocks): State<u64>, Json(request): Json<Value>) -> String {
    match &request {
        Value::Array(calls) => {
            let answers: Vec<String> = calls.iter().map(|call| one(blocks, call)).collect();
            format!("[{}]", answers.join(","))
        }
        call => one(blocks, call),
    }
}

fn one(blocks: u64, call: &Value) -> String {
    let first = &call["params"][0];
    let result = match call["method"].as_str().unwrap_or_default() {
        "eth_chainId" => json!(format!("{CHAIN_ID:#x}")).to_string(),
        "eth_getCode" => json!("0x00").to_string(),
        "eth_getBlockByNumber" => header(blocks, number(first).unwrap_or(blocks - 1)),
        "eth_getLogs" => {
            logs(number(&first["fromBlock"]).unwrap_or(0), number(&first["toBlock"]).unwrap_or(0))
        }
        "eth_getBlockReceipts" => receipts(number(first).unwrap_or(0)),
        _ => "null".to_owned(),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call["id"])
}

fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

fn hash(block: u64) -> String {
    format!("0x{:064x}", block.wrapping_add(1))
}

fn header(blocks: u64, block: u64) -> String {
    if block >= blocks {
        return "null".to_owned();
    }
    let (hash, parent) = (hash(block), hash(block.wrapping_sub(1)));
    let time = 1_700_000_000 + block;
    json!({ "number": format!("{block:#x}"), "hash": hash, "parentHash": parent, "timestamp": format!("{time:#x}") })
        .to_string()
}

fn logs(from: u64, to: u64) -> String {
    let mut text = String::from("[");
    for block in from..=to {
        push(&mut text, block);
    }
    if text.len() > 1 {
        text.pop();
    }
    text.push(']');
    text
}

fn receipts(block: u64) -> String {
    format!(r#"[{{"blockHash":"{}","logs":{}}}]"#, hash(block), logs(block, block))
}

fn push(text: &mut String, block: u64) {
    let topic = alloy_primitives::keccak256("FeesCollected(address,address,uint256,uint256)");
    let hash = hash(block);
    for log in 0..PER_BLOCK {
        let (integrator, fee) = (0xbbbb + log % 50, log + 1);
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            r#"{{"address":"{CONTRACT}","topics":["{topic}","0x{:064x}","0x{integrator:064x}"],"data":"0x{fee:064x}{log:064x}","blockNumber":"{block:#x}","blockHash":"{hash}","transactionHash":"0x{:064x}","logIndex":"{log:#x}"}},"#,
            0xaaaa,
            block * PER_BLOCK + log
        );
    }
}
