//! A chain, funded wallets, tokens and signatures for the tests beside this file.

use alloy::consensus::{SignableTransaction as _, TxEnvelope, TypedTransaction};
use alloy::eips::eip2718::Encodable2718 as _;
use alloy::primitives::{Address as EvmAddress, U256, hex};
use alloy_signer::SignerSync as _;
use alloy_signer_local::PrivateKeySigner;
use alloy::sol_types::SolValue as _;
use chain::evm::UnsignedTx;
use chain::{ChainEdge as _, Claim, EvmChain, EvmConfig, Finality, Head, NodeConfig, Plan, TxStatus};
use payment::{Action, AssetRef, Binding, GasFee, Price, Transfer};
use serde_json::{Value, json};
use testkit::{AnvilOptions, Chain, FaultProxy, Mining};
use types::{Address, AddressFormat, RawAmount, TxHash};

pub(crate) const CHAIN_ID: u64 = 56;
pub(crate) const GWEI: u128 = 1_000_000_000;
pub(crate) const FEE: GasFee = GasFee::Dynamic { max_fee: 20 * GWEI, max_priority: 2 * GWEI };

/// A node that makes blocks only when told to.
pub(crate) async fn node() -> Chain {
    testkit::anvil(AnvilOptions { mining: Mining::Manual, chain_id: CHAIN_ID, ..AnvilOptions::default() })
        .await
}

pub(crate) fn config(urls: &[String], finality: Finality) -> EvmConfig {
    let nodes = urls
        .iter()
        .enumerate()
        .map(|(index, url)| NodeConfig { name: format!("node-{index}"), url: url.clone() })
        .collect();
    let mut config = EvmConfig::new("bsc".parse().unwrap(), CHAIN_ID, nodes, finality);
    config.timeout_ms = 2_000;
    config
}

pub(crate) fn edge(urls: &[String]) -> EvmChain {
    EvmChain::new(config(urls, Finality::Depth(2))).unwrap()
}

/// Two ways to the same node, each of which can be broken by itself.
pub(crate) async fn two_nodes(node: &Chain) -> (FaultProxy, FaultProxy, EvmChain) {
    let (first, second) = (FaultProxy::http(node.address()).await, FaultProxy::http(node.address()).await);
    let edge = edge(&[first.url(), second.url()]);
    (first, second, edge)
}

/// A key that exists in this test only.
#[derive(Debug)]
pub(crate) struct Wallet {
    signer: PrivateKeySigner,
}

impl Wallet {
    pub(crate) async fn funded(node: &Chain, seed: u8) -> Self {
        let wallet = Self { signer: PrivateKeySigner::from_slice(&[seed; 32]).unwrap() };
        let balance = U256::from(10).pow(U256::from(20));
        node.call("anvil_setBalance", json!([wallet.signer.address(), balance])).await;
        wallet
    }

    pub(crate) fn address(&self) -> Address {
        any(self.signer.address())
    }

    pub(crate) fn sign(&self, tx: &UnsignedTx) -> Vec<u8> {
        let typed = tx.typed();
        let signature = self.signer.sign_hash_sync(&typed.signature_hash()).unwrap();
        match typed {
            TypedTransaction::Legacy(tx) => TxEnvelope::Legacy(tx.into_signed(signature)).encoded_2718(),
            TypedTransaction::Eip1559(tx) => TxEnvelope::Eip1559(tx.into_signed(signature)).encoded_2718(),
            _ => unreachable!("only two kinds are built"),
        }
    }

    pub(crate) fn pays(&self, asset: AssetRef, to: u8, amount: u64) -> Transfer {
        let amount = RawAmount::from_u256(U256::from(amount));
        Transfer { asset, from: self.address(), to: receiver(to), amount }
    }

    pub(crate) fn plan(&self, transfer: Transfer, nonce: u64, fee: GasFee) -> Plan {
        Plan {
            action: Action::Pay(transfer),
            binding: Binding::Nonce { sender: self.address(), nonce },
            price: Price::Gas { limit: 120_000, fee },
        }
    }

    /// A signed native payment of one unit.
    pub(crate) fn native(&self, edge: &EvmChain, nonce: u64, to: u8, fee: GasFee) -> (Vec<u8>, Claim) {
        let transfer = self.pays(AssetRef::Native, to, 1);
        self.signed(edge, &self.plan(transfer, nonce, fee))
    }

    /// Signs a plan and has the edge check the bytes, as execution does.
    pub(crate) fn signed(&self, edge: &EvmChain, plan: &Plan) -> (Vec<u8>, Claim) {
        let raw = self.sign(&edge.unsigned(plan).unwrap());
        let hash = edge.check_signed(&raw, plan).unwrap();
        (raw, Claim { hash, effect: plan.action.effect() })
    }
}

pub(crate) fn any(address: EvmAddress) -> Address {
    Address::from_body(AddressFormat::Evm, address.into_array())
}

/// An address of this test's own.
pub(crate) fn receiver(byte: u8) -> Address {
    any(EvmAddress::repeat_byte(byte))
}

/// Sends as the node's own first account, mines, and gives the receipt.
async fn send_as_node(node: &Chain, mut request: Value) -> Value {
    let accounts = node.call("eth_accounts", json!([])).await;
    request["from"] = accounts[0].clone();
    request["gas"] = json!("0x4c4b40");
    let hash = node.call("eth_sendTransaction", json!([request])).await;
    node.mine(1).await;
    let receipt = node.call("eth_getTransactionReceipt", json!([hash])).await;
    assert_eq!(receipt["status"], "0x1", "{receipt}");
    receipt
}

/// Deploys a test contract and gives its address.
pub(crate) async fn deploy(node: &Chain, artifact: &str, arguments: &[u8]) -> Address {
    let artifact: Value = serde_json::from_str(artifact).unwrap();
    let code = format!("{}{}", artifact["bytecode"].as_str().unwrap(), hex::encode(arguments));
    let receipt = send_as_node(node, json!({"data": code})).await;
    receipt["contractAddress"].as_str().unwrap().parse().unwrap()
}

pub(crate) async fn deploy_token(node: &Chain) -> Address {
    let arguments = ("Tether".to_owned(), "USDT".to_owned()).abi_encode_params();
    deploy(node, include_str!("../../../../tests/contracts/artifacts/Token.json"), &arguments).await
}

pub(crate) async fn mint(node: &Chain, token: &Address, to: &Address, amount: u64) {
    alloy::sol!(function mint(address to, uint256 value););
    use alloy::sol_types::SolCall as _;
    let data = mintCall { to: to.as_evm(), value: U256::from(amount) }.abi_encode();
    send_as_node(node, json!({"to": token.to_string(), "data": hex::encode_prefixed(data)})).await;
}

/// Balance of an address, asked of the node itself.
pub(crate) async fn balance(node: &Chain, of: &Address) -> u64 {
    let balance = node.call("eth_getBalance", json!([of.to_string(), "latest"])).await;
    serde_json::from_value::<U256>(balance).unwrap().to()
}

pub(crate) async fn final_head(edge: &EvmChain) -> Head {
    edge.finalized().await.unwrap().agreed().unwrap()
}

/// Where one claim stands as of the latest final block.
pub(crate) async fn standing(edge: &EvmChain, claim: &Claim) -> TxStatus {
    let asof = final_head(edge).await;
    edge.settlements(&[*claim], &asof).await.remove(0).agreed().unwrap()
}

pub(crate) fn label(broadcast: &chain::Broadcast) -> &'static str {
    broadcast.merged.label()
}

pub(crate) async fn seen(edge: &EvmChain, hash: TxHash) -> chain::Seen {
    edge.lookup(&[hash]).await.unwrap()[0].seen
}
