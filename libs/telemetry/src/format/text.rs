//! Log lines for people: time, level, message and fields, then the spans and the trace.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

use super::current_ids;

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
