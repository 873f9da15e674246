//! A node that does not always tell the truth: a real node behind a proxy that rewrites single responses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// From method, parameters and the true response to the response that is given.
type Twist = dyn Fn(&str, &Value, Value) -> Value + Send + Sync;

#[derive(Clone)]
struct Inner {
    target: String,
    http: reqwest::Client,
    twist: Arc<Mutex<Option<Arc<Twist>>>>,
}

/// Ends when dropped.
pub(crate) struct LyingNode {
    address: SocketAddr,
    inner: Inner,
    serving: JoinHandle<()>,
}

impl LyingNode {
    /// In front of a node; it tells the truth until a lie is set.
    pub(crate) async fn before(target: String) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let inner = Inner { target, http, twist: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", post(answer)).with_state(inner.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, inner, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn lie(&self, twist: impl Fn(&str, &Value, Value) -> Value + Send + Sync + 'static) {
        *self.inner.twist.lock().unwrap() = Some(Arc::new(twist));
    }

    /// Changes the logs of every `eth_getLogs` response.
    pub(crate) fn change_logs(&self, change: impl Fn(&mut Vec<Value>) + Send + Sync + 'static) {
        self.lie(move |method, _, mut truth| {
            if method == "eth_getLogs"
                && let Some(logs) = truth["result"].as_array_mut()
            {
                change(logs);
            }
            truth
        });
    }

    pub(crate) fn tell_the_truth(&self) {
        *self.inner.twist.lock().unwrap() = None;
    }
}

impl Drop for LyingNode {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(inner): State<Inner>, Json(request): Json<Value>) -> Json<Value> {
    let sent = inner.http.post(&inner.target).json(&request).send().await;
    let truth: Value = match sent {
        Ok(response) => response.json().await.unwrap_or(Value::Null),
        Err(_) => return Json(error(&request["id"], -32000, "no backend available")),
    };
    let twist = inner.twist.lock().unwrap().clone();
    let Some(twist) = twist else { return Json(truth) };
    let one =
        |request: &Value, truth: Value| twist(request["method"].as_str().unwrap(), &request["params"], truth);
    Json(match (request, truth) {
        (Value::Array(requests), Value::Array(answers)) => {
            let by_id = |id: &Value| requests.iter().find(|request| request["id"] == *id).unwrap();
            answers.into_iter().map(|answer| one(by_id(&answer["id"].clone()), answer)).collect()
        }
        (request, truth) => one(&request, truth),
    })
}

pub(crate) fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// The blocks that a filter requests, if it requests a range.
pub(crate) fn asked(params: &Value) -> Option<(u64, u64)> {
    let bound = |name: &str| {
        let text = params[0][name].as_str()?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    Some((bound("fromBlock")?, bound("toBlock")?))
}
