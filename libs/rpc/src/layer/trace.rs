//! One span per request, a child of the caller's when the headers carry a trace.
//!
//! It sits outside all layers that refuse, so that a refusal is seen in the trace of whoever was refused.

use std::time::Instant;

use tonic::{Code, body::Body};
use tracing::{Instrument as _, Level, Span, field::Empty, level_filters::LevelFilter};

use super::{Layer, Next, Req, Res, target::Target};
use crate::body::{OnEnd, code_in};

#[derive(Debug)]
pub(crate) struct Trace;

impl Layer for Trace {
    async fn handle<N: Next>(&self, target: Target, request: Req, next: &N) -> Res {
        let span = open(target, request.uri().path());
        // Before the span is entered: later it would already have a trace of its own.
        telemetry::propagation::extract(request.headers(), &span);
        let guard = SpanOutcome::new(span.clone(), target);
        let response = next.run(target, request).instrument(span).await;
        if !target.grpc {
            let status = response.status();
            guard.end(if status.is_server_error() { Code::Unknown } else { Code::Ok });
            return response;
        }
        // An error response has its code in the headers; a stream has it only at its end.
        match code_in(response.headers()) {
            Some(code) => guard.end(code),
            None if target.method.is_some_and(|method| method.server_streaming) => {
                return response.map(|body| Body::new(OnEnd::new(body, move |code| guard.end(code))));
            }
            None => guard.end(Code::Ok),
        }
        response
    }
}

fn open(target: Target, path: &str) -> Span {
    let (service, method) = target.labels();
    // Probes and scrapes come every few seconds: as spans they would drown the rest.
    if target.exempt {
        return tracing::trace_span!("probe", rpc.service = service, rpc.method = method);
    }
    // Unknown methods share one name: a scanner could otherwise invent span names without end.
    let name = if target.method.is_some() { path } else { method };
    if target.grpc {
        tracing::info_span!(
            "rpc",
            otel.name = name,
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            caller = Empty,
            code = Empty,
            otel.status_code = Empty,
        )
    } else {
        tracing::info_span!(
            "http",
            otel.name = name,
            otel.kind = "server",
            url.path = path,
            caller = Empty,
            code = Empty,
            otel.status_code = Empty,
        )
    }
}

/// Records how the call ended. If it is dropped before that, the caller went away.
struct SpanOutcome {
    span: Span,
    target: Target,
    started: Instant,
    ended: bool,
}

impl SpanOutcome {
    fn new(span: Span, target: Target) -> Self {
        Self { span, target, started: Instant::now(), ended: false }
    }

    fn end(mut self, code: Code) {
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        self.ended = true;
        self.span.record("code", name(code));
        let fault = matches!(code, Code::Internal | Code::Unknown | Code::DataLoss);
        if fault {
            self.span.record("otel.status_code", "ERROR");
        }
        // Most calls end without a line, and entering the span for none costs as much as the line.
        let quiet = self.target.exempt || matches!(code, Code::Ok | Code::Cancelled);
        if quiet && Level::DEBUG > LevelFilter::current() {
            return;
        }
        let latency_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (_, method) = self.target.labels();
        let _entered = self.span.enter();
        match code {
            _ if self.target.exempt => tracing::trace!(method, code = name(code), latency_ms, "answered"),
            _ if fault => tracing::warn!(method, code = name(code), latency_ms, "answered"),
            Code::Ok => tracing::debug!(method, code = name(code), latency_ms, "answered"),
            Code::Cancelled => tracing::debug!(method, code = name(code), latency_ms, "caller went away"),
            _ => tracing::info!(method, code = name(code), latency_ms, "refused"),
        }
    }
}

impl Drop for SpanOutcome {
    fn drop(&mut self) {
        if !self.ended {
            self.record(Code::Cancelled);
        }
    }
}

/// The code as gRPC writes it.
pub(crate) fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
