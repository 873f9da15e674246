//! A network whose blocks come by hand, funded wallets, a token and signatures for the tests beside this file.

use alloy::primitives::B256;
use alloy_signer::SignerSync as _;
use alloy_signer_local::PrivateKeySigner;
use chain::tron::message::{Transaction, network_id};
use chain::tron::{TronConfig, UnsignedTx};
use chain::{Anchor, ChainEdge as _, Claim, Head, NodeConfig, Plan, TronChain};
use payment::{Action, AssetRef, Binding, Price, Transfer};
use serde_json::{Value, json};
use tron_devnet::{Config, Devnet};
use types::{Address, AddressFormat, RawAmount, TxHash};

pub(crate) const TRX: u64 = 1_000_000;
pub(crate) const KEY: &str = "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954";
pub(crate) const PAYER: &str = "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6";
pub(crate) const SLOT_MS: u64 = 3_000;
pub(crate) const SOLID_LAG: u64 = 3;
/// Short enough that a few blocks by hand are past it.
pub(crate) const WINDOW_MS: u64 = 30_000;

pub(crate) struct Net {
    pub(crate) devnet: Devnet,
    pub(crate) edge: TronChain,
    pub(crate) token: Address,
    http: reqwest::Client,
}

pub(crate) fn tron(text: &str) -> Address {
    Address::parse(AddressFormat::Tron, text).unwrap()
}

pub(crate) fn payer() -> Address {
    tron(PAYER)
}

/// An address of this test's own.
pub(crate) fn receiver(byte: u8) -> Address {
    Address::from_body(AddressFormat::Tron, [byte; 20])
}

pub(crate) fn amount(units: u64) -> RawAmount {
    RawAmount::from(units)
}

impl Net {
    pub(crate) async fn start(nodes: u8) -> Self {
        let arguments = [
            "tron-devnet".to_owned(),
            "--manual".to_owned(),
            format!("--nodes={nodes}"),
            format!("--slot-ms={SLOT_MS}"),
            format!("--solid-lag={SOLID_LAG}"),
            format!("--fund={PAYER}={}", 10_000 * TRX),
            "--token=USDT:6".to_owned(),
            format!("--mint=USDT:{PAYER}={}", 1_000_000 * TRX),
        ];
        let config = <Config as clap::Parser>::parse_from(arguments);
        let token = tron(&config.tokens().unwrap()[0].2.base58());
        let devnet = Devnet::start(config).await.unwrap();
        let http = reqwest::Client::new();
        let edge = TronChain::new(config_of(&devnet, &http).await).unwrap();
        Self { devnet, edge, token, http }
    }

    /// The same network, seen through an edge of other settings.
    pub(crate) async fn edge_with(&self, change: impl FnOnce(&mut TronConfig)) -> TronChain {
        let mut config = config_of(&self.devnet, &self.http).await;
        change(&mut config);
        TronChain::new(config).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        post(&self.http, &self.devnet.url(0), path, body).await
    }

    pub(crate) async fn produce(&self, blocks: u64) {
        self.post("admin/produce", json!({ "blocks": blocks })).await;
    }

    /// Enough blocks that what is in the newest one becomes solid.
    pub(crate) async fn solidify(&self) {
        self.produce(SOLID_LAG).await;
    }

    pub(crate) async fn fault(&self, node: usize, kind: &str, path: &str, times: u32) {
        let order = json!({ "node": node, "kind": kind, "path": path, "times": times, "delay_ms": 60_000 });
        self.post("admin/fault", order).await;
    }

    pub(crate) async fn node(&self, change: Value) {
        self.post("admin/node", change).await;
    }

    /// How often, and how much, this receiver was paid.
    pub(crate) async fn paid(&self, to: &Address) -> (u64, String) {
        let url = format!("{}/admin/payments?to={to}", self.devnet.url(0));
        let answer: Value = self.http.get(url).send().await.unwrap().json().await.unwrap();
        (answer["count"].as_u64().unwrap(), answer["total"].as_str().unwrap().to_owned())
    }

    pub(crate) fn pays_trx(&self, to: u8, sun: u64) -> Transfer {
        Transfer { asset: AssetRef::Native, from: payer(), to: receiver(to), amount: amount(sun) }
    }

    pub(crate) fn pays_token(&self, to: u8, units: u64) -> Transfer {
        let asset = AssetRef::Token(self.token);
        Transfer { asset, from: payer(), to: receiver(to), amount: amount(units) }
    }

    /// Prices, binds and signs a transfer, and has the edge check the bytes, as execution does.
    pub(crate) async fn signed(&self, transfer: Transfer) -> Signed {
        let action = Action::Pay(transfer);
        let price = self.edge.quote(&action, types::Priority::Normal).await.unwrap().price;
        self.signed_at(transfer, price).await
    }

    pub(crate) async fn signed_at(&self, transfer: Transfer, price: Price) -> Signed {
        let Anchor::Window { block, window } = self.edge.anchor(&transfer.from).await.unwrap() else {
            unreachable!("TRON has windows")
        };
        let binding = Binding::Window { sender: transfer.from, window };
        let plan = Plan { action: Action::Pay(transfer), binding, price };
        let raw = sign(&UnsignedTx::of(&plan).unwrap().raw().unwrap());
        let hash = self.edge.check_signed(&raw, &plan).unwrap();
        let claim = Claim { hash, effect: plan.action.effect() };
        Signed { raw, claim, plan, since: block.number, expiration_ms: window.expiration_ms }
    }

    pub(crate) async fn solid(&self) -> Head {
        self.edge.finalized().await.unwrap().agreed().unwrap()
    }
}

pub(crate) struct Signed {
    pub(crate) raw: Vec<u8>,
    pub(crate) claim: Claim,
    pub(crate) plan: Plan,
    pub(crate) since: u64,
    pub(crate) expiration_ms: u64,
}

impl Signed {
    pub(crate) fn question(&self, asof: Head) -> chain::FateQuestion {
        chain::FateQuestion {
            closing: self.plan.binding.closing(),
            ours: vec![self.claim.hash],
            asof,
            since: self.since,
        }
    }
}

async fn post(http: &reqwest::Client, base: &str, path: &str, body: Value) -> Value {
    let answer = http.post(format!("{base}/{path}")).json(&body).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert!(status.is_success(), "{path}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

async fn config_of(devnet: &Devnet, http: &reqwest::Client) -> TronConfig {
    let first = post(http, &devnet.url(0), "wallet/getblock", json!({ "id_or_num": "0" })).await;
    let genesis: TxHash = first["blockID"].as_str().unwrap().parse().unwrap();
    let nodes = (0..devnet.nodes.len())
        .map(|node| NodeConfig { name: format!("node-{node}"), url: devnet.url(node) })
        .collect();
    let mut config = TronConfig::new("tron".parse().unwrap(), network_id(&genesis), nodes);
    config.window_ms = WINDOW_MS;
    config.timeout_ms = 2_000;
    config
}

/// Signs raw bytes as the signer does: r, s, and 27 or 28.
pub(crate) fn sign(raw: &[u8]) -> Vec<u8> {
    sign_with(raw, KEY)
}

pub(crate) fn sign_with(raw: &[u8], key: &str) -> Vec<u8> {
    use prost::Message as _;
    let signer = PrivateKeySigner::from_slice(&hex::decode(key).unwrap()).unwrap();
    let digest = B256::from(chain::tron::message::tx_id(raw));
    let signature = signer.sign_hash_sync(&digest).unwrap().as_bytes().to_vec();
    Transaction { raw_data: raw.to_vec(), signature: vec![signature] }.encode_to_vec()
}
