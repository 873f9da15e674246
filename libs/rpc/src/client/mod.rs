//! Calling another service.
//!
//! Owns what every call needs: the key, the trace, a deadline, and retries of calls whose contract says that this is
//! harmless. It never retries any other call: after an unclear failure only the caller knows what has to be found out first.
//!
//! Invariants: every unary call ends within its deadline, all retries included; the deadline travels with the call, so that the
//! server stops working when nobody waits any more.

mod retry;

use std::{
    error::Error as _,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use tokio::time::Instant;
use tonic::{
    Code, Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service, ServiceExt as _};
use tracing::{Instrument as _, field::Empty};

pub use self::retry::RetryConfig;
use crate::{
    body::{Deadline, code_in, deadline_exceeded},
    error,
    layer::{Req, Res, timeout, trace::name},
    method::{self, Method},
    secret::Secret,
    tls::{self, ClientTls, TlsError},
};

const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);

/// How to reach a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    /// Our API key there.
    pub api_key: Option<Secret>,
    /// Certificates for an https address.
    pub tls: Option<ClientTls>,
    /// Longest time for a call, retries included, when the caller sets no deadline of its own.
    pub timeout_ms: u64,
    pub connect_timeout_ms: u64,
    pub retry: RetryConfig,
}

impl ClientConfig {
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            api_key: None,
            tls: None,
            timeout_ms: 10_000,
            connect_timeout_ms: 3_000,
            retry: RetryConfig::default(),
        }
    }

    #[must_use]
    pub fn with_key(mut self, key: Secret) -> Self {
        self.api_key = Some(key);
        self
    }
}

/// Why a client could not be made. Being unable to connect is not among the reasons: each call connects if it has to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{0}` is not an address such as http://host:port")]
    Url(String),
    #[error("the API key for {0} has characters that cannot be sent")]
    Key(String),
    #[error("cannot set up TLS to {url}")]
    Tls { url: String, source: TlsError },
    #[error("cannot set up a channel to {url}")]
    Channel { url: String, source: tonic::transport::Error },
}

struct Shared {
    url: String,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    retry: RetryConfig,
}

/// A channel to one service. Cheap to clone; hand it to a generated client's `new`.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    shared: Arc<Shared>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.shared.url).finish_non_exhaustive()
    }
}

/// A client that connects on first use and again whenever the connection is lost. Call it inside a Tokio runtime.
///
/// # Errors
/// When the settings cannot be used.
pub fn connect_lazy(config: &ClientConfig) -> Result<Client, ClientError> {
    let url = || config.url.clone();
    let uri: http::Uri = config.url.parse().map_err(|_| ClientError::Url(url()))?;
    let https = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(ClientError::Url(url())),
    };
    let mut endpoint = Endpoint::from_shared(url())
        .map_err(|_| ClientError::Url(url()))?
        .connect_timeout(Duration::from_millis(config.connect_timeout_ms))
        .tcp_nodelay(true)
        // Also while idle: a dead peer must be noticed before the next call runs into it.
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true);
    let tls =
        tls::client(config.tls.as_ref(), https).map_err(|source| ClientError::Tls { url: url(), source })?;
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).map_err(|source| ClientError::Channel { url: url(), source })?;
    }
    let authorization = match &config.api_key {
        None => None,
        Some(key) => {
            let text = zeroize::Zeroizing::new(format!("Bearer {}", key.expose()));
            let mut value = HeaderValue::from_str(&text).map_err(|_| ClientError::Key(url()))?;
            value.set_sensitive(true);
            Some(value)
        }
    };
    let shared = Shared {
        url: url(),
        authorization,
        timeout: Duration::from_millis(config.timeout_ms),
        retry: config.retry.clone(),
    };
    Ok(Client { channel: endpoint.connect_lazy(), shared: Arc::new(shared) })
}

impl Service<Req> for Client {
    type Response = Res;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Res, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Each attempt waits for the channel itself, within the call's deadline.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let client = self.clone();
        let method = method::find(request.uri().path());
        let (service, name) =
            method.map_or(("unknown", "unknown"), |m| (m.service.as_str(), m.name.as_str()));
        let span = tracing::info_span!(
            "rpc.client",
            otel.name = request.uri().path(),
            otel.kind = "client",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = name,
            code = Empty,
            attempts = Empty,
        );
        Box::pin(client.run(request, method).instrument(span))
    }
}

impl Client {
    async fn run(self, mut request: Req, method: Option<&'static Method>) -> Result<Res, Status> {
        let started = Instant::now();
        let requested = timeout::requested(request.headers());
        let limit = requested.unwrap_or(self.shared.timeout);
        let until = started + limit;
        if let Some(value) = &self.shared.authorization {
            // A key set on the request itself wins: a caller may act for somebody else.
            request.headers_mut().entry(AUTHORIZATION).or_insert_with(|| value.clone());
        }
        telemetry::propagation::inject(request.headers_mut());
        let unary = method.is_some_and(Method::unary);
        let retryable =
            unary && method.is_some_and(|method| method.safe) && self.shared.retry.max_attempts > 1;
        let outcome = if retryable {
            self.with_retries(request, until, limit).await
        } else {
            // A stream has the deadline that its caller set, or none.
            self.attempt(request, until, limit, unary).await
        };
        observe(method, started, &outcome);
        let response = outcome?;
        Ok(if unary { response.map(|body| Body::new(Deadline::new(body, until, limit))) } else { response })
    }

    /// One try. A single-message call carries what is left of its time, so that the server knows when to stop.
    async fn attempt(
        &self,
        mut request: Req,
        until: Instant,
        limit: Duration,
        send_deadline: bool,
    ) -> Result<Res, Status> {
        if send_deadline {
            let left = until.saturating_duration_since(Instant::now());
            request.headers_mut().insert(timeout::GRPC_TIMEOUT, timeout::header(left));
        }
        match tokio::time::timeout_at(until, self.channel.clone().oneshot(request)).await {
            Ok(Ok(response)) => Ok(response),
            // The channel reads the same header and may give up a moment before we do, under another name.
            Ok(Err(error)) if ran_out_of_time(&error) => Err(deadline_exceeded(limit)),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(deadline_exceeded(limit)),
        }
    }

    /// Tries a safe call again, with growing pauses, until it is answered for good or time is up.
    async fn with_retries(&self, request: Req, until: Instant, limit: Duration) -> Result<Res, Status> {
        let (parts, body) = request.into_parts();
        let body: Bytes = body.collect().await?.to_bytes();
        let mut tries = 0;
        loop {
            tries += 1;
            tracing::Span::current().record("attempts", tries);
            let copy = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
            let outcome = self.attempt(copy, until, limit, true).await;
            let Some(status) = refusal(&outcome) else { return outcome };
            let Some(pause) = self.shared.retry.pause(tries, &status) else { return outcome };
            if Instant::now() + pause >= until {
                return outcome;
            }
            tracing::debug!(tries, code = name(status.code()), ?pause, "retrying the call");
            metrics::counter!("bursar_rpc_client_retries_total", "code" => name(status.code())).increment(1);
            tokio::time::sleep(pause).await;
        }
    }

    fn unreachable(&self, failure: tonic::transport::Error) -> Status {
        let mut status = Status::from_error(Box::new(failure));
        if status.code() == Code::Unknown || status.code() == Code::Unavailable {
            // "transport error" alone sends people searching; the address and the reason do not.
            let cause = status.source().map_or_else(|| status.message().to_owned(), error::chain);
            status = Status::unavailable(format!("cannot reach {}: {cause}", self.shared.url));
        }
        status
    }
}

fn ran_out_of_time(error: &tonic::transport::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.is::<tonic::TimeoutExpired>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The error in an outcome: a failed attempt, or a response that is an error from its first byte.
fn refusal(outcome: &Result<Res, Status>) -> Option<Status> {
    match outcome {
        Err(status) => Some(status.clone()),
        Ok(response) => {
            Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
        }
    }
}

fn observe(method: Option<&'static Method>, started: Instant, outcome: &Result<Res, Status>) {
    let code = match outcome {
        Ok(response) => code_in(response.headers()).unwrap_or(Code::Ok),
        Err(status) => status.code(),
    };
    tracing::Span::current().record("code", name(code));
    let (service, method) = method.map_or(("unknown", "unknown"), |m| (m.service.as_str(), m.name.as_str()));
    metrics::counter!(
        "bursar_rpc_client_requests_total", "service" => service, "method" => method, "code" => name(code)
    )
    .increment(1);
    metrics::histogram!("bursar_rpc_client_duration_seconds", "service" => service, "method" => method)
        .record(started.elapsed().as_secs_f64());
}
