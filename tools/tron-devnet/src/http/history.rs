//! Blocks, transactions and receipts.
//!
//! A pending transaction is only found by `gettransactionbyid` of `/wallet`. Not found is `{}`.

use serde_json::{Value, json};

use super::Request;
use crate::network::Network;
use crate::node::View;
use crate::render;
use crate::wire::TxId;

const MOST_BLOCKS: i64 = 100;

/// The calls that a lite node answers with plain text.
pub fn is_closed_on_lite(call: &str) -> bool {
    matches!(
        call,
        "getblockbyid"
            | "getblockbylimitnext"
            | "getblockbynum"
            | "gettransactionbyid"
            | "gettransactioninfobyid"
            | "gettransactioninfobyblocknum"
    )
}

fn view<'a>(network: &'a Network, request: &Request<'_>) -> View<'a> {
    network.nodes[request.node].view(&network.chain)
}

fn number(request: &Request<'_>, key: &str) -> Option<u64> {
    request.params.int(key).and_then(|number| u64::try_from(number).ok())
}

/// Ids may begin with `0x`, which java-tron ignores.
fn unhex(text: &str) -> Option<Vec<u8>> {
    hex::decode(text.strip_prefix("0x").unwrap_or(text)).ok()
}

fn tx_id(request: &Request<'_>) -> Option<TxId> {
    unhex(request.params.text("value"))?.try_into().ok()
}

pub fn now_block(network: &Network, request: &Request<'_>) -> Value {
    let block = view(network, request).newest(request.solid);
    render::block(block, request.params.visible(), true)
}

pub fn block(network: &Network, request: &Request<'_>) -> Value {
    let view = view(network, request);
    let detail = request.params.flag("detail");
    let found = match request.params.0.get("id_or_num") {
        None => Some(view.newest(request.solid)),
        Some(wanted) => match render::integer(wanted).and_then(|number| u64::try_from(number).ok()) {
            Some(number) => view.block(number, request.solid),
            None => {
                unhex(wanted.as_str().unwrap_or_default()).and_then(|id| view.block_by_id(&id, request.solid))
            }
        },
    };
    found.map_or_else(|| json!({}), |block| render::block(block, request.params.visible(), detail))
}

pub fn block_by_num(network: &Network, request: &Request<'_>) -> Value {
    let wanted = number(request, "num").unwrap_or_default();
    match view(network, request).block(wanted, request.solid) {
        Some(block) => render::block(block, request.params.visible(), true),
        None => json!({}),
    }
}

pub fn block_by_id(network: &Network, request: &Request<'_>) -> Value {
    let id = unhex(request.params.text("value")).unwrap_or_default();
    match view(network, request).block_by_id(&id, request.solid) {
        Some(block) => render::block(block, request.params.visible(), true),
        None => json!({}),
    }
}

/// `endNum` is not part of the range.
pub fn block_range(network: &Network, request: &Request<'_>) -> Value {
    let start = request.params.int("startNum").unwrap_or_default();
    let end = request.params.int("endNum").unwrap_or_default();
    if start < 0 || end <= start || end - start > MOST_BLOCKS {
        return json!({});
    }
    let view = view(network, request);
    let blocks: Vec<Value> = (start.unsigned_abs()..end.unsigned_abs())
        .filter_map(|number| view.block(number, request.solid))
        .map(|block| render::block(block, request.params.visible(), true))
        .collect();
    if blocks.is_empty() { json!({}) } else { json!({ "block": blocks }) }
}

pub fn transaction(network: &Network, request: &Request<'_>) -> Value {
    let visible = request.params.visible();
    let Some(id) = tx_id(request) else { return json!({}) };
    if let Some((_, included)) = view(network, request).find(&id, request.solid) {
        return render::included(included, visible);
    }
    match network.nodes[request.node].pooled(&id) {
        Some(pooled) if !request.solid => {
            let mut object = render::transaction(&pooled.tx, visible);
            object.remove("visible");
            object.into()
        }
        _ => json!({}),
    }
}

pub fn info(network: &Network, request: &Request<'_>) -> Value {
    let found = tx_id(request).and_then(|id| view(network, request).find(&id, request.solid));
    match found {
        Some((block, included)) => render::info(block, included, request.params.visible()),
        None => json!({}),
    }
}

pub fn infos_of_block(network: &Network, request: &Request<'_>) -> Value {
    let wanted = number(request, "num").unwrap_or_default();
    match view(network, request).block(wanted, request.solid) {
        Some(block) => block
            .transactions
            .iter()
            .map(|included| render::info(block, included, request.params.visible()))
            .collect(),
        None => json!([]),
    }
}
