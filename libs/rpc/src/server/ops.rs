//! The operator's plain HTTP routes, and guards for a service's own.
//!
//! Owns `/metrics`, `/livez` and `/readyz`. They need no caller: probes and scrapers have no keys, and they show nothing about
//! money.

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use tonic::Status;

use super::Health;
use crate::layer::{auth::HttpAuthorize, refuse, target::Target};

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn router(health: Health) -> Router {
    Router::new()
        .route(
            "/metrics",
            get(async || ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], telemetry::metrics::render())),
        )
        // Alive means: the process answers. Whether its dependencies do is readiness, and no reason for a restart.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(health)
}

async fn readyz(State(health): State<Health>) -> Response {
    let report = health.report().await;
    let code = if report.ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(report)).into_response()
}

/// Admits only callers with the right roles to these routes, and tells the handlers who it is.
pub(super) fn guard(router: Router, authorize: HttpAuthorize) -> Router {
    router.layer(from_fn(move |mut request: Request, next: Next| {
        let authorize = authorize.clone();
        async move {
            match authorize.admit(&request) {
                Ok(caller) => {
                    tracing::Span::current().record("caller", caller.name.as_str());
                    request.extensions_mut().insert(caller);
                    next.run(request).await
                }
                Err(refusal) => refusal.map(axum::body::Body::new),
            }
        }
    }))
}

/// What no route takes, in the language of the request.
pub(super) async fn missing(request: Request) -> Response {
    let request = request.map(tonic::body::Body::new);
    let path = request.uri().path();
    let status = Status::unimplemented(format!("{path} is not served here"));
    refuse(Target::of(&request), status).map(axum::body::Body::new)
}
