//! The admin paths: time, blocks, forks, money, tokens, nodes, faults, and the oracle.
//!
//! Owns the shapes of these calls and refuses what it does not understand with 400 and a reason. None of
//! this exists on a real node; nothing outside tests may depend on it.

use alloy_primitives::U256;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Edge;
use crate::crypto::{Address, sha256};
use crate::fault::Fault;
use crate::ledger::token::{Behaviour, Token};
use crate::network::{Fork, Network};
use crate::node::NodeChange;
use crate::oracle;
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

fn address(text: &str) -> Result<Address, (StatusCode, String)> {
    Address::from_any(text).ok_or_else(|| bad(format!("{text:?} is no TRON address")))
}

fn amount(text: &str) -> Result<U256, (StatusCode, String)> {
    U256::from_str_radix(text, 10).map_err(|error| bad(format!("{text:?} is no amount: {error}")))
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fund {
    address: String,
    sun: i64,
}

async fn fund(State(edge): State<Edge>, Json(order): Json<Fund>) -> Answer {
    let to = address(&order.address)?;
    edge.lock().fund(to, order.sun);
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    address: String,
    bandwidth_limit: Option<i64>,
    energy_limit: Option<i64>,
}

async fn resources(State(edge): State<Edge>, Json(order): Json<Resources>) -> Answer {
    let of = address(&order.address)?;
    edge.lock().amend(|world| {
        if let Some(account) = world.accounts.get_mut(&of) {
            account.bandwidth_limit = order.bandwidth_limit.unwrap_or(account.bandwidth_limit);
            account.energy_limit = order.energy_limit.unwrap_or(account.energy_limit);
        }
    });
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPrices {
    energy_fee_sun: Option<i64>,
    bandwidth_fee_sun: Option<i64>,
    activation_fee_sun: Option<i64>,
    memo_fee_sun: Option<i64>,
    free_bandwidth: Option<i64>,
}

async fn prices(State(edge): State<Edge>, Json(order): Json<NewPrices>) -> Answer {
    let mut network = edge.lock();
    let prices = &mut network.prices;
    prices.energy_fee_sun = order.energy_fee_sun.unwrap_or(prices.energy_fee_sun).max(1);
    prices.bandwidth_fee_sun = order.bandwidth_fee_sun.unwrap_or(prices.bandwidth_fee_sun).max(0);
    prices.activation_fee_sun = order.activation_fee_sun.unwrap_or(prices.activation_fee_sun).max(0);
    prices.memo_fee_sun = order.memo_fee_sun.unwrap_or(prices.memo_fee_sun).max(0);
    prices.free_bandwidth = order.free_bandwidth.unwrap_or(prices.free_bandwidth).max(0);
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    /// Absent: derived from the symbol.
    address: Option<String>,
    symbol: String,
    decimals: u8,
    energy_to_holder: Option<i64>,
    energy_to_empty: Option<i64>,
}

/// The address that a token gets when none is named: the same in every run.
pub fn token_address(symbol: &str) -> Address {
    let hash = sha256(format!("tron-devnet token {symbol}").as_bytes());
    let mut body = [0; 20];
    body.copy_from_slice(&hash[..20]);
    Address::from_body(body)
}

async fn token(State(edge): State<Edge>, Json(order): Json<NewToken>) -> Answer {
    let at = match &order.address {
        Some(text) => address(text)?,
        None => token_address(&order.symbol),
    };
    edge.lock().amend(|world| {
        let token = world.tokens.entry(at).or_insert_with(|| Token::new(&order.symbol, order.decimals));
        token.energy_to_holder = order.energy_to_holder.unwrap_or(token.energy_to_holder);
        token.energy_to_empty = order.energy_to_empty.unwrap_or(token.energy_to_empty);
    });
    Ok(Json(json!({ "address": at.base58(), "hex": at.hex() })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBehaviour {
    token: String,
    behaviour: Behaviour,
    /// Only towards this destination.
    to: Option<String>,
}

async fn behaviour(State(edge): State<Edge>, Json(order): Json<NewBehaviour>) -> Answer {
    let of = address(&order.token)?;
    let to = order.to.as_deref().map(address).transpose()?;
    let mut network = edge.lock();
    if !network.chain.state(network.chain.head()).tokens.contains_key(&of) {
        return Err(bad(format!("{of} is no token")));
    }
    network.amend(|world| {
        if let Some(token) = world.tokens.get_mut(&of) {
            match to {
                Some(to) => drop(token.towards.insert(to, order.behaviour)),
                None => token.behaviour = order.behaviour,
            }
        }
    });
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mint {
    token: String,
    to: String,
    amount: String,
}

async fn mint(State(edge): State<Edge>, Json(order): Json<Mint>) -> Answer {
    let (of, to, value) = (address(&order.token)?, address(&order.to)?, amount(&order.amount)?);
    let mut network = edge.lock();
    if !network.chain.state(network.chain.head()).tokens.contains_key(&of) {
        return Err(bad(format!("{of} is no token")));
    }
    network.amend(|world| {
        if let Some(token) = world.tokens.get_mut(&of) {
            token.mint(to, value);
        }
    });
    Ok(Json(json!({})))
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
