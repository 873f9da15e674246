//! The admin paths: time, blocks, forks, money, tokens, nodes, faults, and the oracle.
//!
//! Owns the shapes of these calls and refuses what it does not understand with 400 and a reason. None of
//! this exists on a real node; nothing outside tests may depend on it.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Edge;
use crate::fault::Fault;
use crate::network::{Fork, Network};
use crate::node::NodeChange;
use crate::oracle;
use crate::order::{Fund, Mint, NewBehaviour, NewPrices, NewToken, Order, Resources};
use crate::wire::TxId;

type Answer = Result<Json<Value>, (StatusCode, String)>;

pub fn router() -> Router<Edge> {
    Router::new()
        .route("/admin/state", get(state))
        .route("/admin/payments", get(payments))
        .route("/admin/transaction", get(transaction))
        .route("/admin/produce", post(produce))
        .route("/admin/miss", post(miss))
        .route("/admin/mining", post(mining))
        .route("/admin/fork", post(fork))
        .route("/admin/drop", post(drop_pending))
        .route("/admin/fund", post(fund))
        .route("/admin/resources", post(resources))
        .route("/admin/prices", post(prices))
        .route("/admin/token", post(token))
        .route("/admin/behaviour", post(behaviour))
        .route("/admin/mint", post(mint))
        .route("/admin/node", post(node))
        .route("/admin/fault", post(fault))
        .route("/admin/faults/clear", post(clear_faults))
}

fn bad(text: impl Into<String>) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, text.into())
}

fn tx_id(text: &str) -> Result<TxId, (StatusCode, String)> {
    let bytes = hex::decode(text).ok().and_then(|bytes| TxId::try_from(bytes).ok());
    bytes.ok_or_else(|| bad(format!("{text:?} is no txID")))
}

fn known(network: &Network, node: usize) -> Result<(), (StatusCode, String)> {
    if node < network.nodes.len() { Ok(()) } else { Err(bad(format!("there is no node {node}"))) }
}

fn summary(network: &Network) -> Value {
    let nodes: Vec<Value> = network
        .nodes
        .iter()
        .map(|node| {
            let view = node.view(&network.chain);
            json!({
                "head": view.head().number,
                "solid": view.solid().number,
                "pool": node.pool.len(),
                "faults": node.faults.len(),
                "on_losing_branch": node.is_on_losing_branch(),
            })
        })
        .collect();
    let head = network.chain.head();
    json!({
        "head": head.number,
        "head_id": hex::encode(head.id),
        "head_timestamp": head.timestamp_ms,
        "solid": network.chain.solid(),
        "time": network.time_ms(),
        "slot_ms": network.slot_ms,
        "manual": network.manual,
        "producers_pool": network.pool.len(),
        "nodes": nodes,
    })
}

async fn state(State(edge): State<Edge>) -> Answer {
    Ok(Json(summary(&edge.lock())))
}

async fn payments(State(edge): State<Edge>, Query(query): Query<oracle::Question>) -> Answer {
    oracle::payments(&edge.lock().chain, &query).map(Json).map_err(bad)
}

#[derive(Debug, Deserialize)]
struct OfTx {
    txid: String,
    node: Option<usize>,
}

async fn transaction(State(edge): State<Edge>, Query(query): Query<OfTx>) -> Answer {
    let id = tx_id(&query.txid)?;
    Ok(Json(oracle::transaction(&edge.lock(), &id)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Produce {
    blocks: u32,
    /// Slots missed before the first block.
    missed: u64,
}

impl Default for Produce {
    fn default() -> Self {
        Self { blocks: 1, missed: 0 }
    }
}

async fn produce(State(edge): State<Edge>, Json(order): Json<Produce>) -> Answer {
    let mut network = edge.lock();
    network.miss(order.missed);
    for _ in 0..order.blocks.min(100_000) {
        network.produce_next();
    }
    Ok(Json(summary(&network)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Miss {
    slots: u64,
}

async fn miss(State(edge): State<Edge>, Json(order): Json<Miss>) -> Answer {
    let mut network = edge.lock();
    network.miss(order.slots);
    Ok(Json(summary(&network)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mining {
    /// False: blocks stay empty.
    include: Option<bool>,
    /// True: blocks come by admin calls only.
    manual: Option<bool>,
}

async fn mining(State(edge): State<Edge>, Json(order): Json<Mining>) -> Answer {
    let mut network = edge.lock();
    network.include = order.include.unwrap_or(network.include);
    network.manual = order.manual.unwrap_or(network.manual);
    Ok(Json(summary(&network)))
}

async fn fork(State(edge): State<Edge>, Json(order): Json<Fork>) -> Answer {
    let mut network = edge.lock();
    for node in &order.keep_on {
        known(&network, *node)?;
    }
    network.fork(&order).map_err(bad)?;
    Ok(Json(summary(&network)))
}

async fn drop_pending(State(edge): State<Edge>, Json(order): Json<OfTx>) -> Answer {
    let id = tx_id(&order.txid)?;
    edge.lock().drop_pending(&id, order.node);
    Ok(Json(json!({})))
}

/// Carries out an order that changes the world or the prices, and keeps it for the next start.
fn order(edge: &Edge, order: Order) -> Answer {
    edge.lock().order(order).map(Json).map_err(bad)
}

async fn fund(State(edge): State<Edge>, Json(body): Json<Fund>) -> Answer {
    order(&edge, Order::Fund(body))
}

async fn resources(State(edge): State<Edge>, Json(body): Json<Resources>) -> Answer {
    order(&edge, Order::Resources(body))
}

async fn prices(State(edge): State<Edge>, Json(body): Json<NewPrices>) -> Answer {
    order(&edge, Order::Prices(body))
}

async fn token(State(edge): State<Edge>, Json(body): Json<NewToken>) -> Answer {
    order(&edge, Order::Token(body))
}

async fn behaviour(State(edge): State<Edge>, Json(body): Json<NewBehaviour>) -> Answer {
    order(&edge, Order::Behaviour(body))
}

async fn mint(State(edge): State<Edge>, Json(body): Json<Mint>) -> Answer {
    order(&edge, Order::Mint(body))
}

async fn node(State(edge): State<Edge>, Json(change): Json<NodeChange>) -> Answer {
    let mut network = edge.lock();
    known(&network, change.node)?;
    let Network { nodes, chain, .. } = &mut *network;
    nodes[change.node].change(&change, chain);
    Ok(Json(summary(&network)))
}

async fn fault(State(edge): State<Edge>, Json(order): Json<Fault>) -> Answer {
    let mut network = edge.lock();
    if let Some(node) = order.node {
        known(&network, node)?;
    }
    for (number, node) in network.nodes.iter_mut().enumerate() {
        if order.node.is_none_or(|wanted| wanted == number) {
            node.faults.push(order.clone());
        }
    }
    Ok(Json(json!({})))
}

async fn clear_faults(State(edge): State<Edge>) -> Answer {
    for node in &mut edge.lock().nodes {
        node.faults.clear();
    }
    Ok(Json(json!({})))
}
