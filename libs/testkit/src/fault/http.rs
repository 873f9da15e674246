//! Requests and answers, subject to rules for single calls.
//!
//! A JSON-RPC batch is several calls: a rule that closes, holds or hangs the line takes the whole request along, a rule
//! that invents an answer replaces only its own call's.

use std::convert::Infallible;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::rule::{Decision, Fault, Rules};
use super::{Line, tcp};

/// The connection is closed without an answer.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed by the fault proxy")
    }
}

impl std::error::Error for Closed {}

#[derive(Debug)]
pub(super) struct Upstream {
    target: String,
    client: reqwest::Client,
}

impl Upstream {
    pub(super) fn new(target: String) -> Upstream {
        // One connection for each request: a kept-alive one that the server closed must not look like a fault of ours.
        let client = reqwest::Client::builder().pool_max_idle_per_host(0).no_proxy().build();
        let client = client.unwrap_or_else(|error| panic!("cannot make an HTTP client: {error}"));
        Upstream { target, client }
    }

    async fn forward(&self, call: &ProxiedCall, body: Bytes) -> Result<Response<Full<Bytes>>, Closed> {
        let url = format!("http://{}{}", self.target, call.path_and_query);
        let mut request = self.client.request(call.method.clone(), url).body(body);
        if let Some(kind) = &call.content_type {
            request = request.header(http::header::CONTENT_TYPE, kind);
        }
        let answer = request.send().await.map_err(|_| Closed)?;
        let (status, kind) = (answer.status(), answer.headers().get(http::header::CONTENT_TYPE).cloned());
        let bytes = answer.bytes().await.map_err(|_| Closed)?;
        let mut response = Response::new(Full::new(bytes));
        *response.status_mut() = status;
        if let Some(kind) = kind {
            response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        }
        Ok(response)
    }
}

/// One HTTP request, read in full.
struct ProxiedCall {
    method: Method,
    path: String,
    path_and_query: String,
    content_type: Option<http::HeaderValue>,
    body: Bytes,
}

/// One JSON-RPC call of a request with what was decided for it; a request that is no JSON-RPC counts as one call of its path.
struct Part {
    id: Value,
    request: Value,
    decision: Decision,
}

pub(super) async fn serve(
    client: TcpStream,
    upstream: &Upstream,
    rules: &Rules,
    line: watch::Receiver<Line>,
) {
    let service = service_fn(|request| {
        let mut line = line.clone();
        async move {
            let call = read(request).await.map_err(|_: hyper::Error| Closed)?;
            tcp::moving(&mut line).await.ok_or(Closed)?;
            let answer = handle(&call, upstream, rules).await?;
            match tcp::moving(&mut line).await {
                None | Some(Line::ReplyLost) => Err(Closed),
                Some(_) => Ok(answer),
            }
        }
    });
    // An error is a connection that ended, which is what this proxy is for.
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await.ok();
}

async fn read(request: Request<Incoming>) -> Result<ProxiedCall, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(ProxiedCall {
        method: head.method,
        path: head.uri.path().to_owned(),
        path_and_query: head.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        content_type: head.headers.get(http::header::CONTENT_TYPE).cloned(),
        body,
    })
}

async fn handle(
    call: &ProxiedCall,
    upstream: &Upstream,
    rules: &Rules,
) -> Result<Response<Full<Bytes>>, Closed> {
    let body: Value = serde_json::from_slice(&call.body).unwrap_or(Value::Null);
    let batch = body.is_array();
    let parts = decide(call, body, rules);
    for callback in parts.iter().filter_map(|part| part.decision.before.as_ref()) {
        callback();
    }
    for part in &parts {
        match &part.decision.fault {
            Fault::Refuse => return Err(Closed),
            Fault::Hang => match std::future::pending::<Infallible>().await {},
            Fault::Held(gate) => gate.wait().await,
            Fault::Answer { status, body } => return Ok(invented(*status, body.clone())),
            Fault::Pass
            | Fault::ReplyLost
            | Fault::ReplyHeld(_)
            | Fault::RpcResult(_)
            | Fault::RpcError { .. } => {}
        }
    }
    let answer = if parts.iter().any(|part| part.invented().is_some()) {
        partly_invented(call, &parts, batch, upstream).await?
    } else {
        upstream.forward(call, call.body.clone()).await?
    };
    for callback in parts.iter().filter_map(|part| part.decision.after.as_ref()) {
        callback();
    }
    for part in &parts {
        match &part.decision.fault {
            Fault::ReplyLost => return Err(Closed),
            Fault::ReplyHeld(gate) => gate.wait().await,
            _ => {}
        }
    }
    Ok(answer)
}

fn decide(call: &ProxiedCall, body: Value, rules: &Rules) -> Vec<Part> {
    let requests = match body {
        Value::Array(requests) => requests,
        other => vec![other],
    };
    let part = |request: Value| {
        let decision = match request["method"].as_str() {
            Some(method) if request.get("jsonrpc").is_some() => rules.decide(method, &request["params"]),
            _ => rules.decide(&call.path, &request),
        };
        Part { id: request["id"].clone(), request, decision }
    };
    requests.into_iter().map(part).collect()
}

impl Part {
    fn invented(&self) -> Option<Value> {
        let id = &self.id;
        match &self.decision.fault {
            Fault::RpcResult(result) => Some(json!({ "jsonrpc": "2.0", "id": id, "result": result })),
            Fault::RpcError { code, message } => {
                Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
            }
            _ => None,
        }
    }
}

/// Sends on what no rule answers and puts the invented answers into the rest, in the order of the calls.
async fn partly_invented(
    call: &ProxiedCall,
    parts: &[Part],
    batch: bool,
    upstream: &Upstream,
) -> Result<Response<Full<Bytes>>, Closed> {
    let real: Vec<&Value> = parts.iter().filter(|p| p.invented().is_none()).map(|p| &p.request).collect();
    let mut answers = Vec::new();
    if !real.is_empty() {
        let body = serde_json::to_vec(&real).map_err(|_| Closed)?;
        let response = upstream.forward(call, body.into()).await?;
        let bytes =
            response.into_body().collect().await.map_err(|never: Infallible| match never {})?.to_bytes();
        answers = serde_json::from_slice::<Vec<Value>>(&bytes).map_err(|_| Closed)?;
    }
    let answer_to = |part: &Part| match part.invented() {
        Some(answer) => answer,
        None => answers.iter().find(|answer| answer["id"] == part.id).cloned().unwrap_or(Value::Null),
    };
    let mut all: Vec<Value> = parts.iter().map(answer_to).collect();
    let body = if batch { Value::Array(all) } else { all.pop().unwrap_or(Value::Null) };
    Ok(invented(200, body.to_string()))
}

fn invented(status: u16, body: String) -> Response<Full<Bytes>> {
    let kind = if body.starts_with(['{', '[']) { "application/json" } else { "text/plain" };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
