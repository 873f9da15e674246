//! JSON-RPC 2.0 over HTTP: single calls and batches.
//!
//! There are no retries here, because the caller must know whether the node may have acted on a request. An answer is matched to its
//! question by id; an answer with another id is not used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{NodeError, RpcFault};
use crate::node::http::Http;
use crate::node::text::clean;

/// For nodes that refuse batches.
const SINGLE_CALLS_AT_ONCE: usize = 8;

#[derive(Debug, Clone, Serialize)]
pub struct RpcCall {
    pub method: &'static str,
    pub params: Value,
}

impl RpcCall {
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
    call: &'a RpcCall,
}

/// An absent result differs from `null`: `null` is an answer ("no such block"), absence is not.
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
                message: clean(&fault.message).into_owned(),
                data: fault.data.map(|data| data.get().to_owned()),
            })),
            (None, Some(result)) => Ok(Ok(result)),
            (None, None) => Err(NodeError::malformed("neither result nor error")),
        }
    }
}

/// A client of one endpoint. Cheap to share; connections are pooled.
#[derive(Debug)]
pub struct JsonRpc {
    http: Http,
    max_batch: usize,
    next_id: AtomicU64,
    /// Set if the endpoint refused a batch as such; questions are then sent one by one.
    refuses_batches: AtomicBool,
}

impl JsonRpc {
    /// `None` if the address is no http or https URL.
    pub fn new(url: &str, timeout: Duration, max_batch: usize) -> Option<Self> {
        let http = Http::new(url, timeout)?;
        let (next_id, refuses_batches) = (AtomicU64::new(1), AtomicBool::new(false));
        Some(Self { http, max_batch: max_batch.max(1), next_id, refuses_batches })
    }

    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<T, NodeError> {
        let reply = self.single(&RpcCall::new(method, params)).await??;
        read(&reply)
    }

    /// Sends many questions in as few requests as allowed. The answers are in the order of the questions.
    pub async fn batch(&self, calls: &[RpcCall]) -> Result<Vec<Reply>, NodeError> {
        let mut replies = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(self.max_batch) {
            replies.extend(self.chunk(chunk).await?);
        }
        Ok(replies)
    }

    async fn chunk(&self, calls: &[RpcCall]) -> Result<Vec<Reply>, NodeError> {
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
            // A single object as the answer to a batch is an error about the whole request.
            let response: Response = parse(&answer)?;
            return match response.into_reply()? {
                Err(fault) if is_batch_refusal(&fault) => {
                    self.refuses_batches.store(true, Ordering::Relaxed);
                    self.one_by_one(calls).await
                }
                Err(fault) => Err(fault.into()),
                Ok(_) => Err(NodeError::malformed("one result for several questions")),
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
            .map(|(id, _)| {
                by_id.remove(&id).ok_or_else(|| NodeError::malformed("an answer is missing"))?.into_reply()
            })
            .collect()
    }

    async fn one_by_one(&self, calls: &[RpcCall]) -> Result<Vec<Reply>, NodeError> {
        let waiting: Vec<_> = calls.iter().map(|call| self.single(call)).collect();
        let answers: Vec<_> = futures::stream::iter(waiting).buffered(SINGLE_CALLS_AT_ONCE).collect().await;
        answers.into_iter().collect()
    }

    async fn single(&self, call: &RpcCall) -> Result<Reply, NodeError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let answer = self.post(encode(&Envelope { jsonrpc: "2.0", id, call })?).await?;
        let response: Response = parse(&answer)?;
        // An error about an unreadable request has a null id. A result with another id belongs to another question.
        if response.error.is_none() && response.id.as_ref().and_then(Value::as_u64) != Some(id) {
            return Err(NodeError::malformed("answer to another question"));
        }
        response.into_reply()
    }

    async fn post(&self, body: Vec<u8>) -> Result<Bytes, NodeError> {
        let (status, answer) = self.http.post(body).await?;
        // Some nodes answer a JSON-RPC error with 400 or 500; the error object says more than the status.
        if !status.is_success() && !is_error_object(&answer) {
            return Err(NodeError::Http { status: status.as_u16() });
        }
        Ok(answer)
    }
}

pub fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, NodeError> {
    serde_json::from_str(raw.get()).map_err(|error| NodeError::malformed(error.to_string()))
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, NodeError> {
    serde_json::from_slice(answer).map_err(|error| NodeError::malformed(error.to_string()))
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, NodeError> {
    serde_json::to_vec(value).map_err(|error| NodeError::malformed(error.to_string()))
}

fn is_error_object(answer: &[u8]) -> bool {
    serde_json::from_slice::<Response>(answer)
        .is_ok_and(|response| response.error.is_some_and(|e| e.code != 0))
}

/// "Invalid request" and texts with "batch"; a rate limit for a batch is none of them.
fn is_batch_refusal(fault: &RpcFault) -> bool {
    fault.code == -32600 || fault.message.to_ascii_lowercase().contains("batch")
}
