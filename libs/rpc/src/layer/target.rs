//! The outermost part of the stack: it finds out what a request calls (which method, gRPC or plain HTTP, whether the limits
//! apply) and hands the result to every layer, so that none of them has to parse the path again.

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
pub(crate) struct Target {
    /// gRPC rather than plain HTTP.
    pub(crate) grpc: bool,
    /// The method, if a descriptor names it.
    pub(crate) method: Option<&'static Method>,
    /// Health, reflection and the operator's HTTP routes: answered without a caller and outside the limits. An
    /// overloaded server that failed its probes would be restarted, and be overloaded again.
    pub(crate) exempt: bool,
}

impl Target {
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

/// All layers and the routes, as the connections see them.
#[derive(Debug)]
pub(crate) struct Stack<N> {
    pub(crate) draining: Draining,
    pub(crate) next: N,
}

impl<N: Next> Stack<N> {
    pub(crate) async fn answer(&self, mut request: Req) -> Res {
        let target = Target::of(&request);
        request.extensions_mut().insert(self.draining.clone());
        let response = self.next.run(target, request).await;
        let endless = target.exempt && target.method.is_some_and(|method| method.server_streaming);
        if endless {
            response.map(|body| Body::new(UntilDrain::new(body, self.draining.token())))
        } else {
            response
        }
    }
}
