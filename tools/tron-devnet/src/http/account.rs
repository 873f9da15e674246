//! Accounts, resources, parameters and contracts. An address without an account is `{}`.

use serde_json::{Map, Value, json};

use super::Request;
use crate::crypto::{ADDRESS_PREFIX, Address};
use crate::network::Network;
use crate::render::put;

const TOTAL_BANDWIDTH: i64 = 43_200_000_000;
const TOTAL_ENERGY: i64 = 180_000_000_000;
const OPERATIONS: &str = "7fff1fc0033ec30f000000000000000000000000000000000000000000000000";

pub fn account(network: &Network, request: &Request<'_>) -> Value {
    let view = network.nodes[request.node].view(&network.chain);
    let world = view.state(request.solid);
    let now_ms = view.newest(request.solid).timestamp_ms;
    let Some(address) = request.params.address("address") else { return json!({}) };
    let text = address.text(request.params.visible());
    if world.tokens.contains_key(&address) {
        return json!({ "address": text, "type": "Contract" });
    }
    let Some(account) = world.accounts.get(&address) else { return json!({}) };
    let keys = json!([{ "address": text, "weight": 1 }]);
    let mut object = Map::new();
    object.insert("address".into(), text.into());
    put(&mut object, "balance", account.balance_sun);
    put(&mut object, "create_time", account.created_ms);
    put(&mut object, "latest_opration_time", account.last_operation_ms);
    put(&mut object, "net_usage", account.bandwidth.used(now_ms));
    put(&mut object, "free_net_usage", account.free_bandwidth.used(now_ms));
    let mut resource = Map::new();
    put(&mut resource, "energy_usage", account.energy.used(now_ms));
    object.insert("account_resource".into(), resource.into());
    let owner = json!({ "permission_name": "owner", "threshold": 1, "keys": keys });
    object.insert("owner_permission".into(), owner);
    let active = json!([{ "type": "Active", "id": 2, "permission_name": "active", "threshold": 1,
        "operations": OPERATIONS, "keys": keys }]);
    object.insert("active_permission".into(), active);
    object.into()
}

pub fn bandwidth(network: &Network, request: &Request<'_>) -> Value {
    resources(network, request, false)
}

pub fn resource(network: &Network, request: &Request<'_>) -> Value {
    resources(network, request, true)
}

fn resources(network: &Network, request: &Request<'_>, with_energy: bool) -> Value {
    let view = network.nodes[request.node].view(&network.chain);
    let world = view.state(false);
    let now_ms = view.head().timestamp_ms;
    let found = request.params.address("address").and_then(|address| world.accounts.get(&address));
    let Some(account) = found else { return json!({}) };
    let mut object = Map::new();
    put(&mut object, "freeNetUsed", account.free_bandwidth.used(now_ms));
    put(&mut object, "freeNetLimit", network.prices.free_bandwidth);
    put(&mut object, "NetUsed", account.bandwidth.used(now_ms));
    put(&mut object, "NetLimit", account.bandwidth_limit);
    put(&mut object, "TotalNetLimit", TOTAL_BANDWIDTH);
    if with_energy {
        put(&mut object, "EnergyUsed", account.energy.used(now_ms));
        put(&mut object, "EnergyLimit", account.energy_limit);
        put(&mut object, "TotalEnergyLimit", TOTAL_ENERGY);
    }
    object.into()
}

pub fn node_info(network: &Network, request: &Request<'_>) -> Value {
    let node = &network.nodes[request.node];
    let view = node.view(&network.chain);
    let name = |number: u64, id: &[u8]| format!("Num:{number},ID:{}", hex::encode(id));
    let (head, solid) = (view.head(), view.solid());
    let peers = if node.disconnected { 0 } else { network.nodes.len() - 1 };
    json!({
        "beginSyncNum": 0,
        "block": name(head.number, &head.id),
        "solidityBlock": name(solid.number, &solid.id),
        "currentConnectCount": peers,
        "activeConnectCount": peers,
        "passiveConnectCount": 0,
        "totalFlow": 0,
        "peerList": [],
        "configNodeInfo": { "codeVersion": "4.8.0", "p2pVersion": "11111", "listenPort": 18888 },
    })
}

pub fn chain_parameters(network: &Network) -> Value {
    let prices = &network.prices;
    let parameters = [
        ("getMaintenanceTimeInterval", 21_600_000),
        ("getAccountUpgradeCost", 9_999_000_000),
        ("getCreateAccountFee", prices.create_account_fee_sun),
        ("getTransactionFee", prices.bandwidth_fee_sun),
        ("getAssetIssueFee", 1_024_000_000),
        ("getCreateNewAccountFeeInSystemContract", prices.activation_fee_sun),
        ("getCreateNewAccountBandwidthRate", 1),
        ("getAllowCreationOfContracts", 1),
        ("getEnergyFee", prices.energy_fee_sun),
        ("getMaxCpuTimeOfOneTx", 80),
        ("getMultiSignFee", 1_000_000),
        ("getForbidTransferToContract", 1),
        ("getTotalEnergyLimit", TOTAL_ENERGY),
        ("getTotalEnergyCurrentLimit", TOTAL_ENERGY),
        ("getMaxFeeLimit", prices.max_fee_limit_sun),
        ("getMemoFee", prices.memo_fee_sun),
        ("getFreeNetLimit", prices.free_bandwidth),
        ("getTotalNetLimit", TOTAL_BANDWIDTH),
        ("getMaxCreateAccountTxSize", 1_000),
    ];
    let list: Vec<Value> = parameters
        .iter()
        .map(|(key, value)| {
            let mut object = Map::new();
            object.insert("key".into(), (*key).into());
            put(&mut object, "value", *value);
            object.into()
        })
        .collect();
    json!({ "chainParameter": list })
}

pub fn validate_address(request: &Request<'_>) -> Value {
    let text = request.params.text("address");
    let (result, message) = if Address::from_base58(text).is_some() {
        (true, "Base58check format")
    } else if let Ok(bytes) = hex::decode(text) {
        match bytes.len() {
            21 if bytes[0] == ADDRESS_PREFIX => (true, "Hex string format"),
            21 => (false, "Invalid address"),
            _ => (false, "Length error"),
        }
    } else {
        (false, "Invalid address")
    };
    json!({ "result": result, "message": message })
}

pub fn contract(network: &Network, request: &Request<'_>) -> Value {
    let visible = request.params.visible();
    let world = network.nodes[request.node].view(&network.chain).state(false);
    let Some(address) = request.params.address("value") else { return json!({}) };
    let Some(token) = world.tokens.get(&address) else { return json!({}) };
    json!({
        "origin_address": Address::from_body([0; 20]).text(visible),
        "contract_address": address.text(visible),
        "abi": { "entrys": abi() },
        "bytecode": "",
        "name": token.name,
        "consume_user_resource_percent": 100,
        "origin_energy_limit": 10_000_000,
    })
}

/// What the tokens here can do.
fn abi() -> Value {
    let read = |name: &str, kind: &str| {
        json!({ "outputs": [{ "type": kind }], "constant": true, "name": name,
            "stateMutability": "View", "type": "Function" })
    };
    json!([
        read("name", "string"),
        read("symbol", "string"),
        read("decimals", "uint8"),
        read("totalSupply", "uint256"),
        { "outputs": [{ "type": "uint256" }], "constant": true, "name": "balanceOf",
          "inputs": [{ "name": "who", "type": "address" }], "stateMutability": "View", "type": "Function" },
        { "outputs": [{ "type": "bool" }], "name": "transfer",
          "inputs": [{ "name": "to", "type": "address" }, { "name": "value", "type": "uint256" }],
          "stateMutability": "Nonpayable", "type": "Function" },
        { "name": "Transfer", "type": "Event", "inputs": [
            { "indexed": true, "name": "from", "type": "address" },
            { "indexed": true, "name": "to", "type": "address" },
            { "name": "value", "type": "uint256" }] },
    ])
}
