//! Reads the whole chain and says who was paid what, how often, and what left our wallets. Shares no code with the services it
//! judges.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::JsonRpc;

use crate::payments::Ordered;

/// keccak256("Transfer(address,address,uint256)")
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
/// The call `transfer(address,uint256)`.
const TRANSFER_CALL: &str = "0xa9059cbb";
const SCANNED_AT_ONCE: u64 = 500;

/// A transaction of the chain, whoever sent it. Hashes and addresses are in lower case.
#[derive(Debug, Clone)]
pub struct Mined {
    pub hash: String,
    pub from: String,
    pub to: String,
    pub nonce: u64,
    pub value: u128,
    pub data: String,
    pub block: u64,
    pub succeeded: bool,
}

impl Mined {
    /// Whom it pays: the receiver that a token's transfer names, else whom it is sent to.
    pub fn receiver(&self) -> String {
        match self.data.strip_prefix(TRANSFER_CALL).and_then(|words| words.get(24..64)) {
            Some(address) => format!("0x{address}"),
            None => self.to.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Ledger {
    /// Values of successful native transfers by receiver (lower case).
    native: BTreeMap<String, Vec<u128>>,
    /// Values of token transfers by receiver, whatever the token.
    token: BTreeMap<String, Vec<u128>>,
    /// By hash.
    mined: BTreeMap<String, Mined>,
}

impl Ledger {
    pub async fn read(node: &str) -> Result<Self> {
        let node = Node::new(node)?;
        let head = number(&node.call("eth_blockNumber", json!([])).await?)?;
        let mut ledger = Self::default();
        let mut from = 0;
        while from <= head {
            let to = (from + SCANNED_AT_ONCE - 1).min(head);
            ledger.scan(&node, from, to).await?;
            from = to + 1;
        }
        Ok(ledger)
    }

    async fn scan(&mut self, node: &Node, from: u64, to: u64) -> Result<()> {
        let range =
            json!([{"fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}"), "topics": [TRANSFER]}]);
        let logs = node.call("eth_getLogs", range).await?;
        for log in logs.as_array().context("logs are a list")? {
            let receiver = log["topics"][2].as_str().context("a transfer names its receiver")?;
            let value = amount(&log["data"])?;
            self.token.entry(format!("0x{}", &receiver[26..])).or_default().push(value);
        }
        for block in from..=to {
            let params = json!([format!("{block:#x}"), true]);
            let read = node.call("eth_getBlockByNumber", params).await?;
            for tx in read["transactions"].as_array().context("a block lists its transactions")? {
                let receipt = node.call("eth_getTransactionReceipt", json!([tx["hash"]])).await?;
                self.note(tx, receipt["status"] == "0x1", block)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, tx: &Value, succeeded: bool, block: u64) -> Result<()> {
        let text = |field: &str| tx[field].as_str().unwrap_or_default().to_lowercase();
        let mined = Mined {
            hash: text("hash"),
            from: text("from"),
            to: text("to"),
            nonce: number(&tx["nonce"])?,
            value: amount(&tx["value"])?,
            data: text("input"),
            block,
            succeeded,
        };
        if succeeded && mined.value > 0 {
            self.native.entry(mined.to.clone()).or_default().push(mined.value);
        }
        self.mined.insert(mined.hash.clone(), mined);
        Ok(())
    }

    /// Transfers to a payment's own destination, in its asset.
    pub fn transfers(&self, payment: &Ordered) -> &[u128] {
        let transfers = if payment.asset == "BNB" { &self.native } else { &self.token };
        transfers.get(&payment.destination.to_string().to_lowercase()).map_or(&[], Vec::as_slice)
    }

    pub fn transaction(&self, hash: &str) -> Option<&Mined> {
        self.mined.get(&hash.to_lowercase())
    }

    /// Everything that an address sent, in the order of its nonces.
    pub fn sent_by(&self, address: &str) -> Vec<&Mined> {
        let mut sent: Vec<&Mined> =
            self.mined.values().filter(|tx| tx.from == address.to_lowercase()).collect();
        sent.sort_by_key(|tx| tx.nonce);
        sent
    }

    /// Each payment was made once, with the exact amount.
    pub fn paid_once(&self, payments: &[Ordered]) -> Result<()> {
        for payment in payments {
            let expected: u128 = payment.amount_raw.parse()?;
            let found = self.transfers(payment);
            ensure!(found.len() < 2, "withdrawal {} was paid {} times", payment.id, found.len());
            ensure!(found == [expected], "{} of {expected}: the chain shows {found:?}", payment.id);
        }
        Ok(())
    }

    /// None of these was paid, in any amount.
    pub fn never_paid(&self, payments: &[Ordered]) -> Result<()> {
        for payment in payments {
            let found = self.transfers(payment);
            ensure!(found.is_empty(), "withdrawal {}: the chain shows {found:?}", payment.id);
        }
        Ok(())
    }
}

/// The development node.
#[derive(Debug, Clone)]
pub struct Node(JsonRpc);

impl Node {
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self(JsonRpc::new(url)?))
    }

    /// `127.0.0.1:port`, as the target of a fault proxy.
    pub fn address(&self) -> String {
        self.0.url().trim_start_matches("http://").trim_end_matches('/').to_owned()
    }

    pub async fn call(&self, method: &str, params: Value) -> Result<Value> {
        Ok(self.0.call(method, params).await?)
    }

    pub async fn height(&self) -> Result<u64> {
        number(&self.call("eth_blockNumber", json!([])).await?)
    }

    /// How many transactions of an address are in blocks.
    pub async fn nonce(&self, address: &str) -> Result<u64> {
        number(&self.call("eth_getTransactionCount", json!([address, "latest"])).await?)
    }

    pub async fn mine(&self, blocks: u64) -> Result<()> {
        self.call("anvil_mine", json!([format!("{blocks:#x}")])).await.map(drop)
    }

    /// From now on a block is made only by `mine`.
    pub async fn stop_mining(&self) -> Result<()> {
        self.call("evm_setAutomine", json!([false])).await?;
        self.call("evm_setIntervalMining", json!([0])).await.map(drop)
    }

    /// One block every second, as in the development stack.
    pub async fn resume_mining(&self) -> Result<()> {
        self.call("evm_setIntervalMining", json!([1])).await.map(drop)
    }

    /// Sends from one of the node's own unlocked accounts and waits for its block; the receipt.
    pub async fn send(&self, transaction: Value) -> Result<Value> {
        let hash = self.call("eth_sendTransaction", json!([transaction])).await?;
        Ok(self.0.receipt(&hash, crate::stack::PATIENCE).await?)
    }
}

pub fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().context("a number is hex text")?;
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}

fn amount(value: &Value) -> Result<u128> {
    let text = value.as_str().context("an amount is hex text")?.trim_start_matches("0x");
    let digits = text.trim_start_matches('0');
    if digits.is_empty() { Ok(0) } else { Ok(u128::from_str_radix(digits, 16)?) }
}
