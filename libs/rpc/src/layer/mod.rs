//! What every request passes on its way to a handler.
//!
//! Owns the order of the layers and how each refuses. From the outside in:
//!
//! 1. [`target`] names the method once, so that all others agree on what is being called, and hands handlers the drain token.
//! 2. [`trace`] opens the span. Outermost of the rest, so that each refusal below happens inside the caller's trace.
//! 3. [`metrics`] counts. Outside everything that can refuse or fail, or overload would be invisible when it matters most.
//! 4. [`panic`] turns a panic into `INTERNAL`. Inside metrics, so that panics are counted as what they are; outside the rest,
//!    so that no layer of ours can take a connection down either.
//! 5. [`auth`] identifies the caller. Before the limits: it costs one hash, and a stranger must not take a slot from a caller.
//! 6. [`limit`] admits a bounded number at a time and refuses the rest at once. There is no queue: a client that waits in one
//!    has usually given up before its turn, and the work is done for nobody.
//! 7. [`timeout`] bounds the handler. Innermost of the layers, so that it measures work and nothing else, and a slot is always
//!    given back.
//! 8. [`decode`] corrects the code of requests that cannot be decoded. It belongs to the routes, so that all layers see the
//!    corrected code.

pub(crate) mod auth;
mod decode;
pub(crate) mod limit;
pub(crate) mod metrics;
pub(crate) mod panic;
pub(crate) mod target;
pub(crate) mod timeout;
pub(crate) mod trace;

use std::future::Future;

use http::{HeaderValue, StatusCode, header};
use tonic::{Code, Status, body::Body, service::Routes};
use tower::Service as _;

use self::target::Target;

pub(crate) type Req = http::Request<Body>;
pub(crate) type Res = http::Response<Body>;

/// What lies further in: the layers below and, at the bottom, the routes. Nothing in the stack fails: a refusal is a response.
pub(crate) trait Next: Send + Sync + 'static {
    fn run(&self, target: Target, request: Req) -> impl Future<Output = Res> + Send;
}

/// One layer as one async function. All requests share the one stack: a request copies nothing of it, and the futures of all
/// layers are one.
pub(crate) trait Layer: Send + Sync + 'static {
    fn handle<N: Next>(&self, target: Target, request: Req, next: &N) -> impl Future<Output = Res> + Send;
}

/// A layer and what lies further in.
#[derive(Debug)]
pub(crate) struct Layered<L, N>(pub(crate) L, pub(crate) N);

impl<L: Layer, N: Next> Next for Layered<L, N> {
    fn run(&self, target: Target, request: Req) -> impl Future<Output = Res> + Send {
        self.0.handle(target, request, &self.1)
    }
}

impl Next for Routes {
    async fn run(&self, target: Target, request: Req) -> Res {
        // Routes are always ready: limits refuse instead of making anybody wait (see `limit`).
        match self.clone().call(request).await {
            Ok(response) if target.grpc => decode::correct_code(response),
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// A refusal in the language of the request: gRPC trailers, or a plain HTTP status with a JSON text.
pub(crate) fn refuse(target: Target, status: Status) -> Res {
    if target.grpc {
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
