//! What every request passes on its way to a handler.
//!
//! Owns the order of the layers and how each refuses. From the outside in:
//!
//! 1. [`call`] names the method once, so that all others agree on what is being called, and hands handlers the drain token.
//! 2. [`trace`] opens the span. Outermost of the rest, so that each refusal below happens inside the caller's trace.
//! 3. [`metrics`] counts. Outside everything that can refuse or fail, or overload would be invisible when it matters most.
//! 4. [`panic`] turns a panic into `INTERNAL`. Inside metrics, so that panics are counted as what they are; outside the rest,
//!    so that no layer of ours can take a connection down either.
//! 5. [`auth`] identifies the caller. Before the limits: it costs one hash, and a stranger must not take a slot from a caller.
//! 6. [`shed`] admits a bounded number at a time and refuses the rest at once. There is no queue: a client that waits in one
//!    has usually given up before its turn, and the work is done for nobody.
//! 7. [`timeout`] bounds the handler. Innermost, so that it measures work and nothing else, and a slot is always given back.

pub(crate) mod auth;
pub(crate) mod call;
pub(crate) mod metrics;
pub(crate) mod panic;
pub(crate) mod shed;
pub(crate) mod timeout;
pub(crate) mod trace;

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, StatusCode, header};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service, ServiceExt as _};

use self::call::Call;

pub(crate) type Req = http::Request<Body>;
pub(crate) type Res = http::Response<Body>;
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Res, Infallible>> + Send>>;

/// What a layer wraps. Nothing in the stack fails: a refusal is an answer.
pub(crate) trait Inner:
    Service<Req, Response = Res, Error = Infallible, Future: Send + 'static> + Clone + Send + Sync + 'static
{
}

impl<S> Inner for S where
    S: Service<Req, Response = Res, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// One layer as one async function, without the ceremony of hand-written futures.
pub(crate) trait Middleware: Clone + Send + Sync + 'static {
    fn handle<S: Inner>(self, request: Req, inner: S) -> impl Future<Output = Res> + Send;
}

/// A [`Middleware`] as a tower layer.
#[derive(Debug, Clone)]
pub(crate) struct Through<M>(pub(crate) M);

impl<M: Middleware, S> Layer<S> for Through<M> {
    type Service = Passing<M, S>;

    fn layer(&self, inner: S) -> Self::Service {
        Passing { middleware: self.0.clone(), inner: Shared(Arc::new(inner)) }
    }
}

/// A service behind a [`Middleware`].
#[derive(Debug, Clone)]
pub(crate) struct Passing<M, S> {
    middleware: M,
    inner: Shared<S>,
}

/// What lies further in. A clone is one count: each layer needs its own copy of the rest for as long as a request takes, and
/// copying that rest layer by layer would be done again in each.
#[derive(Debug)]
pub(crate) struct Shared<S>(Arc<S>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Inner> Service<Req> for Shared<S> {
    type Response = Res;
    type Error = Infallible;
    type Future = tower::util::Oneshot<S, Req>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        S::clone(&self.0).oneshot(request)
    }
}

impl<M: Middleware, S: Inner> Service<Req> for Passing<M, S> {
    type Response = Res;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Readiness is never a reason to wait here: limits refuse instead (see `shed`).
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let future = self.middleware.clone().handle(request, self.inner.clone());
        Box::pin(async move { Ok(future.await) })
    }
}

/// Passes a request on.
pub(crate) async fn pass<S: Inner>(mut inner: S, request: Req) -> Res {
    match inner.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// A refusal in the language of the request: gRPC trailers, or a plain HTTP status with a JSON text.
pub(crate) fn refuse(call: Call, status: Status) -> Res {
    if call.grpc {
        return status.into_http();
    }
    let code = match status.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::Unimplemented => StatusCode::NOT_FOUND,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let text = serde_json::json!({ "error": status.message() }).to_string();
    let mut response = http::Response::new(Body::new(axum::body::Body::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(delay) = crate::error::retry_after(&status) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)));
    }
    response
}
