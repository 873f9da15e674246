//! The admin paths: time, blocks, forks, money, tokens, nodes, faults, and the oracle.
//!
//! A request that cannot be read is refused with 400 and a reason. A real node has none of these paths, so only tests may use them.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AppState;
use crate::fault::Fault;
use crate::network::{Fork, Network};
use crate::node::NodeChange;
use crate::oracle;
use crate::order::{Fund, Mint, NewBehaviour, NewPrices, NewToken, Order, Resources};
use crate::wire::TxId;

type AdminResult = Result<Json<Value>, (StatusCode, String)>;

pub fn router() -> Router<AppState> {
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
    bytes.ok_or_else(|| bad(format!("{text:?} is not a txID")))
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

async fn state(State(app): State<AppState>) -> AdminResult {
    Ok(Json(summary(&app.lock())))
}

async fn payments(State(app): State<AppState>, Query(query): Query<oracle::PaymentFilter>) -> AdminResult {
    oracle::payments(&app.lock().chain, &query).map(Json).map_err(bad)
}

#[derive(Debug, Deserialize)]
struct OfTx {
    txid: String,
    node: Option<usize>,
}

async fn transaction(State(app): State<AppState>, Query(query): Query<OfTx>) -> AdminResult {
    let id = tx_id(&query.txid)?;
    Ok(Json(oracle::transaction(&app.lock(), &id)))
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

async fn produce(State(app): State<AppState>, Json(order): Json<Produce>) -> AdminResult {
    let mut network = app.lock();
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

async fn miss(State(app): State<AppState>, Json(order): Json<Miss>) -> AdminResult {
    let mut network = app.lock();
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

async fn mining(State(app): State<AppState>, Json(order): Json<Mining>) -> AdminResult {
    let mut network = app.lock();
    network.include = order.include.unwrap_or(network.include);
    network.manual = order.manual.unwrap_or(network.manual);
    Ok(Json(summary(&network)))
}

async fn fork(State(app): State<AppState>, Json(order): Json<Fork>) -> AdminResult {
    let mut network = app.lock();
    for node in &order.keep_on {
        known(&network, *node)?;
    }
    network.fork(&order).map_err(bad)?;
    Ok(Json(summary(&network)))
}

async fn drop_pending(State(app): State<AppState>, Json(order): Json<OfTx>) -> AdminResult {
    let id = tx_id(&order.txid)?;
    app.lock().drop_pending(&id, order.node);
    Ok(Json(json!({})))
}

/// Carries out an order that changes the world or the prices, and writes it to the journal.
fn order(app: &AppState, order: Order) -> AdminResult {
    app.lock().order(order).map(Json).map_err(bad)
}

async fn fund(State(app): State<AppState>, Json(body): Json<Fund>) -> AdminResult {
    order(&app, Order::Fund(body))
}

async fn resources(State(app): State<AppState>, Json(body): Json<Resources>) -> AdminResult {
    order(&app, Order::Resources(body))
}

async fn prices(State(app): State<AppState>, Json(body): Json<NewPrices>) -> AdminResult {
    order(&app, Order::Prices(body))
}

async fn token(State(app): State<AppState>, Json(body): Json<NewToken>) -> AdminResult {
    order(&app, Order::Token(body))
}

async fn behaviour(State(app): State<AppState>, Json(body): Json<NewBehaviour>) -> AdminResult {
    order(&app, Order::Behaviour(body))
}

async fn mint(State(app): State<AppState>, Json(body): Json<Mint>) -> AdminResult {
    order(&app, Order::Mint(body))
}

async fn node(State(app): State<AppState>, Json(change): Json<NodeChange>) -> AdminResult {
    let mut network = app.lock();
    known(&network, change.node)?;
    let Network { nodes, chain, .. } = &mut *network;
    nodes[change.node].change(&change, chain);
    Ok(Json(summary(&network)))
}

async fn fault(State(app): State<AppState>, Json(order): Json<Fault>) -> AdminResult {
    let mut network = app.lock();
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

async fn clear_faults(State(app): State<AppState>) -> AdminResult {
    for node in &mut app.lock().nodes {
        node.faults.clear();
    }
    Ok(Json(json!({})))
}
