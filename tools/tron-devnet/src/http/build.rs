//! Transactions that the node builds, and calls that only read.
//!
//! A built transaction refers to a solid block and expires a minute after the head. Nothing here changes state. A simulated call that
//! reverts still has `result.result = true`, as on real nodes.

use prost::Message;
use serde_json::{Map, Value, json};

use super::Request;
use crate::crypto::Address;
use crate::ledger::execute::{Refusal, transfer_log, validate_transfer, validate_trigger};
use crate::ledger::token::{Effect, Token};
use crate::network::Network;
use crate::render;
use crate::wire::{Operation, Raw, SignedTx, TransferContract, TriggerSmartContract};

const LIFETIME_MS: i64 = 60_000;
const NO_CONTRACT: &str = "Contract validate error : No contract or not a valid smart contract";

fn unsigned(network: &Network, request: &Request<'_>, call: Operation) -> Result<SignedTx, Refusal> {
    let view = network.nodes[request.node].view(&network.chain);
    let reference = view.solid();
    let mut contract = call.into_contract();
    let permission = request.params.int("Permission_id").unwrap_or_default();
    contract.permission_id = i32::try_from(permission).unwrap_or_default();
    let memo = request.params.text("extra_data");
    let data = if request.params.visible() {
        memo.as_bytes().to_vec()
    } else {
        hex::decode(memo).unwrap_or_default()
    };
    let raw = Raw {
        ref_block_bytes: reference.id[6..8].to_vec(),
        ref_block_hash: reference.id[8..16].to_vec(),
        expiration: view.head().timestamp_ms + LIFETIME_MS,
        data,
        contract: vec![contract],
        timestamp: network.time_ms(),
        fee_limit: request.params.int("fee_limit").unwrap_or_default(),
        ..Raw::default()
    };
    SignedTx::from_parts(raw.encode_to_vec(), Vec::new())
        .map_err(|error| Refusal::Validate(error.to_string()))
}

fn contract_exception(text: &str) -> Value {
    json!({ "Error": format!("class org.tron.core.exception.ContractValidateException : {text}") })
}

pub fn create(network: &Network, request: &Request<'_>) -> Value {
    let (Some(owner), Some(to)) =
        (request.params.address("owner_address"), request.params.address("to_address"))
    else {
        return contract_exception("Invalid address!");
    };
    let transfer = TransferContract {
        owner_address: owner.as_bytes().to_vec(),
        to_address: to.as_bytes().to_vec(),
        amount: request.params.int("amount").unwrap_or_default(),
    };
    let world = network.nodes[request.node].view(&network.chain).state(false);
    let built = validate_transfer(&world, world.accounts.get(&owner), &transfer, &network.prices)
        .and_then(|_| unsigned(network, request, Operation::Transfer(transfer)));
    match built {
        Ok(tx) => {
            let mut object = render::transaction(&tx, request.params.visible());
            object.insert("visible".into(), request.params.visible().into());
            object.into()
        }
        Err(refusal) => contract_exception(&refusal.to_string()),
    }
}

/// `data`, or the selector's hash followed by the parameter.
fn call_data(request: &Request<'_>) -> Option<Vec<u8>> {
    let selector = request.params.text("function_selector");
    if selector.is_empty() {
        return hex::decode(request.params.text("data")).ok();
    }
    let mut data = alloy_primitives::keccak256(selector.as_bytes())[..4].to_vec();
    data.extend(hex::decode(request.params.text("parameter")).ok()?);
    Some(data)
}

fn parse_trigger(request: &Request<'_>) -> Option<(Address, Address, TriggerSmartContract)> {
    // Without an owner the call comes from the zero address.
    let owner = request.params.address("owner_address").unwrap_or_else(|| Address::from_body([0; 20]));
    let contract = request.params.address("contract_address")?;
    let trigger = TriggerSmartContract {
        owner_address: owner.as_bytes().to_vec(),
        contract_address: contract.as_bytes().to_vec(),
        call_value: request.params.int("call_value").unwrap_or_default(),
        data: call_data(request)?,
        call_token_value: request.params.int("call_token_value").unwrap_or_default(),
        token_id: request.params.int("token_id").unwrap_or_default(),
    };
    Some((owner, contract, trigger))
}

fn refused(code: &str, text: &str, visible: bool) -> Value {
    json!({ "result": { "code": code, "message": render::text(text, visible) } })
}

pub fn trigger(network: &Network, request: &Request<'_>) -> Value {
    let visible = request.params.visible();
    let Some((_, _, trigger)) = parse_trigger(request) else {
        return refused("OTHER_ERROR", "class java.lang.NullPointerException : null", visible);
    };
    if Token::is_view(&trigger.data) {
        return constant(network, request);
    }
    let world = network.nodes[request.node].view(&network.chain).state(false);
    let fee_limit_sun = request.params.int("fee_limit").unwrap_or_default();
    if let Err(refusal) = validate_trigger(&world, &trigger, fee_limit_sun, &network.prices) {
        let text = format!("Contract validate error : {refusal}");
        return refused("CONTRACT_VALIDATE_ERROR", &text, visible);
    }
    match unsigned(network, request, Operation::Trigger(trigger)) {
        Ok(tx) => {
            let mut transaction = render::transaction(&tx, visible);
            transaction.insert("visible".into(), visible.into());
            json!({ "result": { "result": true }, "transaction": transaction })
        }
        Err(refusal) => refused("OTHER_ERROR", &refusal.to_string(), visible),
    }
}

/// Simulates a call on the newest (or solid) state of the node.
fn dry_run(network: &Network, request: &Request<'_>) -> Option<(Address, Address, Effect, SignedTx)> {
    let (owner, contract, trigger) = parse_trigger(request)?;
    let world = network.nodes[request.node].view(&network.chain).state(request.solid);
    let mut effect = world.tokens.get(&contract)?.call(owner, trigger.call_value, &trigger.data);
    let most = network.prices.max_fee_limit_sun / network.prices.energy_fee_sun.max(1);
    if effect.energy > most {
        effect = Effect { energy: most, reverted: true, output: Vec::new(), transfer: None, logged: false };
    }
    let tx = unsigned(network, request, Operation::Trigger(trigger)).ok()?;
    Some((owner, contract, effect, tx))
}

pub fn constant(network: &Network, request: &Request<'_>) -> Value {
    let visible = request.params.visible();
    let Some((owner, contract, effect, tx)) = dry_run(network, request) else {
        return refused("CONTRACT_VALIDATE_ERROR", NO_CONTRACT, visible);
    };
    let mut result = Map::new();
    result.insert("result".into(), true.into());
    if effect.reverted {
        result.insert("message".into(), render::text("REVERT opcode executed", visible).into());
    }
    let mut transaction = render::transaction(&tx, visible);
    transaction.insert("visible".into(), visible.into());
    let ret = if effect.reverted { json!([{ "ret": "FAILED" }]) } else { json!([{}]) };
    transaction.insert("ret".into(), ret);
    let mut object = Map::new();
    object.insert("result".into(), result.into());
    render::put(&mut object, "energy_used", effect.energy);
    object.insert("constant_result".into(), json!([hex::encode(&effect.output)]));
    if let Some(log) = transfer_log(contract, owner, &effect) {
        object.insert("logs".into(), json!([render::log(&log, visible)]));
    }
    object.insert("transaction".into(), transaction.into());
    object.into()
}

/// Off by default, as on most nodes.
pub fn estimate(network: &Network, request: &Request<'_>) -> Value {
    let visible = request.params.visible();
    if !network.nodes[request.node].estimate_energy {
        let text = "Contract validate error : this node does not support estimate energy";
        return refused("CONTRACT_VALIDATE_ERROR", text, visible);
    }
    match dry_run(network, request) {
        None => refused("CONTRACT_VALIDATE_ERROR", NO_CONTRACT, visible),
        Some((_, _, effect, _)) if effect.reverted => {
            refused("CONTRACT_EXE_ERROR", "REVERT opcode executed", visible)
        }
        Some((_, _, effect, _)) => {
            json!({ "result": { "result": true }, "energy_required": effect.energy })
        }
    }
}
