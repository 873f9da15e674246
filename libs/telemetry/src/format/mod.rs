//! The two layouts of a log line: JSON for machines, text for people.
//!
//! Both carry the trace id of the running span, so that a line found in a log leads to the whole trace. The id is read from the
//! OpenTelemetry context, because the log filter may hide the span itself.

mod json;
mod text;

use opentelemetry::{Context, trace::TraceContextExt as _};

pub(crate) use self::{
    json::{JsonLines, SpanFields},
    text::TextLines,
};

fn current_ids() -> Option<(String, String)> {
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
    })
}
