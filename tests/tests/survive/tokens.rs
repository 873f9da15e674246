//! Tokens that say success and do something else.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use proto::execution::v1 as execution_pb;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;
use proto::execution::v1::wallet_service_client::WalletServiceClient;
use proto::intent::v1 as intent_pb;
use proto::intent::v1::policy_service_client::PolicyServiceClient;
use serde_json::{Value, json};
use tests::judge::{Expected, judge_but};
use tests::payments::PATIENCE;

use crate::support::Scene;

const FALSE_TOKEN: &str = include_str!("../../contracts/artifacts/FalseToken.json");
const FEE_TOKEN: &str = include_str!("../../contracts/artifacts/FeeToken.json");

/// Puts a token on the chain, gives the hot wallets some, and makes it known to every service.
async fn introduce(scene: &Scene, symbol: &str, artifact: &str) -> Result<()> {
    let accounts = scene.node.call("eth_accounts", json!([])).await?;
    let artifact: Value = serde_json::from_str(artifact)?;
    let code = artifact["bytecode"].as_str().context("the artifact holds no bytecode")?;
    let code = format!("0x{}", code.trim_start_matches("0x"));
    let deployed = scene.node.send(json!({"from": accounts[8], "data": code, "gas": "0x4c4b40"})).await?;
    let contract = deployed["contractAddress"].as_str().context("a deployment has an address")?.to_owned();
    for wallet in scene.wallets().await? {
        let amount = 1_000_000_000_000_000_000_000_u128;
        let data = format!("0x40c10f19{:0>64}{amount:064x}", &wallet[2..].to_lowercase());
        scene.node.send(json!({"from": accounts[8], "to": contract, "data": data, "gas": "0x30d40"})).await?;
    }
    // The signer knows tokens from its own configuration, whatever the catalogue says.
    let mut config = std::fs::OpenOptions::new().append(true).open(scene.stack.config("signer-gateway"))?;
    writeln!(
        config,
        "\n[chains.bsc.assets.{symbol}]\ncontract = \"{contract}\"\nmax_transaction = \"1000000000000000000000\"\n\
         [[chains.bsc.assets.{symbol}.tiers]]\napprovals = 2"
    )?;
    let asset = execution_pb::Asset {
        symbol: symbol.to_owned(),
        chain: "bsc".to_owned(),
        contract_address: contract,
        decimals: 18,
        enabled: true,
        ..Default::default()
    };
    let mut catalogue = CatalogueServiceClient::new(scene.stack.client("execution", "operator")?);
    catalogue.put_asset(execution_pb::PutAssetRequest { asset: Some(asset) }).await?;
    let mut wallets = WalletServiceClient::new(scene.stack.client("execution", "operator")?);
    let all = execution_pb::RefreshBalancesRequest { chain: "bsc".to_owned(), addresses: Vec::new() };
    wallets.refresh_balances(all).await?;
    let policies = PolicyServiceClient::new(scene.stack.client("intent", "operator")?);
    let policy = intent_pb::ApprovalPolicy {
        chain: "bsc".to_owned(),
        asset: symbol.to_owned(),
        tiers: vec![intent_pb::ApprovalTier { from_amount: "0".to_owned(), required_approvals: 2 }],
        approvers: Vec::new(),
    };
    testkit::wait_for("the token to reach intent's catalogue", PATIENCE, || async {
        let request = intent_pb::PutApprovalPolicyRequest { policy: Some(policy.clone()) };
        policies.clone().put_approval_policy(request).await.is_ok()
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_moves_nothing_or_takes_a_fee_is_never_called_paid() -> Result<()> {
    let scene = Scene::new().await?;
    introduce(&scene, "FALSE", FALSE_TOKEN).await?;
    introduce(&scene, "FEE", FEE_TOKEN).await?;
    scene.stack.replace("signer-gateway", &[])?;
    let odd = [scene.customer.order("FALSE", "5").await?, scene.customer.order("FEE", "5").await?];
    for order in &odd {
        let parked = scene
            .job_when(order, "for a person", |job| job.status() == execution_pb::JobStatus::Parked)
            .await?;
        ensure!(!parked.error.is_empty(), "{} does not say why", order.asset);
    }
    // The lanes go on.
    let good = scene.customer.order_some(4).await?;
    scene.customer.all_completed(&good).await?;
    let expected = Expected { parked: true, ..Expected::default() };
    let ledger = judge_but(&scene.stack, &scene.customer, &good, &expected).await?;
    for order in &odd {
        let shown = scene.customer.status(&order.id).await?;
        ensure!(shown.final_tx_hash.is_empty(), "{} was called paid", order.asset);
        ensure!(shown.failure_reason.is_empty(), "{} was called failed: money may have moved", order.asset);
        let asked: u128 = order.amount_raw.parse()?;
        ensure!(ledger.transfers(order).len() < 2, "{} was sent twice", order.asset);
        ensure!(!ledger.transfers(order).contains(&asked), "{} was in fact paid", order.asset);
    }
    // Its stack is not handed on: parked payments wait for a person.
    Ok(())
}
