//! Log lines for machines: one JSON object per event, all fields at the top level.
//!
//! By hand, because neither tracing-subscriber's JSON nor json-subscriber can rename a field that would overwrite one of the
//! line's own, leave out the exporter's `otel.*`, or let the nearest span win where names are the same.

use std::{borrow::Cow, fmt};

use serde_json::Value;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::Record,
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

use super::current_ids;
use crate::causes::causes;

/// Names that the line itself owns. A field that would overwrite one is kept under `field.<name>`.
const RESERVED: [&str; 7] = ["timestamp", "level", "target", "service", "trace_id", "span_id", "span"];

/// A text field whose name ends so holds JSON: the line has it as that value, under the name without the ending, so that the
/// fields of another process's log line stay fields.
const JSON: &str = ".json";

pub(crate) struct JsonLines {
    service: String,
}

impl JsonLines {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.to_owned() }
    }
}

impl<S> FormatEvent<S, SpanFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, SpanFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        line.own("timestamp", time);
        line.own("level", event.metadata().level().as_str());
        line.own("service", self.service.as_str());
        line.own("target", event.metadata().target());
        event.record(&mut EachField(|key: &str, value: FieldValue<'_>| line.add(key, value.into_json())));
        let mut names = Vec::new();
        // From the innermost span out: the event's own fields win, then those of the nearest span.
        for span in ctx.event_scope().into_iter().flatten() {
            names.push(span.name());
            let extensions = span.extensions();
            let Some(fields) = extensions.get::<FormattedFields<SpanFields>>() else { continue };
            for (key, value) in members(fields) {
                line.add(&key, value);
            }
        }
        if !names.is_empty() {
            names.reverse();
            line.own("span", names.join(" > "));
        }
        if let Some((trace, span)) = current_ids() {
            line.own("trace_id", trace);
            line.own("span_id", span);
        }
        line.write(&mut writer)
    }
}

/// The fields of a span as members of a JSON object, each with a comma before it, in the order in which they were recorded.
/// They are written as they are recorded, and recording another one only appends: each request opens a span and few requests
/// write a line, so that reading the object back each time would cost more than everything else. A field recorded twice is
/// there twice, and the later one counts.
pub(crate) struct SpanFields;

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut written = Ok(());
        fields.record(&mut EachField(|key: &str, value: FieldValue<'_>| {
            if written.is_ok() {
                written = write_member(&mut writer, key, value);
            }
        }));
        written
    }

    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

fn write_member(writer: &mut Writer<'_>, key: &str, value: FieldValue<'_>) -> fmt::Result {
    writer.write_char(',')?;
    quote(writer, key)?;
    writer.write_char(':')?;
    match value {
        FieldValue::Text(text) => quote(writer, text),
        FieldValue::Json(value) => write!(writer, "{value}"),
    }
}

/// Writes a JSON string. Few texts need escapes; those are left to serde.
fn quote(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        return write!(writer, "{}", Value::from(text));
    }
    writer.write_char('"')?;
    writer.write_str(text)?;
    writer.write_char('"')
}

fn members(fields: &str) -> serde_json::Map<String, Value> {
    let object = format!("{{{}}}", fields.strip_prefix(',').unwrap_or_default());
    serde_json::from_str(&object).unwrap_or_default()
}

/// Texts are borrowed, so that a span that never writes a line copies none of them.
enum FieldValue<'a> {
    Text(&'a str),
    Json(Value),
}

impl FieldValue<'_> {
    fn into_json(self) -> Value {
        match self {
            Self::Text(text) => Value::from(text),
            Self::Json(value) => value,
        }
    }
}

/// Calls a function with each field, under the name that the line uses for it.
struct EachField<F>(F);

impl<F: FnMut(&str, FieldValue<'_>)> EachField<F> {
    fn pass(&mut self, field: &Field, value: FieldValue<'_>) {
        let (mut key, mut value) = (field.name(), value);
        // `otel.*` are instructions for the exporter.
        if key.starts_with("otel.") {
            return;
        }
        if let FieldValue::Text(text) = value
            && let Some(name) = key.strip_suffix(JSON)
            && let Ok(parsed) = serde_json::from_str(text)
        {
            (key, value) = (name, FieldValue::Json(parsed));
        }
        let reserved = RESERVED.contains(&key);
        let key = if reserved { Cow::Owned(format!("field.{key}")) } else { Cow::Borrowed(key) };
        (self.0)(&key, value);
    }
}

impl<F: FnMut(&str, FieldValue<'_>)> Visit for EachField<F> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.pass(field, FieldValue::Json(value.into()));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.pass(field, FieldValue::Json(value.into()));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.pass(field, FieldValue::Json(value.into()));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.pass(field, FieldValue::Json(value.into()));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.pass(field, FieldValue::Text(value));
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.pass(field, FieldValue::Text(&causes(value)));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.pass(field, FieldValue::Text(&format!("{value:?}")));
    }
}

/// A line being put together, in the order of insertion, because people read these lines too.
#[derive(Default)]
struct Line(Vec<(String, Value)>);

impl Line {
    fn own(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push((key.to_owned(), value.into()));
    }

    /// Adds a field unless the line already has one of that name, which is a nearer one.
    fn add(&mut self, key: &str, value: Value) {
        if !self.0.iter().any(|(known, _)| known == key) {
            self.own(key, value);
        }
    }

    fn write(self, writer: &mut Writer<'_>) -> fmt::Result {
        for (i, (key, value)) in self.0.into_iter().enumerate() {
            let separator = if i == 0 { '{' } else { ',' };
            write!(writer, "{separator}{}:{value}", Value::String(key))?;
        }
        writeln!(writer, "}}")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::{
        Layer as _, Registry, filter::LevelFilter, fmt::MakeWriter, layer::SubscriberExt as _,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Buffer {
        type Writer = Self;
        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    fn logged(level: LevelFilter, act: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let lines = tracing_subscriber::fmt::layer()
            .fmt_fields(SpanFields)
            .event_format(JsonLines::new("test"))
            .with_writer(buffer.clone())
            .with_filter(level);
        // No exporter anywhere: ids must exist all the same.
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let spans = tracing_opentelemetry::layer().with_tracer(tracer);
        tracing::subscriber::with_default(Registry::default().with(lines).with(spans), act);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_json_line_is_flat_and_carries_span_fields_and_the_trace() {
        let text = logged(LevelFilter::INFO, || {
            let outer = tracing::info_span!("outer", job = 7, shadowed = "outer", otel.kind = "server");
            let _outer = outer.enter();
            let inner = tracing::info_span!("inner", shadowed = "inner");
            let _inner = inner.enter();
            tracing::info!(amount = "12", level = "fake", "paid");
        });
        assert!(text.starts_with(r#"{"timestamp":"#) && text.ends_with("}\n"), "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "paid");
        assert_eq!((&line["level"], &line["field.level"]), (&"INFO".into(), &"fake".into()));
        assert_eq!(
            (&line["amount"], &line["job"], &line["shadowed"]),
            (&"12".into(), &7.into(), &"inner".into())
        );
        assert_eq!(line["span"], "outer > inner");
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32);
        assert!(line.get("otel.kind").is_none());
    }

    #[test]
    fn fields_recorded_later_are_added_and_the_last_of_a_name_counts() {
        let text = logged(LevelFilter::INFO, || {
            let span = tracing::info_span!("call", code = tracing::field::Empty, quoted = "a \"b\"", n = 1);
            span.record("code", "OK");
            span.record("n", 2);
            span.in_scope(|| tracing::info!("answered"));
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["code"], &line["quoted"], &line["n"]),
            (&"OK".into(), &"a \"b\"".into(), &2.into())
        );
    }

    #[test]
    fn a_span_keeps_every_kind_of_field_as_json() {
        let text = logged(LevelFilter::INFO, || {
            let error = io::Error::other("a \"disk\"\nis gone");
            let error: &(dyn std::error::Error + 'static) = &error;
            let span = tracing::info_span!(
                "call",
                path = "a\\b\n\u{1}",
                share = 0.5,
                endless = f64::NAN,
                below = -3,
                yes = true,
                shown = ?Some("x"),
                service = "other",
                line.json = r#"{"n":1}"#,
                error,
                otel.kind = "server",
            );
            span.in_scope(|| tracing::info!("answered"));
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["path"], &line["shown"]), (&"a\\b\n\u{1}".into(), &"Some(\"x\")".into()));
        assert_eq!((&line["share"], &line["endless"]), (&0.5.into(), &Value::Null));
        assert_eq!((&line["below"], &line["yes"]), (&(-3).into(), &true.into()));
        assert_eq!((&line["service"], &line["field.service"]), (&"test".into(), &"other".into()));
        assert_eq!((&line["line"]["n"], &line["error"]), (&1.into(), &"a \"disk\"\nis gone".into()));
        assert!(line.get("otel.kind").is_none());
    }

    #[test]
    fn the_trace_id_is_there_even_when_the_filter_hides_the_span() {
        let text = logged(LevelFilter::WARN, || {
            let span = tracing::info_span!("hidden");
            let _span = span.enter();
            tracing::warn!("seen");
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert!(line.get("span").is_none());
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32);
    }

    #[test]
    fn a_field_that_holds_json_is_logged_as_json() {
        let said = serde_json::json!({ "job_id": "7", "retry_count": 3 }).to_string();
        let text = logged(LevelFilter::INFO, || {
            tracing::info!(line.json = %said, other.json = said, broken.json = "{", "job error");
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["line"]["retry_count"], &line["other"]["job_id"]), (&3.into(), &"7".into()));
        assert_eq!(line["broken.json"], "{", "what is not JSON is logged as it is");
    }

    #[test]
    fn an_error_is_logged_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot pay")]
        struct Outer(#[source] io::Error);
        let error = Outer(io::Error::other("node gone"));
        let text = logged(LevelFilter::INFO, || {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed");
        });
        assert!(text.contains(r#""error":"cannot pay: node gone""#), "{text}");
    }
}
