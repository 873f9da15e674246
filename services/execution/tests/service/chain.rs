//! Reading the chain itself, apart from all our code: what was really paid.

use serde_json::{Value, json};
use testkit::{AnvilOptions, Chain, Mining};

pub(crate) const ETHER: u128 = 1_000_000_000_000_000_000;

pub(crate) async fn start(mining: Mining) -> Chain {
    testkit::anvil(AnvilOptions { mining, ..AnvilOptions::default() }).await
}

fn number(value: &Value) -> u128 {
    u128::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

pub(crate) async fn balance(chain: &Chain, address: &str) -> u128 {
    mine_at_once(chain).await;
    number(&chain.call("eth_getBalance", json!([address, "latest"])).await)
}

/// A node that mines at once answers before it has: what its pool holds gets its block now.
async fn mine_at_once(chain: &Chain) {
    if chain.call("anvil_getAutomine", json!([])).await == true {
        chain.mine(1).await;
    }
}

pub(crate) async fn mined_nonce(chain: &Chain, address: &str) -> u64 {
    mine_at_once(chain).await;
    u64::try_from(number(&chain.call("eth_getTransactionCount", json!([address, "latest"])).await)).unwrap()
}

/// Every transaction of the chain that pays `to` directly, over all blocks.
pub(crate) async fn payments_to(chain: &Chain, to: &str) -> Vec<u128> {
    mine_at_once(chain).await;
    let head = number(&chain.call("eth_blockNumber", json!([])).await);
    let mut found = Vec::new();
    for block in 0..=head {
        let block = chain.call("eth_getBlockByNumber", json!([format!("{block:#x}"), true])).await;
        for tx in block["transactions"].as_array().unwrap() {
            if tx["to"].as_str().is_some_and(|other| other.eq_ignore_ascii_case(to)) {
                found.push(number(&tx["value"]));
            }
        }
    }
    found
}

/// A transaction of one of anvil's own accounts, sent behind our back.
pub(crate) async fn foreign_send(chain: &Chain, from: &str, nonce: Option<u64>) -> String {
    let mut tx = json!({ "from": from, "to": "0x000000000000000000000000000000000000dEaD", "value": "0x1" });
    if let Some(nonce) = nonce {
        tx["nonce"] = json!(format!("{nonce:#x}"));
    }
    chain.call("eth_sendTransaction", json!([tx])).await.as_str().unwrap().to_owned()
}

/// Deploys a token of the test contracts and mints; returns its address.
pub(crate) async fn token(chain: &Chain, holder: &str, amount: u128) -> String {
    let artifact = include_str!("../../../../tests/contracts/artifacts/VoidToken.json");
    let artifact: Value = serde_json::from_str(artifact).unwrap();
    let code = artifact["bytecode"].as_str().unwrap();
    let code = if code.starts_with("0x") { code.to_owned() } else { format!("0x{code}") };
    let from = super::signer::KEYS[2].1;
    let hash = chain.call("eth_sendTransaction", json!([{ "from": from, "data": code }])).await;
    chain.mine(1).await;
    let receipt = chain.call("eth_getTransactionReceipt", json!([hash])).await;
    let address = receipt["contractAddress"].as_str().unwrap().to_owned();
    mint(chain, &address, holder, amount).await;
    address
}

pub(crate) async fn mint(chain: &Chain, token: &str, holder: &str, amount: u128) {
    let mint = format!("0x40c10f19{:0>64}{amount:064x}", holder.trim_start_matches("0x").to_lowercase());
    let from = super::signer::KEYS[2].1;
    chain.call("eth_sendTransaction", json!([{ "from": from, "to": token, "data": mint }])).await;
    chain.mine(1).await;
}

/// Moves tokens of one of anvil's own accounts away, behind our back.
pub(crate) async fn take_tokens(chain: &Chain, token: &str, from: &str, amount: u128) {
    let transfer = format!("0xa9059cbb{:0>64}{amount:064x}", "dead");
    chain.call("eth_sendTransaction", json!([{ "from": from, "to": token, "data": transfer }])).await;
    chain.mine(1).await;
}

pub(crate) async fn token_balance(chain: &Chain, token: &str, holder: &str) -> u128 {
    mine_at_once(chain).await;
    let data = format!("0x70a08231{:0>64}", holder.trim_start_matches("0x").to_lowercase());
    let answer = chain.call("eth_call", json!([{ "to": token, "data": data }, "latest"])).await;
    u128::from_str_radix(&answer.as_str().unwrap()[34..], 16).unwrap()
}
