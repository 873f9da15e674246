//! Carrying the trace from one process to the next: in gRPC headers, and in rows that are delivered later.
//!
//! Owns the W3C `traceparent`/`tracestate` encoding. It never invents a trace: without a running span there is nothing to carry,
//! and a malformed context from outside is the same as none.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::TraceContextExt as _,
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use serde::{Deserialize, Serialize};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// A trace context at rest, for example in an outbox row. Empty when there was no trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceContext(HashMap<String, String>);

impl TraceContext {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The trace id as 32 hexadecimal digits, when this carries a valid one.
    #[must_use]
    pub fn trace_id(&self) -> Option<String> {
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &self.0);
        let span = context.span();
        span.span_context().is_valid().then(|| span.span_context().trace_id().to_string())
    }
}

#[must_use]
pub fn current() -> TraceContext {
    of(&Span::current())
}

#[must_use]
pub fn of(span: &Span) -> TraceContext {
    let mut carried = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carried);
    // The propagator writes an empty `tracestate`; a row need not store it.
    carried.retain(|_, value| !value.is_empty());
    TraceContext(carried)
}

/// Makes `span` a child of what `carried` describes. Must happen before the span is first entered; an empty context
/// changes nothing.
pub fn attach(carried: &TraceContext, span: &Span) {
    adopt(span, &carried.0);
}

/// Writes the running span's context into HTTP headers, which gRPC metadata are too.
pub fn inject(headers: &mut HeaderMap) {
    inject_span(&Span::current(), headers);
}

/// Writes the context of `span` into HTTP headers.
pub fn inject_span(span: &Span, headers: &mut HeaderMap) {
    TraceContextPropagator::new().inject_context(&span.context(), &mut IntoHeaders(headers));
}

/// Makes `span` a child of the trace named in HTTP headers, if they name one.
pub fn extract(headers: &HeaderMap, span: &Span) {
    adopt(span, &FromHeaders(headers));
}

fn adopt(span: &Span, carrier: &dyn Extractor) {
    // From an empty context, not the current one: a remote parent must not be mixed up with a local one.
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), carrier);
    if context.span().span_context().is_valid() {
        // Fails only without a subscriber or for a span already entered: then the trace starts anew, which is harmless.
        let _ = span.set_parent(context);
    }
}

struct IntoHeaders<'a>(&'a mut HeaderMap);

impl Injector for IntoHeaders<'_> {
    fn set(&mut self, key: &str, value: String) {
        if value.is_empty() {
            return;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

struct FromHeaders<'a>(&'a HeaderMap);

impl Extractor for FromHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
