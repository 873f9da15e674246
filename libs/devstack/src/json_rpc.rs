//! The JSON-RPC client of everything that is not on the path of money: development tools, benchmarks and tests.
//!
//! The services have clients of their own in `libs/chain` and the indexer, because what a node says decides about money there.

use std::time::Duration;

use serde_json::{Value, json};

use crate::patience::Patience;

/// A call on a busy machine may take long; one that takes longer than this is lost.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum JsonRpcError {
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("{method}: the node did not answer")]
    NoAnswer {
        method: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{method}: {message}")]
    Refused { method: String, message: String },
    #[error("transaction {0} was not mined in time")]
    NotMined(Value),
    #[error("transaction {0} reverted")]
    Reverted(Value),
}

#[derive(Debug, Clone)]
pub struct JsonRpc {
    url: String,
    http: reqwest::Client,
}

impl JsonRpc {
    pub fn new(url: impl Into<String>) -> Result<Self, JsonRpcError> {
        // A proxy that the machine's environment names cannot reach our loopback.
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
        Ok(Self { url: url.into(), http: http.map_err(JsonRpcError::Client)? })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn call(&self, method: &str, params: Value) -> Result<Value, JsonRpcError> {
        result_of(method, self.post(method, &request(0, method, &params)).await?)
    }

    /// Sends calls of one method together. The results are in the order of the parameters; one refused call fails them all.
    pub async fn batch(&self, method: &str, params: &[Value]) -> Result<Vec<Value>, JsonRpcError> {
        let requests = params.iter().enumerate().map(|(id, params)| request(id, method, params));
        let answers = self.post(method, &requests.collect()).await?;
        let Value::Array(mut answers) = answers else {
            return result_of(method, answers).map(|one| vec![one]);
        };
        answers.sort_by_key(|answer| answer["id"].as_u64());
        answers.into_iter().map(|answer| result_of(method, answer)).collect()
    }

    /// Waits until the transaction is in a block and returns its receipt. A transaction that reverted is an error.
    pub async fn receipt(&self, hash: &Value, limit: Duration) -> Result<Value, JsonRpcError> {
        let mut patience = Patience::of(limit);
        loop {
            let receipt = self.call("eth_getTransactionReceipt", json!([hash])).await?;
            if receipt["status"] == "0x1" {
                return Ok(receipt);
            }
            if !receipt.is_null() {
                return Err(JsonRpcError::Reverted(hash.clone()));
            }
            if patience.is_over() {
                return Err(JsonRpcError::NotMined(hash.clone()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn post(&self, method: &str, body: &Value) -> Result<Value, JsonRpcError> {
        let answer = async { self.http.post(&self.url).json(body).send().await?.json().await };
        answer.await.map_err(|source| JsonRpcError::NoAnswer { method: method.to_owned(), source })
    }
}

fn request(id: usize, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn result_of(method: &str, mut answer: Value) -> Result<Value, JsonRpcError> {
    match answer.get("error") {
        None | Some(Value::Null) => Ok(answer["result"].take()),
        Some(error) => {
            // The node's own words; an error without a message is shown whole.
            let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
            Err(JsonRpcError::Refused { method: method.to_owned(), message })
        }
    }
}
