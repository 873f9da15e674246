//! Over HTTP: faults on demand, what full and solid nodes show, the balancer, the program itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ALICE, ALICE_KEY, BOB, address};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tron_devnet::crypto::sign;
use tron_devnet::wire::SignedTx;
use tron_devnet::{Config, Devnet, render};

/// How often something is looked at: looking all the time would take the machine from what is looked at.
const LOOK: Duration = Duration::from_millis(10);

struct Client {
    devnet: Devnet,
    http: reqwest::Client,
}

impl Client {
    async fn start() -> Self {
        let (alice, bob) = (format!("{ALICE}=1000000000"), format!("{BOB}=1"));
        let arguments =
            ["tron-devnet", "--manual", "--nodes", "2", "--solid-lag", "3", "--fund", &alice, "--fund", &bob];
        let config = <Config as clap::Parser>::parse_from(arguments);
        Self { devnet: Devnet::start(config).await.unwrap(), http: reqwest::Client::new() }
    }

    async fn raw(&self, node: usize, path: &str, body: Value) -> (StatusCode, String) {
        let url = format!("{}/{path}", self.devnet.url(node));
        let response = self.http.post(url).json(&body).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    async fn post(&self, node: usize, path: &str, body: Value) -> Value {
        let (status, text) = self.raw(node, path, body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn fault(&self, node: usize, kind: &str) {
        self.post(0, "admin/fault", json!({ "node": node, "kind": kind, "delay_ms": 50 })).await;
    }

    async fn mine(&self, blocks: u32) {
        self.post(0, "admin/produce", json!({ "blocks": blocks })).await;
    }

    /// A transfer to Bob that the node built; the amount tells payments apart.
    async fn payment(&self, sun: i64) -> (SignedTx, Value) {
        let request =
            json!({ "owner_address": address(ALICE).hex(), "to_address": address(BOB).hex(), "amount": sun });
        let built = self.post(0, "wallet/createtransaction", request).await;
        let mut tx = render::parse_transaction(&built).unwrap();
        assert_eq!(hex::encode(tx.id), built["txID"].as_str().unwrap());
        tx.signatures.push(sign(tx.id, &common::key(ALICE_KEY)));
        let body = json!({ "transaction": hex::encode(tx.bytes()) });
        (tx, body)
    }

    async fn paid(&self, sun: i64) -> u64 {
        let url = format!("{}/admin/payments?to={BOB}&amount={sun}", self.devnet.url(0));
        let answer: Value = self.http.get(url).send().await.unwrap().json().await.unwrap();
        answer["count"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn each_fault_of_a_broadcast_answers_and_mines_as_it_says() {
    let client = Client::start().await;
    // (fault, status, text in the answer, times mined)
    let table = [
        ("accept_timeout", StatusCode::GATEWAY_TIMEOUT, "", 1),
        ("accept_502", StatusCode::BAD_GATEWAY, "502", 1),
        ("timeout", StatusCode::GATEWAY_TIMEOUT, "", 0),
        ("bad_gateway", StatusCode::BAD_GATEWAY, "502", 0),
        ("p2p_failed", StatusCode::OK, "P2P broadcast failed.", 1),
        ("other_error", StatusCode::OK, "OTHER_ERROR", 1),
        ("lost", StatusCode::OK, "SUCCESS", 0),
        ("forgotten", StatusCode::OK, "SUCCESS", 0),
        ("busy", StatusCode::OK, "SERVER_BUSY", 0),
        ("no_connection", StatusCode::OK, "NO_CONNECTION", 0),
        ("unsolidified", StatusCode::OK, "BLOCK_UNSOLIDIFIED", 0),
        ("rate_limit", StatusCode::OK, "lack of computing resources", 0),
        ("lite", StatusCode::OK, "lite fullnode", 0),
        ("slow", StatusCode::OK, "SUCCESS", 1),
        ("empty", StatusCode::OK, "{}", 0),
        ("truncated", StatusCode::OK, "", 1),
    ];
    for (sun, (kind, status, part, mined)) in (10..).zip(table) {
        let (_, body) = client.payment(sun).await;
        client.fault(1, kind).await;
        let (got, text) = client.raw(1, "wallet/broadcasthex", body.clone()).await;
        assert_eq!(got, status, "{kind}: {text}");
        assert!(text.contains(part), "{kind}: {text}");
        if kind == "truncated" {
            assert!(serde_json::from_str::<Value>(&text).is_err(), "{text}");
        }
        client.mine(1).await;
        assert_eq!(client.paid(sun).await, mined, "{kind}");
        // The same bytes again are always safe, and heal what was not accepted.
        let answer = client.post(0, "wallet/broadcasthex", body).await;
        let expected = if mined == 1 { "DUP_TRANSACTION_ERROR" } else { "SUCCESS" };
        assert_eq!(answer["code"], expected, "{kind}");
        client.mine(1).await;
        assert_eq!(client.paid(sun).await, 1, "{kind}");
    }
    client.devnet.stop().await;
}

#[tokio::test]
async fn a_pending_transaction_shows_in_one_place_only() {
    let client = Client::start().await;
    let (tx, body) = client.payment(5).await;
    let id = json!({ "value": hex::encode(tx.id) });
    assert_eq!(client.post(0, "wallet/gettransactionbyid", id.clone()).await, json!({}));
    client.post(0, "wallet/broadcasthex", body).await;
    let pending = client.post(0, "wallet/gettransactionbyid", id.clone()).await;
    assert_eq!(pending["txID"], id["value"]);
    assert!(pending.get("ret").is_none());
    for path in ["wallet/gettransactioninfobyid", "walletsolidity/gettransactionbyid"] {
        assert_eq!(client.post(0, path, id.clone()).await, json!({}), "{path}");
    }
    client.mine(1).await;
    let info = client.post(0, "wallet/gettransactioninfobyid", id.clone()).await;
    assert!(info["blockNumber"].is_number());
    assert!(info.get("fee").is_none() && info.get("result").is_none(), "defaults are left out: {info}");
    let mut of_block =
        client.post(0, "wallet/gettransactioninfobyblocknum", json!({ "num": info["blockNumber"] })).await;
    assert_eq!(of_block[0].take(), info);
    let solid = "walletsolidity/gettransactioninfobyid";
    client.mine(2).await;
    assert_eq!(client.post(0, solid, id.clone()).await, json!({}));
    client.mine(1).await;
    assert_eq!(client.post(0, solid, id).await, info);
    client.devnet.stop().await;
}

#[tokio::test]
async fn messages_are_text_in_one_broadcast_and_hex_in_the_other() {
    let client = Client::start().await;
    let (mut tx, _) = client.payment(5).await;
    tx.signatures[0][0] ^= 1;
    let body = json!({ "transaction": hex::encode(tx.bytes()) });
    let by_hex = client.post(0, "wallet/broadcasthex", body).await;
    assert_eq!((&by_hex["result"], &by_hex["code"]), (&json!(false), &json!("SIGERROR")));
    let text = by_hex["message"].as_str().unwrap();
    assert!(text.starts_with("Validate signature error: "), "{text}");
    let by_json = client.post(0, "wallet/broadcasttransaction", render::transaction(&tx, false).into()).await;
    assert_eq!(by_json["message"], hex::encode(text));
    assert!(by_json.get("result").is_none());
    let garbage = client.post(0, "wallet/broadcasthex", json!({ "transaction": "ffff" })).await;
    assert!(garbage["Error"].is_string());
    client.devnet.stop().await;
}

#[tokio::test]
async fn history_may_be_closed_or_short_and_the_balancer_shows_both_nodes() {
    let client = Client::start().await;
    client.mine(10).await;
    client.post(0, "admin/node", json!({ "node": 0, "history_blocks": 2 })).await;
    client.post(0, "admin/node", json!({ "node": 1, "lite": true })).await;
    let early = json!({ "num": 1 });
    assert_eq!(client.post(0, "wallet/getblockbynum", early.clone()).await, json!({}));
    let (_, text) = client.raw(1, "wallet/getblockbynum", early.clone()).await;
    assert!(text.contains("lite fullnode"));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let url = format!("http://{}/wallet/getblockbynum", client.devnet.balancer);
        answers.push(client.http.post(url).json(&early).send().await.unwrap().text().await.unwrap());
    }
    assert_eq!(answers, ["{}", text.as_str()]);
    assert_eq!(client.raw(0, "walletsolidity/broadcasthex", json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(client.raw(0, "admin/fork", json!({ "depth": 9 })).await.0, StatusCode::BAD_REQUEST);
    client.devnet.stop().await;
}

#[tokio::test]
async fn tokens_prices_and_nodes_change_by_admin_calls() {
    let client = Client::start().await;
    let admin = |path: &'static str, body: Value| client.post(0, path, body);
    let made = admin("admin/token", json!({ "symbol": "TST", "decimals": 2, "energy_to_empty": 900 })).await;
    let token = made["address"].clone();
    admin("admin/mint", json!({ "token": token, "to": ALICE, "amount": "500" })).await;
    admin("admin/prices", json!({ "energy_fee_sun": 7 })).await;
    admin("admin/resources", json!({ "address": ALICE, "energy_limit": 4_000 })).await;
    admin("admin/node", json!({ "node": 0, "estimate_energy": true })).await;
    let resources = admin("wallet/getaccountresource", json!({ "address": ALICE, "visible": true })).await;
    assert_eq!(resources["EnergyLimit"], 4_000);
    let parameter = format!("{:0>64}{:064x}", hex::encode(address(BOB).body()), 9);
    let call = json!({ "owner_address": ALICE, "contract_address": token, "visible": true,
        "function_selector": "transfer(address,uint256)", "parameter": parameter, "fee_limit": 7_000 });
    let estimate = admin("wallet/estimateenergy", call.clone()).await;
    assert_eq!(estimate["energy_required"], 900);
    let read = admin("wallet/triggerconstantcontract", call.clone()).await;
    assert_eq!((&read["energy_used"], &read["logs"].as_array().unwrap().len()), (&json!(900), &1));

    // Held back, found pending, dropped everywhere; then a reading that reverts still says true.
    admin("admin/mining", json!({ "include": false })).await;
    let (tx, body) = client.payment(77).await;
    admin("wallet/broadcasthex", body).await;
    client.mine(1).await;
    let txid = hex::encode(tx.id);
    let url = format!("{}/admin/transaction?txid={txid}", client.devnet.url(0));
    let place: Value = client.http.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(place, json!({ "block": null, "solid": false, "pools": [0, 1], "producers": true }));
    admin("admin/drop", json!({ "txid": txid })).await;
    admin("admin/mining", json!({ "include": true })).await;
    client.mine(1).await;
    assert_eq!(client.paid(77).await, 0);
    admin("admin/behaviour", json!({ "token": token, "behaviour": "revert", "to": BOB })).await;
    let read = admin("wallet/triggerconstantcontract", call).await;
    assert_eq!(
        (&read["result"]["result"], &read["transaction"]["ret"][0]["ret"]),
        (&json!(true), &json!("FAILED"))
    );
    client.devnet.stop().await;
}

#[test]
fn the_program_writes_its_ports_produces_blocks_and_ends_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let ports = folder.path().join("ports.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tron-devnet"))
        .args(["--listen", "127.0.0.1:0", "--nodes", "2", "--slot-ms", "50", "--solid-lag", "2"])
        .args(["--fund", &format!("{ALICE}=5"), "--token", "USDT:6", "--port-file"])
        .arg(&ports)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = std::time::Instant::now();
    let told: Value = loop {
        if let Ok(text) = std::fs::read_to_string(&ports) {
            break serde_json::from_str(&text).unwrap();
        }
        assert!(child.try_wait().unwrap().is_none(), "the program ended early");
        assert!(started.elapsed() < Duration::from_secs(60), "the port file never came");
        std::thread::sleep(LOOK);
    };
    assert_eq!(told["nodes"].as_array().unwrap().len(), 2);
    assert!(told["tokens"]["USDT"].is_string());
    let url = format!("{}/walletsolidity/getnowblock", told["nodes"][1].as_str().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let number = || async {
            let block: Value = reqwest::get(&url).await.unwrap().json().await.unwrap();
            block["block_header"]["raw_data"]["number"].as_u64().unwrap()
        };
        let first = number().await;
        let grown = async {
            while number().await < first + 3 {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), grown).await.expect("blocks come by themselves");
    });
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success());
}
