//! The development catalogue: chains, the native asset and a token of each, funded hot wallets, and approval policies.
//!
//! For a stack of `bursar up` only. Everything goes through the services' own contracts, so seeding tests them too, and
//! every step may be repeated: a restart on the same data finds what is there and adds nothing.

use std::time::Duration;

use alloy::sol_types::SolValue as _;
use anyhow::{Context, Result, ensure};
use devstack::JsonRpc;
use proto::execution::v1 as execution_pb;
use proto::intent::v1 as intent_pb;
use proto::signer::v1 as signer_pb;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::stack::BSC;

pub mod events;
pub mod tron;

/// Hot wallets are the first accounts of anvil's phrase; the last one deploys the token.
const HOT_WALLETS: u32 = 2;
const DEPLOYER: usize = 9;
const DEPLOYER_ADDRESS: &str = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720";
const TOKEN: &str = include_str!("../../../../tests/contracts/artifacts/Token.json");
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
    chain: execution_pb::Chain,
    assets: Vec<execution_pb::Asset>,
    wallets: Vec<signer_pb::DerivedAddress>,
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
    let token = deploy_token(&JsonRpc::new(&nodes.bsc)?, &wallets).await;
    let token = token.context("cannot deploy the development token")?;
    let chain = execution_pb::Chain {
        name: BSC.to_owned(),
        kind: execution_pb::ChainKind::Evm.into(),
        network_id: nodes.bsc_chain_id,
        nodes: vec![nodes.bsc.clone()],
        finality: execution_pb::FinalityRule::Depth.into(),
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
fn asset(
    chain: &execution_pb::Chain,
    symbol: &str,
    contract: Option<String>,
    decimals: u32,
) -> execution_pb::Asset {
    execution_pb::Asset {
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
    let request = signer_pb::ImportWalletGroupRequest {
        name: "development".to_owned(),
        purpose: "operation".to_owned(),
        recovery_phrase: devstack::DEV_MNEMONIC.to_owned(),
        passphrase: String::new(),
    };
    let answer = connection.signer(OPERATOR)?.import_wallet_group(request).await;
    let group = answer.context("cannot import the development wallet group")?.into_inner().group;
    Ok(group.context("the signer returned no group")?.id)
}

async fn hot_wallets(
    connection: &Connection,
    group: &str,
    format: &str,
) -> Result<Vec<signer_pb::DerivedAddress>> {
    let request = signer_pb::DeriveAddressesRequest {
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
    let request = execution_pb::PutChainRequest { chain: Some(seed.chain.clone()) };
    client.put_chain(request).await.with_context(|| format!("cannot store the chain {name}"))?;
    for asset in &seed.assets {
        let answer = client.put_asset(execution_pb::PutAssetRequest { asset: Some(asset.clone()) }).await;
        answer.with_context(|| format!("cannot store the asset {} on {name}", asset.symbol))?;
    }
    Ok(())
}

async fn register(
    connection: &Connection,
    group: &str,
    chain: &str,
    wallets: &[signer_pb::DerivedAddress],
) -> Result<()> {
    let mut signer = connection.signer(OPERATOR)?;
    let mut execution = connection.wallets(OPERATOR)?;
    for wallet in wallets {
        let known = signer_pb::OperationWallet {
            chain: chain.to_owned(),
            address: wallet.address.clone(),
            wallet_group_id: group.to_owned(),
            derivation_index: wallet.index,
        };
        let request = signer_pb::RegisterOperationWalletRequest { wallet: Some(known) };
        signer.register_operation_wallet(request).await.context("the signer does not take the hot wallet")?;
        let hot = execution_pb::OperationWallet {
            chain: chain.to_owned(),
            address: wallet.address.clone(),
            role: execution_pb::WalletRole::HotWallet.into(),
            status: execution_pb::WalletStatus::Active.into(),
            wallet_group_id: group.to_owned(),
            derivation_index: wallet.index,
            label: format!("development hot wallet {}", wallet.index),
            ..Default::default()
        };
        let request = execution_pb::PutOperationWalletRequest { wallet: Some(hot) };
        execution.put_operation_wallet(request).await.context("execution does not take the hot wallet")?;
    }
    let all = execution_pb::RefreshBalancesRequest { chain: chain.to_owned(), addresses: Vec::new() };
    execution.refresh_balances(all).await.context("cannot read the hot wallets' balances")?;
    Ok(())
}

/// The catalogue reaches intent through execution's outbox, so the first tries may find the asset unknown.
async fn policy(connection: &Connection, chain: &str, asset: &str) -> Result<()> {
    let mut client = connection.policy(OPERATOR)?;
    let policy = intent_pb::ApprovalPolicy {
        chain: chain.to_owned(),
        asset: asset.to_owned(),
        tiers: vec![intent_pb::ApprovalTier { from_amount: "0".to_owned(), required_approvals: 2 }],
        approvers: Vec::new(),
    };
    let deadline = tokio::time::Instant::now() + MINED;
    loop {
        let request = intent_pb::PutApprovalPolicyRequest { policy: Some(policy.clone()) };
        match client.put_approval_policy(request).await {
            Ok(_) => return Ok(()),
            Err(status) if tokio::time::Instant::now() > deadline => return Err(status.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Deploys and funds the token, once: the deployer's first transaction decides its address. The node's accounts are
/// unlocked, so no key is needed.
async fn deploy_token(node: &JsonRpc, wallets: &[signer_pb::DerivedAddress]) -> Result<String> {
    let (deployer, is_new) = deployer(node, DEPLOYER).await?;
    let address = contract_address(&deployer)?;
    if is_new {
        let names = ("Tether USD".to_owned(), "USDT".to_owned()).abi_encode_params();
        let code = format!("{}{}", bytecode(TOKEN)?, hex::encode(names));
        mine(node, json!({"from": deployer, "data": code, "gas": "0x4c4b40"})).await?;
        for wallet in wallets {
            let (holder, amount) = (wallet.address[2..].to_lowercase(), MINTED.parse::<u128>()?);
            let data = format!("0x40c10f19{holder:0>64}{amount:064x}");
            mine(node, json!({"from": deployer, "to": address, "data": data, "gas": "0x186a0"})).await?;
        }
    }
    let code = node.call("eth_getCode", json!([address, "latest"])).await?;
    ensure!(code.as_str().is_some_and(|c| c.len() > 2), "no token at {address}");
    Ok(address)
}

async fn mine(node: &JsonRpc, transaction: Value) -> Result<()> {
    let hash = node.call("eth_sendTransaction", json!([transaction])).await?;
    node.receipt(&hash, MINED).await?;
    Ok(())
}

/// An account of the development node, and whether it has never sent anything.
async fn deployer(node: &JsonRpc, index: usize) -> Result<(String, bool)> {
    let accounts = node.call("eth_accounts", json!([])).await?;
    let account = accounts[index].as_str().context("the node has too few accounts")?.to_owned();
    let sent = node.call("eth_getTransactionCount", json!([account, "latest"])).await?;
    Ok((account, sent == "0x0"))
}

/// The code that deploys a contract of `tests/contracts/artifacts`.
fn bytecode(artifact: &str) -> Result<String> {
    let artifact: Value = serde_json::from_str(artifact)?;
    let code = artifact["bytecode"].as_str().context("the artifact holds no bytecode")?;
    Ok(format!("0x{}", code.trim_start_matches("0x")))
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
