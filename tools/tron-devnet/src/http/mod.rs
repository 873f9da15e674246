//! The HTTP app: java-tron's paths, the faults that befall them, and the admin paths.
//!
//! Routing, parameters (JSON body or query, as nodes accept both) and faults. Handlers hold the lock of the network while they compute
//! and never across an await.

pub mod account;
pub mod admin;
pub mod broadcast;
pub mod build;
pub mod events;
pub mod history;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::crypto::Address;
use crate::fault::{Fault, FaultKind};
use crate::network::Network;
use crate::render;

const LITE: &str = "this API is closed because this node is a lite fullnode";
const RATE_LIMIT: &str = "class java.lang.IllegalAccessException : lack of computing resources";
const LARGEST_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Which node a listener serves.
#[derive(Clone, Debug)]
pub enum NodeChoice {
    One(usize),
    /// All in turn, as behind a load balancer.
    RoundRobin(Arc<AtomicUsize>),
}

#[derive(Clone, Debug)]
pub struct AppState {
    pub network: Arc<Mutex<Network>>,
    pub choice: NodeChoice,
    /// Becomes true when the process ends, so that delayed answers do not delay the end.
    pub ending: watch::Receiver<bool>,
}

impl AppState {
    pub fn lock(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pick(&self) -> usize {
        match &self.choice {
            NodeChoice::One(node) => *node,
            NodeChoice::RoundRobin(next) => {
                let nodes = self.lock().nodes.len();
                next.fetch_add(1, Ordering::Relaxed) % nodes
            }
        }
    }

    async fn delay(&self, delay_ms: u64) {
        let mut ending = self.ending.clone();
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(delay_ms)) => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    }
}

/// The paths of one listener.
pub fn router(app: AppState) -> Router {
    Router::new()
        .route("/{side}/{call}", any(of_listener))
        .route("/nodes/{node}/{side}/{call}", any(of_node))
        .route("/v1/{kind}/{id}/events", any(events::handle))
        .merge(admin::router())
        .layer(DefaultBodyLimit::max(LARGEST_BODY_BYTES))
        .with_state(app)
}

#[derive(Debug, Default)]
pub struct Params(pub Map<String, Value>);

impl Params {
    fn read(query: Map<String, Value>, body: &[u8]) -> Result<Self, String> {
        let mut all = query;
        if !body.iter().all(u8::is_ascii_whitespace) {
            match serde_json::from_slice::<Value>(body) {
                Ok(Value::Object(object)) => all.extend(object),
                Ok(_) => return Err("class com.alibaba.fastjson.JSONException : can not cast".into()),
                Err(error) => return Err(format!("class com.alibaba.fastjson.JSONException : {error}")),
            }
        }
        Ok(Self(all))
    }

    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn int(&self, key: &str) -> Option<i64> {
        self.0.get(key).and_then(render::integer)
    }

    pub fn flag(&self, key: &str) -> bool {
        match self.0.get(key) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }

    pub fn visible(&self) -> bool {
        self.flag("visible")
    }

    pub fn address(&self, key: &str) -> Option<Address> {
        Address::from_any(self.text(key))
    }
}

/// One call on one node.
#[derive(Debug)]
pub struct Request<'a> {
    pub node: usize,
    pub solid: bool,
    pub params: &'a Params,
    pub fault: Option<FaultKind>,
}

/// Whether the state of a path is the solid one; `None` for a path that nodes do not have.
fn is_solid(side: &str) -> Option<bool> {
    match side {
        "wallet" => Some(false),
        "walletsolidity" => Some(true),
        _ => None,
    }
}

async fn of_listener(
    State(app): State<AppState>,
    Path((side, call)): Path<(String, String)>,
    Query(query): Query<Map<String, Value>>,
    body: Bytes,
) -> Response {
    match is_solid(&side) {
        Some(solid) => serve(app, call.to_ascii_lowercase(), solid, Params::read(query, &body)).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Any node through any port, so that one port is enough for all of them.
async fn of_node(
    State(app): State<AppState>,
    Path((node, side, call)): Path<(usize, String, String)>,
    query: Query<Map<String, Value>>,
    body: Bytes,
) -> Response {
    if node >= app.lock().nodes.len() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let app = AppState { choice: NodeChoice::One(node), ..app };
    of_listener(State(app), Path((side, call)), query, body).await
}

async fn serve(app: AppState, call: String, solid: bool, params: Result<Params, String>) -> Response {
    let node = app.pick();
    let fault = app.lock().nodes[node].faults.take(&call);
    if let Some(response) = fault_before(&app, fault.as_ref()).await {
        return response;
    }
    let lite = app.lock().nodes[node].lite;
    if lite && history::is_closed_on_lite(&call) {
        return LITE.into_response();
    }
    let answer = match &params {
        Err(text) => Some(json!({ "Error": text })),
        Ok(params) => {
            let request = Request { node, solid, params, fault: fault.as_ref().map(|fault| fault.kind) };
            dispatch(&mut app.lock(), &call, &request)
        }
    };
    let Some(answer) = answer else {
        return StatusCode::NOT_FOUND.into_response();
    };
    fault_after(&app, fault.as_ref(), answer).await
}

/// The faults that happen before the node has done anything.
async fn fault_before(app: &AppState, fault: Option<&Fault>) -> Option<Response> {
    let fault = fault?;
    match fault.kind {
        FaultKind::Timeout => {
            app.delay(fault.delay_ms).await;
            Some(StatusCode::GATEWAY_TIMEOUT.into_response())
        }
        FaultKind::BadGateway => Some(bad_gateway()),
        FaultKind::RateLimit => Some(respond(json!({ "Error": RATE_LIMIT }).to_string())),
        FaultKind::Lite => Some(LITE.into_response()),
        FaultKind::Empty => Some(respond("{}".to_owned())),
        FaultKind::AcceptTimeout
        | FaultKind::Accept502
        | FaultKind::Truncated
        | FaultKind::Slow
        | FaultKind::Hollow
        | FaultKind::P2pFailed
        | FaultKind::Lost
        | FaultKind::Forgotten
        | FaultKind::OtherError
        | FaultKind::Busy
        | FaultKind::NoConnection
        | FaultKind::Unsolidified => None,
    }
}

/// The faults that change an answer which the node has already given.
async fn fault_after(app: &AppState, fault: Option<&Fault>, answer: Value) -> Response {
    let text = answer.to_string();
    let Some(fault) = fault else {
        return respond(text);
    };
    match fault.kind {
        FaultKind::AcceptTimeout => {
            app.delay(fault.delay_ms).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        FaultKind::Accept502 => bad_gateway(),
        // The answers are ASCII, so that half of one is still text.
        FaultKind::Truncated => respond(text.chars().take(text.len() / 2).collect()),
        FaultKind::Slow => {
            app.delay(fault.delay_ms).await;
            respond(text)
        }
        FaultKind::Hollow => respond(hollow(answer).to_string()),
        FaultKind::Timeout
        | FaultKind::BadGateway
        | FaultKind::RateLimit
        | FaultKind::Lite
        | FaultKind::Empty
        | FaultKind::P2pFailed
        | FaultKind::Lost
        | FaultKind::Forgotten
        | FaultKind::OtherError
        | FaultKind::Busy
        | FaultKind::NoConnection
        | FaultKind::Unsolidified => respond(text),
    }
}

/// A block, or a list of them, without transactions.
fn hollow(mut answer: Value) -> Value {
    let cut = |block: &mut Value| drop(block.as_object_mut().and_then(|block| block.remove("transactions")));
    answer.get_mut("block").and_then(Value::as_array_mut).into_iter().flatten().for_each(cut);
    cut(&mut answer);
    answer
}

fn bad_gateway() -> Response {
    (StatusCode::BAD_GATEWAY, "<html><head><title>502 Bad Gateway</title></head></html>").into_response()
}

fn respond(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json;charset=utf-8")], text).into_response()
}

/// `None` for a path that the node does not have.
fn dispatch(network: &mut Network, call: &str, request: &Request<'_>) -> Option<Value> {
    let of_both = match call {
        "getnowblock" => history::now_block(network, request),
        "getblock" => history::block(network, request),
        "getblockbynum" => history::block_by_num(network, request),
        "getblockbyid" => history::block_by_id(network, request),
        "getblockbylimitnext" => history::block_range(network, request),
        "gettransactionbyid" => history::transaction(network, request),
        "gettransactioninfobyid" => history::info(network, request),
        "gettransactioninfobyblocknum" => history::infos_of_block(network, request),
        "getaccount" => account::account(network, request),
        "getnodeinfo" => account::node_info(network, request),
        "triggerconstantcontract" => build::constant(network, request),
        "estimateenergy" => build::estimate(network, request),
        _ if request.solid => return None,
        "broadcasthex" => broadcast::hex(network, request),
        "broadcasttransaction" => broadcast::json(network, request),
        "createtransaction" => build::create(network, request),
        "triggersmartcontract" => build::trigger(network, request),
        "getsignweight" => broadcast::sign_weight(network, request),
        "getaccountresource" => account::resource(network, request),
        "getaccountnet" => account::bandwidth(network, request),
        "getchainparameters" => account::chain_parameters(network),
        "validateaddress" => account::validate_address(request),
        "getcontract" => account::contract(network, request),
        _ => return None,
    };
    Some(of_both)
}
