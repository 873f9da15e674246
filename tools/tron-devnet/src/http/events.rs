//! Events in the form of TronGrid, so that tronweb's `event` calls work: `/v1/contracts/<token>/events` and
//! `/v1/transactions/<txid>/events`.
//!
//! Only `Transfer` exists. The newest come first, 200 at most; there are no pages.

use alloy_primitives::U256;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{AppState, Params};
use crate::chain::{Block, Included};
use crate::crypto::Address;
use crate::ledger::execute::Log;

const MOST: usize = 200;

pub async fn handle(
    State(app): State<AppState>,
    Path((kind, id)): Path<(String, String)>,
    Query(query): Query<Map<String, Value>>,
) -> Response {
    let params = Params(query);
    let node = app.pick();
    let network = app.lock();
    let view = network.nodes[node].view(&network.chain);
    let newest = view.newest(params.flag("only_confirmed"));
    let contract = match kind.as_str() {
        "contracts" => Address::from_any(&id),
        "transactions" => None,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let limit = params.int("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(20).min(MOST);
    let solid = view.solid().number;
    let blocks = network.chain.blocks().iter().rev().filter(|block| block.number <= newest.number);
    let events: Vec<Value> = blocks
        .flat_map(|block| block.transactions.iter().map(move |included| (block, included)))
        .filter(|(_, included)| kind == "contracts" || hex::encode(included.tx.id) == id)
        .flat_map(|(block, included)| {
            included.outcome.logs.iter().enumerate().map(move |(at, log)| (block, included, at, log))
        })
        .filter(|(_, _, _, log)| contract.is_none_or(|contract| contract == log.address))
        .take(limit)
        .map(|(block, included, at, log)| event(block, included, (at, log), block.number > solid))
        .collect();
    let size = events.len();
    axum::Json(json!({ "success": true, "data": events, "meta": { "page_size": size } })).into_response()
}

fn event(block: &Block, included: &Included, (at, log): (usize, &Log), unconfirmed: bool) -> Value {
    let party = |topic: usize| {
        let body = log.topics.get(topic).map(|topic| &topic[12..]).unwrap_or_default();
        format!("0x{}", hex::encode(body))
    };
    let result = json!({ "from": party(1), "to": party(2),
        "value": U256::from_be_slice(&log.data).to_string() });
    let mut object = Map::new();
    object.insert("block_number".into(), block.number.into());
    object.insert("block_timestamp".into(), block.timestamp_ms.into());
    object.insert("caller_contract_address".into(), log.address.base58().into());
    object.insert("contract_address".into(), log.address.base58().into());
    object.insert("event_index".into(), at.into());
    object.insert("event_name".into(), "Transfer".into());
    object.insert("event".into(), "Transfer(address indexed from, address indexed to, uint256 value)".into());
    object.insert("result".into(), result);
    object.insert("result_type".into(), json!({ "from": "address", "to": "address", "value": "uint256" }));
    object.insert("transaction_id".into(), hex::encode(included.tx.id).into());
    if unconfirmed {
        object.insert("_unconfirmed".into(), true.into());
    }
    object.into()
}
