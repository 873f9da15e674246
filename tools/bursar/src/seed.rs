//! The development catalogue: chains, the native asset and a token of each, funded hot wallets, and approval policies.
//!
//! For a stack of `bursar up` only. Everything goes through the services' own contracts, so seeding tests them too, and
//! every step may be repeated: a restart on the same data finds what is there and adds nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proto::execution::v1 as ex;
use proto::intent::v1 as it;
use proto::signer::v1 as sg;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::stack::BSC;

pub mod tron;

/// The phrase whose accounts anvil funds. Public; worthless on any real chain.
const PHRASE: &str = "test test test test test test test test test test test junk";
/// Hot wallets are the first accounts of the phrase; the last one deploys the token.
const HOT_WALLETS: u32 = 2;
const DEPLOYER: usize = 9;
const DEPLOYER_ADDRESS: &str = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720";
const TOKEN: &str = include_str!("../../../tests/contracts/artifacts/Token.json");
/// 1,000,000 tokens of 18 decimals for each hot wallet.
const MINTED: &str = "1000000000000000000000000";
const OPERATOR: &str = "operator";
/// Blocks of the development node come every second; two on top keep the demo short and the depth rule in use.
const DEPTH: u32 = 2;
const MINED: Duration = Duration::from_secs(30);

/// Where the development chains answer.
#[derive(Debug, Clone)]
pub struct Nodes {
    pub bsc: String,
    pub bsc_chain_id: u64,
    pub tron: String,
}

/// A chain, its assets and the wallets that pay on it.
struct Seed {
    chain: ex::Chain,
    assets: Vec<ex::Asset>,
    wallets: Vec<sg::DerivedAddress>,
}

/// Brings a fresh or restarted stack to the point where a withdrawal can be paid on every chain.
pub async fn development(connection: &Connection, nodes: &Nodes) -> Result<()> {
    let group = wallet_group(connection).await?;
    let seeds = [bsc(connection, &group, nodes).await?, tron::seed(connection, &group, &nodes.tron).await?];
    for seed in &seeds {
        catalogue(connection, seed).await?;
        register(connection, &group, &seed.chain.name, &seed.wallets).await?;
    }
    for asset in seeds.iter().flat_map(|seed| &seed.assets) {
        let stored = policy(connection, &asset.chain, &asset.symbol).await;
        let what = || format!("cannot store the approval policy of {} on {}", asset.symbol, asset.chain);
        stored.with_context(what)?;
    }
    Ok(())
}

async fn bsc(connection: &Connection, group: &str, nodes: &Nodes) -> Result<Seed> {
    let wallets = hot_wallets(connection, group, "evm").await?;
    let token =
        Node::new(&nodes.bsc)?.token(&wallets).await.context("cannot deploy the development token")?;
    let chain = ex::Chain {
        name: BSC.to_owned(),
        kind: ex::ChainKind::Evm.into(),
        network_id: nodes.bsc_chain_id,
        nodes: vec![nodes.bsc.clone()],
        finality: ex::FinalityRule::Depth.into(),
        depth: DEPTH,
        dynamic_fees: true,
        max_gas_price: "100000000000".to_owned(),
        max_fee: "50000000000000000".to_owned(),
        bump_after_seconds: 30,
        enabled: true,
        native_asset: "BNB".to_owned(),
    };
    let assets = vec![asset(&chain, "BNB", None, 18), asset(&chain, "USDT", Some(token), 18)];
    Ok(Seed { chain, assets, wallets })
}

/// An asset of a chain; without a contract, its native one.
fn asset(chain: &ex::Chain, symbol: &str, contract: Option<String>, decimals: u32) -> ex::Asset {
    ex::Asset {
        symbol: symbol.to_owned(),
        chain: chain.name.clone(),
        is_native: contract.is_none(),
        contract_address: contract.unwrap_or_default(),
        decimals,
        enabled: true,
        ..Default::default()
    }
}

async fn wallet_group(connection: &Connection) -> Result<String> {
    let request = sg::ImportWalletGroupRequest {
        name: "development".to_owned(),
        purpose: "operation".to_owned(),
        recovery_phrase: PHRASE.to_owned(),
        passphrase: String::new(),
    };
    let answer = connection.signer(OPERATOR)?.import_wallet_group(request).await;
    let group = answer.context("cannot import the development wallet group")?.into_inner().group;
    Ok(group.context("the signer returned no group")?.id)
}

async fn hot_wallets(connection: &Connection, group: &str, format: &str) -> Result<Vec<sg::DerivedAddress>> {
    let request = sg::DeriveAddressesRequest {
        wallet_group_id: group.to_owned(),
        address_format: format.to_owned(),
        from_index: 0,
        count: HOT_WALLETS,
    };
    let answer = connection.signer(OPERATOR)?.derive_addresses(request).await;
    Ok(answer.context("cannot derive the hot wallets")?.into_inner().addresses)
}

async fn catalogue(connection: &Connection, seed: &Seed) -> Result<()> {
    let mut client = connection.catalogue(OPERATOR)?;
    let name = &seed.chain.name;
    let request = ex::PutChainRequest { chain: Some(seed.chain.clone()) };
    client.put_chain(request).await.with_context(|| format!("cannot store the chain {name}"))?;
    for asset in &seed.assets {
        let answer = client.put_asset(ex::PutAssetRequest { asset: Some(asset.clone()) }).await;
        answer.with_context(|| format!("cannot store the asset {} on {name}", asset.symbol))?;
    }
    Ok(())
}

async fn register(
    connection: &Connection,
    group: &str,
    chain: &str,
    wallets: &[sg::DerivedAddress],
) -> Result<()> {
    let mut signer = connection.signer(OPERATOR)?;
    let mut execution = connection.wallets(OPERATOR)?;
    for wallet in wallets {
        let known = sg::OperationWallet {
            chain: chain.to_owned(),
            address: wallet.address.clone(),
            wallet_group_id: group.to_owned(),
            derivation_index: wallet.index,
        };
        let request = sg::RegisterOperationWalletRequest { wallet: Some(known) };
        signer.register_operation_wallet(request).await.context("the signer does not take the hot wallet")?;
        let hot = ex::OperationWallet {
            chain: chain.to_owned(),
            address: wallet.address.clone(),
            role: ex::WalletRole::HotWallet.into(),
            status: ex::WalletStatus::Active.into(),
            wallet_group_id: group.to_owned(),
            derivation_index: wallet.index,
            label: format!("development hot wallet {}", wallet.index),
            ..Default::default()
        };
        let request = ex::PutOperationWalletRequest { wallet: Some(hot) };
        execution.put_operation_wallet(request).await.context("execution does not take the hot wallet")?;
    }
    let all = ex::RefreshBalancesRequest { chain: chain.to_owned(), addresses: Vec::new() };
    execution.refresh_balances(all).await.context("cannot read the hot wallets' balances")?;
    Ok(())
}

/// The catalogue reaches intent through execution's outbox, so the first tries may find the asset unknown.
async fn policy(connection: &Connection, chain: &str, asset: &str) -> Result<()> {
    let mut client = connection.policy(OPERATOR)?;
    let policy = it::ApprovalPolicy {
        chain: chain.to_owned(),
        asset: asset.to_owned(),
        tiers: vec![it::ApprovalTier { from_amount: "0".to_owned(), required_approvals: 2 }],
        approvers: Vec::new(),
    };
    let deadline = tokio::time::Instant::now() + MINED;
    loop {
        let request = it::PutApprovalPolicyRequest { policy: Some(policy.clone()) };
        match client.put_approval_policy(request).await {
            Ok(_) => return Ok(()),
            Err(status) if tokio::time::Instant::now() > deadline => return Err(status.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
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

    /// Deploys and funds the token, once: the deployer's first transaction decides its address.
    async fn token(&self, wallets: &[sg::DerivedAddress]) -> Result<String> {
        let accounts = self.call("eth_accounts", json!([])).await?;
        let deployer = accounts[DEPLOYER].as_str().context("the node has too few accounts")?.to_owned();
        let sent = self.call("eth_getTransactionCount", json!([deployer, "latest"])).await?;
        let address = contract_address(&deployer)?;
        if sent == "0x0" {
            let artifact: Value = serde_json::from_str(TOKEN)?;
            let code = artifact["bytecode"].as_str().context("the artifact holds no bytecode")?;
            let code =
                format!("0x{}{}", code.trim_start_matches("0x"), hex::encode(names("Tether USD", "USDT")));
            self.mine(json!({"from": deployer, "data": code, "gas": "0x4c4b40"})).await?;
            for wallet in wallets {
                let data = format!(
                    "0x40c10f19{:0>64}{:064x}",
                    &wallet.address[2..].to_lowercase(),
                    MINTED.parse::<u128>()?
                );
                self.mine(json!({"from": deployer, "to": address, "data": data, "gas": "0x186a0"})).await?;
            }
        }
        let code = self.call("eth_getCode", json!([address, "latest"])).await?;
        ensure!(code.as_str().is_some_and(|c| c.len() > 2), "no token at {address}");
        Ok(address)
    }

    async fn mine(&self, transaction: Value) -> Result<()> {
        let hash = self.call("eth_sendTransaction", json!([transaction])).await?;
        let deadline = tokio::time::Instant::now() + MINED;
        loop {
            let receipt = self.call("eth_getTransactionReceipt", json!([hash])).await?;
            if !receipt.is_null() {
                ensure!(receipt["status"] == "0x1", "transaction {hash} reverted");
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "transaction {hash} was not mined");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut answer: Value = self.http.post(&self.url).json(&body).send().await?.json().await?;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]["message"]);
        Ok(answer["result"].take())
    }
}

/// Where the development token lies, known before it is deployed: the signer's configuration names it.
pub fn token_address() -> Result<String> {
    contract_address(DEPLOYER_ADDRESS)
}

/// Where the account's first contract comes to lie.
fn contract_address(deployer: &str) -> Result<String> {
    let deployer: alloy::primitives::Address = deployer.parse()?;
    Ok(deployer.create(0).to_string())
}

/// The token's constructor arguments.
fn names(name: &str, symbol: &str) -> Vec<u8> {
    use alloy::sol_types::SolValue;
    (name.to_owned(), symbol.to_owned()).abi_encode_params()
}
