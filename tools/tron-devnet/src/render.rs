//! The JSON of java-tron: defaults left out, addresses as hex or Base58 by `visible`.
//!
//! Blocks, transactions and receipts as JSON, and the way back from JSON to bytes for `broadcasttransaction`.

use prost::Message;
use serde_json::{Map, Value, json};

use crate::chain::{Block, Included};
use crate::crypto::Address;
use crate::ledger::execute::{ContractResult, Log};
use crate::wire::{Operation, Raw, SignedTx, TransferContract, TriggerSmartContract};

/// Adds a number unless it is the default, which protobuf's JSON leaves out.
pub fn put(object: &mut Map<String, Value>, key: &str, number: i64) {
    if number != 0 {
        object.insert(key.to_owned(), number.into());
    }
}

fn address(bytes: &[u8], visible: bool) -> String {
    match Address::from_bytes(bytes) {
        Some(address) => address.text(visible),
        None => hex::encode(bytes),
    }
}

/// A transaction, pending or not yet sent.
pub fn transaction(tx: &SignedTx, visible: bool) -> Map<String, Value> {
    let mut object = Map::new();
    if visible {
        object.insert("visible".into(), true.into());
    }
    if !tx.signatures.is_empty() {
        object.insert("signature".into(), tx.signatures.iter().map(hex::encode).collect());
    }
    object.insert("txID".into(), hex::encode(tx.id).into());
    object.insert("raw_data".into(), raw_data(tx, visible));
    object.insert("raw_data_hex".into(), hex::encode(&tx.raw_bytes).into());
    object
}

/// A transaction in a block.
pub fn included(included: &Included, visible: bool) -> Value {
    let mut object = transaction(&included.tx, visible);
    object.remove("visible");
    object.insert("ret".into(), json!([{ "contractRet": included.outcome.ending.to_string() }]));
    object.into()
}

fn raw_data(tx: &SignedTx, visible: bool) -> Value {
    let raw = &tx.raw;
    let mut object = Map::new();
    let contracts = raw.contract.iter().zip(tx.call.as_ref()).map(|(contract, call)| {
        let (name, value) = operation_value(call, visible);
        let type_url = contract.parameter.as_ref().map(|any| any.type_url.as_str()).unwrap_or_default();
        let mut object = Map::new();
        object.insert("parameter".into(), json!({ "value": value, "type_url": type_url }));
        object.insert("type".into(), name.into());
        put(&mut object, "Permission_id", contract.permission_id.into());
        Value::from(object)
    });
    object.insert("contract".into(), contracts.collect());
    for (key, bytes) in [
        ("ref_block_bytes", &raw.ref_block_bytes),
        ("ref_block_hash", &raw.ref_block_hash),
        ("data", &raw.data),
    ] {
        if bytes.is_empty() {
            continue;
        }
        // With `visible` a memo is text; the reference stays hex.
        let text = match (key, visible) {
            ("data", true) => String::from_utf8_lossy(bytes).into_owned(),
            _ => hex::encode(bytes),
        };
        object.insert(key.into(), text.into());
    }
    put(&mut object, "expiration", raw.expiration);
    put(&mut object, "fee_limit", raw.fee_limit);
    put(&mut object, "timestamp", raw.timestamp);
    object.into()
}

fn operation_value(call: &Operation, visible: bool) -> (&'static str, Value) {
    let mut object = Map::new();
    match call {
        Operation::Transfer(transfer) => {
            put(&mut object, "amount", transfer.amount);
            object.insert("owner_address".into(), address(&transfer.owner_address, visible).into());
            object.insert("to_address".into(), address(&transfer.to_address, visible).into());
            ("TransferContract", object.into())
        }
        Operation::Trigger(trigger) => {
            if !trigger.data.is_empty() {
                object.insert("data".into(), hex::encode(&trigger.data).into());
            }
            object.insert("owner_address".into(), address(&trigger.owner_address, visible).into());
            object.insert("contract_address".into(), address(&trigger.contract_address, visible).into());
            put(&mut object, "call_value", trigger.call_value);
            put(&mut object, "call_token_value", trigger.call_token_value);
            put(&mut object, "token_id", trigger.token_id);
            ("TriggerSmartContract", object.into())
        }
        Operation::Other(_) => ("Unknown", object.into()),
    }
}

pub fn block(block: &Block, visible: bool, detail: bool) -> Value {
    let mut raw = Map::new();
    put(&mut raw, "number", i64::try_from(block.number).unwrap_or(i64::MAX));
    raw.insert("txTrieRoot".into(), hex::encode(block.tx_root).into());
    raw.insert("witness_address".into(), block.witness.text(visible).into());
    raw.insert("parentHash".into(), hex::encode(block.parent).into());
    raw.insert("version".into(), block.version.into());
    put(&mut raw, "timestamp", block.timestamp_ms);
    let mut object = Map::new();
    object.insert("blockID".into(), hex::encode(block.id).into());
    let header = json!({ "raw_data": raw, "witness_signature": hex::encode(&block.witness_signature) });
    object.insert("block_header".into(), header);
    if detail && !block.transactions.is_empty() {
        let transactions = block.transactions.iter().map(|each| included(each, visible)).collect();
        object.insert("transactions".into(), transactions);
    }
    object.into()
}

pub fn log(log: &Log, visible: bool) -> Value {
    // Twenty bytes without the prefix, unless the reader asked for Base58.
    let address = if visible { log.address.base58() } else { hex::encode(log.address.body()) };
    let topics: Vec<String> = log.topics.iter().map(hex::encode).collect();
    json!({ "address": address, "topics": topics, "data": hex::encode(&log.data) })
}

/// The answer of `gettransactioninfobyid`.
pub fn info(block: &Block, included: &Included, visible: bool) -> Value {
    let outcome = &included.outcome;
    let mut receipt = Map::new();
    put(&mut receipt, "energy_usage", outcome.energy.usage);
    put(&mut receipt, "energy_fee", outcome.energy.fee_sun);
    put(&mut receipt, "energy_usage_total", outcome.energy.total);
    put(&mut receipt, "net_usage", outcome.bandwidth.usage);
    put(&mut receipt, "net_fee", outcome.bandwidth.fee_sun);
    let mut object = Map::new();
    object.insert("id".into(), hex::encode(included.tx.id).into());
    put(&mut object, "fee", outcome.fee_sun);
    put(&mut object, "blockNumber", i64::try_from(block.number).unwrap_or(i64::MAX));
    put(&mut object, "blockTimeStamp", block.timestamp_ms);
    object.insert("contractResult".into(), json!([hex::encode(&outcome.output)]));
    if let Some(contract) = outcome.contract {
        receipt.insert("result".into(), outcome.ending.to_string().into());
        object.insert("contract_address".into(), contract.text(visible).into());
    }
    object.insert("receipt".into(), receipt.into());
    if !outcome.logs.is_empty() {
        object.insert("log".into(), outcome.logs.iter().map(|each| log(each, visible)).collect());
    }
    if outcome.ending != ContractResult::Success {
        object.insert("result".into(), "FAILED".into());
    }
    if let Some(message) = &outcome.message {
        object.insert("resMessage".into(), text(message, visible).into());
    }
    put(&mut object, "packingFee", outcome.bandwidth.fee_sun);
    object.into()
}

/// Texts are hex in the answers of `/wallet`, unless `visible` is set.
pub fn text(message: &str, visible: bool) -> String {
    if visible { message.to_owned() } else { hex::encode(message) }
}

/// An integer that may be written as text, as `int64_as_string` clients do.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// An address in hex or Base58, as bytes. Nodes go by `visible`, but clients often mix the two.
pub fn address_bytes(value: &Value) -> Option<Vec<u8>> {
    Address::from_any(value.as_str()?).map(|address| address.as_bytes().to_vec())
}

/// The transaction of this JSON. Nodes ignore `raw_data_hex`, and so does this.
pub fn parse_transaction(value: &Value) -> Option<SignedTx> {
    let visible = value.get("visible").and_then(Value::as_bool).unwrap_or(false);
    let raw = value.get("raw_data")?;
    let bytes = |key: &str| hex::decode(raw.get(key).and_then(Value::as_str).unwrap_or_default()).ok();
    let number = |key: &str| raw.get(key).map_or(Some(0), integer);
    let data = match (visible, raw.get("data").and_then(Value::as_str)) {
        (true, Some(text)) => text.as_bytes().to_vec(),
        _ => bytes("data")?,
    };
    let contracts = raw.get("contract").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let raw = Raw {
        ref_block_bytes: bytes("ref_block_bytes")?,
        ref_block_hash: bytes("ref_block_hash")?,
        expiration: number("expiration")?,
        data,
        contract: contracts.iter().map(parse_contract).collect::<Option<_>>()?,
        timestamp: number("timestamp")?,
        fee_limit: number("fee_limit")?,
        ..Raw::default()
    };
    let signatures = value.get("signature").and_then(Value::as_array).map(Vec::as_slice);
    let signatures = signatures
        .unwrap_or_default()
        .iter()
        .map(|each| hex::decode(each.as_str()?).ok())
        .collect::<Option<_>>()?;
    SignedTx::from_parts(raw.encode_to_vec(), signatures).ok()
}

fn parse_contract(value: &Value) -> Option<crate::wire::Contract> {
    let parameter = value.get("parameter")?.get("value")?;
    let number = |key: &str| parameter.get(key).map_or(Some(0), integer);
    let call = match value.get("type")?.as_str()? {
        "TransferContract" => Operation::Transfer(TransferContract {
            owner_address: address_bytes(parameter.get("owner_address")?)?,
            to_address: address_bytes(parameter.get("to_address")?)?,
            amount: number("amount")?,
        }),
        "TriggerSmartContract" => Operation::Trigger(TriggerSmartContract {
            owner_address: address_bytes(parameter.get("owner_address")?)?,
            contract_address: address_bytes(parameter.get("contract_address")?)?,
            call_value: number("call_value")?,
            data: hex::decode(parameter.get("data").and_then(Value::as_str).unwrap_or_default()).ok()?,
            call_token_value: number("call_token_value")?,
            token_id: number("token_id")?,
        }),
        _ => return None,
    };
    let mut contract = call.into_contract();
    contract.permission_id = value.get("Permission_id").and_then(integer).unwrap_or(0).try_into().ok()?;
    Some(contract)
}
