//! The two shapes of a log line.
//!
//! Owns the layout only. Both shapes carry the trace id of the running span, so that a line found in a log leads to the whole
//! trace; the id is read from the OpenTelemetry context because the log filter may hide the span itself.

use std::fmt;

use opentelemetry::{Context, trace::TraceContextExt as _};
use serde_json::{Map, Value};
use tracing::{Event, Subscriber, field::Visit};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::{JsonFields, Writer},
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

/// Names that the line itself owns. A field that would overwrite one is kept under `field.<name>`.
const RESERVED: [&str; 7] = ["timestamp", "level", "target", "service", "trace_id", "span_id", "span"];

/// One JSON object per event, fields at the top level.
pub(crate) struct JsonLines {
    service: String,
}

impl JsonLines {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.to_owned() }
    }
}

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        line.insert("timestamp".into(), time.into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("target".into(), event.metadata().target().into());
        line.insert("service".into(), self.service.clone().into());
        if let Some((trace, span)) = current_ids() {
            line.insert("trace_id".into(), trace.into());
            line.insert("span_id".into(), span.into());
        }
        let mut names = Vec::new();
        for span in ctx.event_scope().into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            names.push(span.name());
            let extensions = span.extensions();
            let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            // Inner spans are met later and win; the event itself wins over all spans.
            if let Ok(Value::Object(fields)) = serde_json::from_str(fields) {
                for (key, value) in fields {
                    put(&mut line, &key, value);
                }
            }
        }
        if !names.is_empty() {
            line.insert("span".into(), names.join(" > ").into());
        }
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn put(line: &mut Map<String, Value>, key: &str, value: Value) {
    if RESERVED.contains(&key) {
        line.insert(format!("field.{key}"), value);
    } else {
        line.insert(key.to_owned(), value);
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &tracing::field::Field, value: f64) {
        put(self.0, field.name(), value.into());
    }
    fn record_i64(&mut self, field: &tracing::field::Field, value: i64) {
        put(self.0, field.name(), value.into());
    }
    fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
        put(self.0, field.name(), value.into());
    }
    fn record_bool(&mut self, field: &tracing::field::Field, value: bool) {
        put(self.0, field.name(), value.into());
    }
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        put(self.0, field.name(), value.into());
    }
    fn record_error(&mut self, field: &tracing::field::Field, value: &(dyn std::error::Error + 'static)) {
        // Errors print one level each; a log line must tell the whole chain.
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        put(self.0, field.name(), text.into());
    }
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        put(self.0, field.name(), format!("{value:?}").into());
    }
}

/// Text for people: time, level, message and fields, then the spans and the trace.
pub(crate) struct TextLines;

impl<S, N> FormatEvent<S, N> for TextLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        // `2026-01-02T03:04:05.678901Z`: a person at a terminal needs the clock, not the date.
        let clock = time.get(11..23).unwrap_or(&time);
        let level = *event.metadata().level();
        if writer.has_ansi_escapes() {
            let colour = match level {
                tracing::Level::ERROR => 31,
                tracing::Level::WARN => 33,
                tracing::Level::INFO => 32,
                _ => 34,
            };
            write!(
                writer,
                "\x1b[2m{clock}\x1b[0m \x1b[{colour}m{level:>5}\x1b[0m \x1b[2m{}:\x1b[0m ",
                event.metadata().target()
            )?;
        } else {
            write!(writer, "{clock} {level:>5} {}: ", event.metadata().target())?;
        }
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        for span in ctx.event_scope().into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            write!(writer, " {}", span.name())?;
            let extensions = span.extensions();
            if let Some(fields) = extensions.get::<FormattedFields<N>>().filter(|fields| !fields.is_empty()) {
                write!(writer, "{{{fields}}}")?;
            }
        }
        if let Some((trace, _)) = current_ids() {
            write!(writer, " trace={trace}")?;
        }
        writeln!(writer)
    }
}

fn current_ids() -> Option<(String, String)> {
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
    })
}
