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

use std::future::Future;

use http::{HeaderValue, StatusCode, header};
use tonic::{Code, Status, body::Body, service::Routes};
use tower::Service as _;

use self::call::Call;

pub(crate) type Req = http::Request<Body>;
pub(crate) type Res = http::Response<Body>;

/// What lies further in: the layers below and, at the bottom, the routes. Nothing in the stack fails: a refusal is an answer.
pub(crate) trait Next: Send + Sync + 'static {
    fn run(&self, call: Call, request: Req) -> impl Future<Output = Res> + Send;
}

/// One layer as one async function. All requests share the one stack: a request copies nothing of it, and the futures of all
/// layers are one.
pub(crate) trait Layer: Send + Sync + 'static {
    fn handle<N: Next>(&self, call: Call, request: Req, next: &N) -> impl Future<Output = Res> + Send;
}

/// A layer and what lies further in.
#[derive(Debug)]
pub(crate) struct Around<L, N>(pub(crate) L, pub(crate) N);

impl<L: Layer, N: Next> Next for Around<L, N> {
    fn run(&self, call: Call, request: Req) -> impl Future<Output = Res> + Send {
        self.0.handle(call, request, &self.1)
    }
}

impl Next for Routes {
    async fn run(&self, _: Call, request: Req) -> Res {
        // Routes are always ready: limits refuse instead of making anybody wait (see `shed`).
        match self.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
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
