//! Reads the whole chain and says who was paid what, how often. Shares no code with the services it judges.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::payments::Ordered;

/// keccak256("Transfer(address,address,uint256)")
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const SCANNED_AT_ONCE: u64 = 500;

/// Every transfer of value on the chain, by receiver (lower case).
#[derive(Debug, Default)]
pub struct Ledger {
    /// Values of successful native transfers.
    native: BTreeMap<String, Vec<u128>>,
    /// Values of token transfers, whatever the token.
    token: BTreeMap<String, Vec<u128>>,
}

impl Ledger {
    /// Scans from the first block to the newest.
    pub async fn read(node: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let head = number(&call(&http, node, "eth_blockNumber", json!([])).await?)?;
        let mut ledger = Self::default();
        let mut from = 0;
        while from <= head {
            let to = (from + SCANNED_AT_ONCE - 1).min(head);
            ledger.scan(&http, node, from, to).await?;
            from = to + 1;
        }
        Ok(ledger)
    }

    async fn scan(&mut self, http: &reqwest::Client, node: &str, from: u64, to: u64) -> Result<()> {
        let range =
            json!([{"fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}"), "topics": [TRANSFER]}]);
        let logs = call(http, node, "eth_getLogs", range).await?;
        for log in logs.as_array().context("logs are a list")? {
            let receiver = log["topics"][2].as_str().context("a transfer names its receiver")?;
            let value = amount(&log["data"])?;
            self.token.entry(format!("0x{}", &receiver[26..])).or_default().push(value);
        }
        for block in from..=to {
            let block =
                call(http, node, "eth_getBlockByNumber", json!([format!("{block:#x}"), true])).await?;
            for tx in block["transactions"].as_array().context("a block lists its transactions")? {
                let (Some(receiver), value) = (tx["to"].as_str(), amount(&tx["value"])?) else { continue };
                if value > 0 {
                    let receipt = call(http, node, "eth_getTransactionReceipt", json!([tx["hash"]])).await?;
                    if receipt["status"] == "0x1" {
                        self.native.entry(receiver.to_lowercase()).or_default().push(value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Transfers to a payment's own destination, in its asset.
    pub fn transfers(&self, payment: &Ordered) -> &[u128] {
        let book = if payment.asset == "BNB" { &self.native } else { &self.token };
        book.get(&payment.destination.to_string().to_lowercase()).map_or(&[], Vec::as_slice)
    }

    /// Each payment was made once, with the exact amount.
    pub fn paid_once(&self, payments: &[Ordered]) -> Result<()> {
        for payment in payments {
            let expected: u128 = payment.amount_raw.parse()?;
            let found = self.transfers(payment);
            ensure!(found.len() < 2, "withdrawal {} was paid {} times", payment.id, found.len());
            ensure!(
                found == [expected],
                "withdrawal {} of {expected}: the chain shows {found:?}",
                payment.id
            );
        }
        Ok(())
    }
}

/// One JSON-RPC call.
pub async fn call(http: &reqwest::Client, node: &str, method: &str, params: Value) -> Result<Value> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut answer: Value = http.post(node).json(&body).send().await?.json().await?;
    ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
    Ok(answer["result"].take())
}

fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().context("a number is hex text")?;
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}

fn amount(value: &Value) -> Result<u128> {
    let text = value.as_str().context("an amount is hex text")?.trim_start_matches("0x");
    if text.is_empty() {
        Ok(0)
    } else {
        Ok(u128::from_str_radix(text.trim_start_matches('0'), 16).unwrap_or(0))
    }
}
