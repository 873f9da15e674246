//! Naming the call: which method, gRPC or plain HTTP, and whether the limits apply.
//!
//! The entrance to the layers: each of them is handed the same answer instead of parsing the path again.

use http::header;
use tonic::body::Body;

use super::{Next, Req, Res};
use crate::{
    body::UntilDrain,
    method::{self, Method},
    server::Draining,
};

/// What is being called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// gRPC rather than plain HTTP.
    pub(crate) grpc: bool,
    /// The method, if a descriptor names it.
    pub(crate) method: Option<&'static Method>,
    /// Health, reflection and the operator's HTTP routes: answered without a caller and outside the limits. An
    /// overloaded server that failed its probes would be restarted, and be overloaded again.
    pub(crate) exempt: bool,
}

impl Call {
    pub(crate) fn of(request: &Req) -> Self {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let path = request.uri().path();
        let method = method::find(path);
        // By the path first: handlers are found by it alone, so a content type must not lead around authentication.
        let grpc = method.is_some()
            || content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        let exempt = if grpc {
            method.is_some_and(|method| method.public)
        } else {
            matches!(path, "/metrics" | "/livez" | "/readyz")
        };
        Self { grpc, method, exempt }
    }

    /// Service and method for labels. Unknown paths share one, or a scanner could invent metrics without end.
    pub(crate) fn labels(&self) -> (&'static str, &'static str) {
        match self.method {
            Some(method) => (&method.service, &method.name),
            None if self.grpc => ("unknown", "unknown"),
            None => ("http", "http"),
        }
    }
}

/// Names each call before the first layer sees it.
#[derive(Debug)]
pub(crate) struct Entrance<N> {
    pub(crate) draining: Draining,
    pub(crate) next: N,
}

impl<N: Next> Entrance<N> {
    pub(crate) async fn answer(&self, mut request: Req) -> Res {
        let call = Call::of(&request);
        request.extensions_mut().insert(self.draining.clone());
        let response = self.next.run(call, request).await;
        let endless = call.exempt && call.method.is_some_and(|method| method.server_streaming);
        if endless {
            response.map(|body| Body::new(UntilDrain::new(body, self.draining.token())))
        } else {
            response
        }
    }
}
