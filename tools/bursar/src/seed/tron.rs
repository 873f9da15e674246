//! What the development TRON network begins with, and how the catalogue describes it.

use anyhow::{Context, Result};
use devstack::TronToken;
use proto::execution::v1 as pb;
use serde_json::{Value, json};
use types::TxHash;

use super::{HOT_WALLETS, Seed, asset, hot_wallets};
use crate::client::Connection;
use crate::stack::{TRON, TRON_NODES};

/// The first accounts of the development phrase at `m/44'/195'/0'/0/i`. Public; worthless on any real network.
const HOT: [&str; HOT_WALLETS as usize] =
    ["TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6", "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C"];
/// A million TRX, in sun, and a million of the token.
const FUNDED: u64 = 1_000_000_000_000;
pub const TOKEN: &str = "USDT";
const TOKEN_DECIMALS: u8 = 6;
/// Most for a unit of energy, and for one transaction: 10 TRX would not do for a token sent to an empty address.
const MAX_ENERGY_PRICE: &str = "1000";
pub const MAX_FEE: &str = "100000000";

/// Who has TRX from the first block on.
pub fn funds() -> Vec<(String, u64)> {
    HOT.iter().map(|address| ((*address).to_owned(), FUNDED)).collect()
}

pub fn tokens() -> Vec<TronToken> {
    let mint = HOT.iter().map(|address| ((*address).to_owned(), u128::from(FUNDED))).collect();
    vec![TronToken { symbol: TOKEN.to_owned(), decimals: TOKEN_DECIMALS, mint }]
}

/// Where the devnet puts a token of this symbol: the same in every run, so the signer's configuration can name it.
pub fn token_address() -> String {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(format!("tron-devnet token {TOKEN}").as_bytes());
    let mut body = [0; 20];
    body.copy_from_slice(&hash[..20]);
    types::Address::from_body(types::AddressFormat::Tron, body).to_string()
}

pub(super) async fn seed(connection: &Connection, group: &str, node: &str) -> Result<Seed> {
    let wallets = hot_wallets(connection, group, TRON).await?;
    let network_id = network_id(node).await.context("cannot read the first block of the TRON network")?;
    let chain = pb::Chain {
        name: TRON.to_owned(),
        kind: pb::ChainKind::Tron.into(),
        network_id,
        nodes: (0..TRON_NODES).map(|number| format!("{node}/nodes/{number}")).collect(),
        finality: pb::FinalityRule::Chain.into(),
        depth: 0,
        dynamic_fees: false,
        max_gas_price: MAX_ENERGY_PRICE.to_owned(),
        max_fee: MAX_FEE.to_owned(),
        bump_after_seconds: 300,
        enabled: true,
        native_asset: "TRX".to_owned(),
    };
    let token = asset(&chain, TOKEN, Some(token_address()), TOKEN_DECIMALS.into());
    let assets = vec![asset(&chain, "TRX", None, 6), token];
    Ok(Seed { chain, assets, wallets })
}

/// The last four bytes of the first block's id, which identifies a TRON network.
async fn network_id(node: &str) -> Result<u64> {
    let http = reqwest::Client::builder().no_proxy().timeout(std::time::Duration::from_secs(10)).build()?;
    let question = json!({ "id_or_num": "0", "detail": false });
    let block: Value =
        http.post(format!("{node}/wallet/getblock")).json(&question).send().await?.json().await?;
    let id: TxHash = block["blockID"].as_str().context("the answer holds no block")?.parse()?;
    let mut last = [0; 4];
    last.copy_from_slice(&id.as_bytes()[28..]);
    Ok(u32::from_be_bytes(last).into())
}
