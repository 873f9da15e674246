//! HTTP to one node: a deadline for each request and a bound on each answer.
//!
//! Never retries and never interprets an answer: a caller must know whether a question may have been acted on.
//!
//! It uses hyper and not reqwest, because signed bytes must never follow a redirect, because the trust rules below need a TLS
//! configuration of our own in any case, and because errors of reqwest quote the address, which may carry the key of a node.

use std::fmt;
use std::time::Duration;

use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

use crate::error::NodeError;

/// Larger answers are refused rather than held in memory; a full BSC block is well under a tenth of it.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// An idle connection beyond these is closed; more would only hold sockets of a node that is not busy.
const IDLE_CONNECTIONS: usize = 32;

/// A client of one address. Cheap to share; connections are pooled.
pub struct Http {
    base: Uri,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
}

// The address carries the API key of a hosted node.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("host", &self.base.host())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Http {
    /// `None` when the address is no http or https URL.
    pub fn new(url: &str, timeout: Duration) -> Option<Self> {
        let base: Uri = url.parse().ok()?;
        base.host()?;
        if !matches!(base.scheme_str(), Some("http" | "https")) {
            return None;
        }
        let https = connector(base.scheme_str() == Some("https"), timeout)?;
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(IDLE_CONNECTIONS).build(https);
        Some(Self { base, client, timeout })
    }

    /// Posts JSON to the address itself.
    pub async fn post(&self, body: Vec<u8>) -> Result<(StatusCode, Bytes), NodeError> {
        self.within(self.exchange(self.base.clone(), body)).await
    }

    /// Posts JSON to a path below the address; what the address says after a `?` stays at the end.
    pub async fn post_to(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), NodeError> {
        let mut parts = self.base.clone().into_parts();
        let below = self.base.path().trim_end_matches('/');
        let whole = match self.base.query() {
            Some(query) => format!("{below}{path}?{query}"),
            None => format!("{below}{path}"),
        };
        parts.path_and_query = Some(whole.parse().map_err(|_| malformed("not a path"))?);
        let uri = Uri::from_parts(parts).map_err(|_| malformed("not an address"))?;
        self.within(self.exchange(uri, body)).await
    }

    async fn within<T>(&self, asked: impl Future<Output = Result<T, NodeError>>) -> Result<T, NodeError> {
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(NodeError::Timeout {
                after_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    async fn exchange(&self, uri: Uri, body: Vec<u8>) -> Result<(StatusCode, Bytes), NodeError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| malformed(&error.to_string()))?;
        let response = self.client.request(request).await.map_err(|error| {
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
        Ok((status, answer))
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

fn malformed(reason: &str) -> NodeError {
    NodeError::Malformed { reason: reason.to_owned() }
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
