//! How results are printed: aligned text for people, JSON in the contracts' own field names for programs.

use std::io::Write;

use anyhow::{Context, Result};
use prost::Message;
use prost_reflect::{DynamicMessage, SerializeOptions};

#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
}

pub fn json<M: Message>(name: &str, message: &M) -> Result<()> {
    print(&serde_json::to_string_pretty(&value(name, message)?)?)
}

pub fn json_line<M: Message>(name: &str, message: &M) -> Result<()> {
    print(&value(name, message)?.to_string())
}

pub fn json_list<M: Message>(name: &str, messages: &[M]) -> Result<()> {
    let list = messages.iter().map(|m| value(name, m)).collect::<Result<Vec<_>>>()?;
    print(&serde_json::to_string_pretty(&list)?)
}

/// A message as JSON, with the contract's field names and with defaults shown.
pub fn value<M: Message>(name: &str, message: &M) -> Result<serde_json::Value> {
    let descriptor =
        proto::access::pool().get_message_by_name(name).with_context(|| format!("no message {name}"))?;
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).context("a generated message fits its own descriptor")?;
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(false);
    Ok(dynamic.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// Columns under a heading, each as wide as its widest cell.
pub fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Result<()> {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    let mut width = head.map(str::len);
    for row in &rows {
        for (w, cell) in width.iter_mut().zip(row) {
            *w = (*w).max(cell.chars().count());
        }
    }
    line(&head.map(str::to_owned), &width)?;
    rows.iter().try_for_each(|row| line(row, &width))
}

/// `name  value` lines.
pub fn fields(rows: &[(&str, String)]) -> Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().try_for_each(|(name, value)| print(&format!("{name:<width$}  {value}")))
}

fn line<const N: usize>(cells: &[String; N], width: &[usize; N]) -> Result<()> {
    let text: Vec<String> = cells.iter().zip(width).map(|(cell, w)| format!("{cell:<w$}")).collect();
    print(text.join("  ").trim_end())
}

/// `JOB_STATUS_QUEUED` without its prefix: `queued`.
pub fn enum_name(name: &str, prefix: &str) -> String {
    name.trim_start_matches(prefix).to_lowercase()
}

/// A time span in its largest unit, which is enough for people.
pub fn span(seconds: i64) -> String {
    match seconds.max(0) {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

/// An error and its causes in one line. A refusal is shown in the service's own words.
pub fn explain(error: &anyhow::Error) -> String {
    let text = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<tonic::Status>() {
        Some(status) => format!("{} ({:?})", status.message(), status.code()),
        None => cause.to_string(),
    };
    error.chain().map(text).collect::<Vec<_>>().join(": ")
}

/// A closed pipe (`| head`) is a reader who has seen enough, not a failure.
pub fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_the_unit_people_think_in() {
        assert_eq!([span(5), span(600), span(10_000), span(300_000)], ["5 s", "10 min", "2 h", "3 days"]);
    }

    #[test]
    fn a_refusal_is_told_in_the_services_words() {
        let refusal: Result<()> = Err(tonic::Status::not_found("no job 7").into());
        let error = refusal.context("cannot show it").unwrap_err();
        assert_eq!(explain(&error), "cannot show it: no job 7 (NotFound)");
    }
}
