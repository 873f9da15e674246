//! JSON-RPC 2.0 over HTTP: single calls and batches, with a deadline for each request and a bound on each answer.
//!
//! Never retries and never interprets an error: a caller must know whether a question may have been acted on. An
//! answer is matched to its question by id, and one that is missing or has another id is not used.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{NodeError, RpcFault};

/// Larger answers are refused rather than held in memory; a full BSC block is well under a tenth of it.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// For nodes that take no batches.
const SINGLE_CALLS_AT_ONCE: usize = 8;
/// An idle connection beyond these is closed; more would only hold sockets of a node that is not busy.
const IDLE_CONNECTIONS: usize = 32;

/// One question.
#[derive(Debug, Clone, Serialize)]
pub struct Call {
    pub method: &'static str,
    pub params: Value,
}

impl Call {
    pub fn new(method: &'static str, params: Value) -> Self {
        Self { method, params }
    }
}

/// The answer to one question of a batch.
pub type Reply = Result<Box<RawValue>, RpcFault>;

#[derive(Serialize)]
struct Envelope<'a> {
    jsonrpc: &'static str,
    id: u64,
    #[serde(flatten)]
    call: &'a Call,
}

/// Absent and `null` results must be told apart: `null` is an answer ("no such block"), absence is not.
#[derive(Deserialize)]
struct Response {
    id: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    data: Option<Box<RawValue>>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Response {
    fn into_reply(self) -> Result<Reply, NodeError> {
        match (self.error, self.result) {
            (Some(fault), _) => Ok(Err(RpcFault {
                code: fault.code,
                message: fault.message,
                data: fault.data.map(|data| data.get().to_owned()),
            })),
            (None, Some(result)) => Ok(Ok(result)),
            (None, None) => Err(malformed("neither result nor error")),
        }
    }
}

/// A client of one endpoint. Cheap to share; connections are pooled.
pub struct JsonRpc {
    uri: Uri,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
    max_batch: usize,
    next_id: AtomicU64,
    /// Set when the endpoint refused a batch as such; questions then go one by one.
    refuses_batches: AtomicBool,
}

// The address carries the API key of a hosted node.
impl fmt::Debug for JsonRpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonRpc")
            .field("host", &self.uri.host())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl JsonRpc {
    /// `None` when the address is no http or https URL.
    pub fn new(url: &str, timeout: Duration, max_batch: usize) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        uri.host()?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return None;
        }
        let https = connector(uri.scheme_str() == Some("https"), timeout)?;
        let http =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(IDLE_CONNECTIONS).build(https);
        let (next_id, refuses_batches) = (AtomicU64::new(1), AtomicBool::new(false));
        Some(Self { uri, http, timeout, max_batch: max_batch.max(1), next_id, refuses_batches })
    }

    /// One question, its answer read as `T`.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<T, NodeError> {
        let reply = self.single(&Call::new(method, params)).await??;
        read(&reply)
    }

    /// Many questions in as few requests as allowed; answers in the order of the questions.
    pub async fn batch(&self, calls: &[Call]) -> Result<Vec<Reply>, NodeError> {
        let mut replies = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(self.max_batch) {
            replies.extend(self.chunk(chunk).await?);
        }
        Ok(replies)
    }

    async fn chunk(&self, calls: &[Call]) -> Result<Vec<Reply>, NodeError> {
        if let [call] = calls {
            return Ok(vec![self.single(call).await?]);
        }
        if self.refuses_batches.load(Ordering::Relaxed) {
            return self.one_by_one(calls).await;
        }
        let first = self.next_id.fetch_add(calls.len() as u64, Ordering::Relaxed);
        let envelopes: Vec<_> =
            (first..).zip(calls).map(|(id, call)| Envelope { jsonrpc: "2.0", id, call }).collect();
        let answer = self.post(encode(&envelopes)?).await?;
        if answer.first() == Some(&b'{') {
            // A single object in answer to a batch: an error about the request as a whole.
            let response: Response = parse(&answer)?;
            return match response.into_reply()? {
                Err(fault) if is_batch_refusal(&fault) => {
                    self.refuses_batches.store(true, Ordering::Relaxed);
                    self.one_by_one(calls).await
                }
                Err(fault) => Err(fault.into()),
                Ok(_) => Err(malformed("one result for several questions")),
            };
        }
        let responses: Vec<Response> = parse(&answer)?;
        let mut by_id: HashMap<u64, Response> = HashMap::with_capacity(responses.len());
        for response in responses {
            if let Some(id) = response.id.as_ref().and_then(Value::as_u64) {
                by_id.insert(id, response);
            }
        }
        (first..)
            .zip(calls)
            .map(|(id, _)| by_id.remove(&id).ok_or_else(|| malformed("an answer is missing"))?.into_reply())
            .collect()
    }

    async fn one_by_one(&self, calls: &[Call]) -> Result<Vec<Reply>, NodeError> {
        let waiting: Vec<_> = calls.iter().map(|call| self.single(call)).collect();
        let answers: Vec<_> = futures::stream::iter(waiting).buffered(SINGLE_CALLS_AT_ONCE).collect().await;
        answers.into_iter().collect()
    }

    async fn single(&self, call: &Call) -> Result<Reply, NodeError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let answer = self.post(encode(&Envelope { jsonrpc: "2.0", id, call })?).await?;
        let response: Response = parse(&answer)?;
        // Errors about an unreadable request carry a null id; a result under another id is somebody else's.
        if response.error.is_none() && response.id.as_ref().and_then(Value::as_u64) != Some(id) {
            return Err(malformed("answer to another question"));
        }
        response.into_reply()
    }

    async fn post(&self, body: Vec<u8>) -> Result<Bytes, NodeError> {
        match tokio::time::timeout(self.timeout, self.exchange(body)).await {
            Ok(answer) => answer,
            Err(_) => Err(NodeError::Timeout {
                after_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<Bytes, NodeError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| malformed(&error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| {
            let reason = chain_of(&error);
            if error.is_connect() {
                NodeError::Unreachable { reason }
            } else {
                NodeError::Interrupted { reason }
            }
        })?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|error| NodeError::Interrupted { reason: error.to_string() })?
            .to_bytes();
        // Some nodes answer a JSON-RPC error with 400 or 500; the error object says more than the status.
        if !status.is_success() && !is_error_object(&answer) {
            return Err(NodeError::Http { status: status.as_u16() });
        }
        Ok(answer)
    }
}

/// Trusts what the machine trusts, which includes a company's own authority; where the machine has no list of
/// authorities, as in a bare container, Mozilla's.
fn connector(encrypted: bool, timeout: Duration) -> Option<HttpsConnector<HttpConnector>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    let ring = rustls::crypto::ring::default_provider;
    let native = encrypted
        .then(|| HttpsConnectorBuilder::new().with_provider_and_native_roots(ring()))
        .and_then(|built| built.inspect_err(|error| tracing::warn!(%error, "no system certificates")).ok());
    let builder = match native {
        Some(builder) => builder,
        None => HttpsConnectorBuilder::new().with_provider_and_webpki_roots(ring()).ok()?,
    };
    Some(builder.https_or_http().enable_http1().wrap_connector(tcp))
}

/// Reads one answer as `T`.
pub fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, NodeError> {
    serde_json::from_str(raw.get()).map_err(|error| malformed(&error.to_string()))
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, NodeError> {
    serde_json::from_slice(answer).map_err(|error| malformed(&error.to_string()))
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, NodeError> {
    serde_json::to_vec(value).map_err(|error| malformed(&error.to_string()))
}

fn malformed(reason: &str) -> NodeError {
    NodeError::Malformed { reason: reason.to_owned() }
}

fn is_error_object(answer: &[u8]) -> bool {
    serde_json::from_slice::<Response>(answer)
        .is_ok_and(|response| response.error.is_some_and(|e| e.code != 0))
}

/// "Invalid request" and "batch" wordings; a rate limit on a batch is not one of them.
fn is_batch_refusal(fault: &RpcFault) -> bool {
    fault.code == -32600 || fault.message.to_ascii_lowercase().contains("batch")
}

/// The error and its causes, without the request's address.
fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
