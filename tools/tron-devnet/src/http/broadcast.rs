//! Broadcasts: exact bytes by `broadcasthex`, and JSON that is encoded again by `broadcasttransaction`.
//!
//! The two answer differently, as real nodes do: the first writes all fields as text, the second leaves defaults out and writes its
//! message as hex.

use serde_json::{Map, Value, json};

use super::Request;
use crate::admission::{BroadcastReply, Relay};
use crate::crypto::recover;
use crate::fault::FaultKind;
use crate::network::Network;
use crate::render;
use crate::wire::SignedTx;

/// Sends the transaction to the node, with the fault of this call.
fn offer(network: &mut Network, request: &Request<'_>, tx: SignedTx) -> BroadcastReply {
    let relay = match request.fault {
        Some(FaultKind::Busy) => return BroadcastReply::new("SERVER_BUSY", "Server busy."),
        Some(FaultKind::NoConnection) => return BroadcastReply::new("NO_CONNECTION", "No connection."),
        Some(FaultKind::Unsolidified) => {
            return BroadcastReply::new("BLOCK_UNSOLIDIFIED", "Block unsolidified.");
        }
        Some(FaultKind::Lost) => Relay::Nobody,
        Some(FaultKind::Forgotten) => Relay::Forget,
        _ => Relay::Everyone,
    };
    let answer = network.broadcast(request.node, tx, relay);
    match request.fault {
        Some(FaultKind::P2pFailed) if answer.is_success() => {
            BroadcastReply::new("NOT_ENOUGH_EFFECTIVE_CONNECTION", "P2P broadcast failed.")
        }
        Some(FaultKind::OtherError) if answer.is_success() => {
            BroadcastReply::new("OTHER_ERROR", "Error: null")
        }
        _ => answer,
    }
}

pub fn hex(network: &mut Network, request: &Request<'_>) -> Value {
    let decoded = hex::decode(request.params.text("transaction"))
        .map_err(|error| format!("class org.bouncycastle.util.encoders.DecoderException : {error}"))
        .and_then(|bytes| {
            SignedTx::decode(&bytes).map_err(|error| {
                format!("class com.google.protobuf.InvalidProtocolBufferException : {error}")
            })
        });
    let tx = match decoded {
        Ok(tx) => tx,
        Err(text) => return json!({ "Error": text }),
    };
    let txid = hex::encode(tx.id);
    let transaction = Value::from(render::transaction(&tx, request.params.visible())).to_string();
    let answer = offer(network, request, tx);
    json!({
        "result": answer.is_success(),
        "code": answer.code,
        "message": answer.message,
        "transaction": transaction,
        "txid": txid,
    })
}

pub fn json(network: &mut Network, request: &Request<'_>) -> Value {
    let whole = Value::Object(request.params.0.clone());
    let Some(tx) = render::parse_transaction(&whole) else {
        return json!({ "Error": "class java.lang.NullPointerException : null" });
    };
    let mut object = Map::new();
    let txid = hex::encode(tx.id);
    let answer = offer(network, request, tx);
    if answer.is_success() {
        object.insert("result".into(), true.into());
    } else {
        object.insert("code".into(), answer.code.into());
        object.insert("message".into(), render::text(&answer.message, request.params.visible()).into());
    }
    object.insert("txid".into(), txid.into());
    object.into()
}

/// Who may sign a transaction, and its id as the node computes it.
pub fn sign_weight(network: &Network, request: &Request<'_>) -> Value {
    let visible = request.params.visible();
    let whole = Value::Object(request.params.0.clone());
    let Some(tx) = render::parse_transaction(&whole) else {
        return json!({ "Error": "class java.lang.NullPointerException : null" });
    };
    let world = network.nodes[request.node].view(&network.chain).state(false);
    let owner = tx.call.as_ref().and_then(crate::wire::Operation::owner);
    let mut object = Map::new();
    let weight = tx.signatures.iter().filter(|each| recover(tx.id, each) == owner).count();
    match owner.filter(|owner| world.accounts.contains_key(owner)) {
        Some(owner) => {
            let keys = json!([{ "address": owner.text(visible), "weight": 1 }]);
            let permission = json!({ "permission_name": "owner", "threshold": 1, "keys": keys });
            object.insert("permission".into(), permission);
            let result = if weight > 0 { json!({}) } else { json!({ "code": "NOT_ENOUGH_PERMISSION" }) };
            object.insert("result".into(), result);
        }
        None => {
            let result = json!({ "code": "PERMISSION_ERROR", "message": "Account does not exist!" });
            object.insert("result".into(), result);
        }
    }
    if weight > 0 {
        object.insert("current_weight".into(), weight.into());
        object.insert("approved_list".into(), owner.iter().map(|each| each.text(visible)).collect());
    }
    let transaction = render::transaction(&tx, visible);
    let wrapped =
        json!({ "result": { "result": true }, "txid": hex::encode(tx.id), "transaction": transaction });
    object.insert("transaction".into(), wrapped);
    object.into()
}
