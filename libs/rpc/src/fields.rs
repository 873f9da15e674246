//! Reading the fields of a request.
//!
//! [`Fields`] reads one field after the other and collects every mistake, so that a caller who sent three wrong fields
//! learns of all three from one `INVALID_ARGUMENT` (`google.rpc.BadRequest`). Each reader returns `None` for a wrong value and
//! remembers why; [`Fields::finish`] refuses the request if anything was remembered. It checks form only: whether a
//! well-formed value makes sense is decided by the domain.

use std::{fmt, fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

use chrono::{DateTime, Utc};
use tonic::Status;

use crate::{error, page};

const MISSING: &str = "is missing";

/// One wrong field, named as the contract names it, for example `transactions[2].tx_hash`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub field: String,
    pub description: String,
}

impl Violation {
    pub fn new(field: impl Into<String>, problem: impl Display) -> Self {
        Self { field: field.into(), description: problem.to_string() }
    }
}

/// All mistakes of one request. Domain errors carry this when the domain finds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    pub fn push(&mut self, violation: Violation) {
        self.0.push(violation);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.0.iter()
    }

    /// The same mistakes, their fields seen from the message that contains them.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Self {
        for violation in &mut self.0 {
            violation.field = format!("{parent}.{}", violation.field);
        }
        self
    }

    /// # Errors
    /// `self`, unless it is empty.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Violation> for Violations {
    fn from(violation: Violation) -> Self {
        Self(vec![violation])
    }
}

impl FromIterator<Violation> for Violations {
    fn from_iter<I: IntoIterator<Item = Violation>>(violations: I) -> Self {
        Self(violations.into_iter().collect())
    }
}

impl Extend<Violation> for Violations {
    fn extend<I: IntoIterator<Item = Violation>>(&mut self, violations: I) {
        self.0.extend(violations);
    }
}

impl IntoIterator for Violations {
    type Item = Violation;
    type IntoIter = std::vec::IntoIter<Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Violation { field, description }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{field}: {description}")?;
        }
        Ok(())
    }
}

impl From<Violations> for Status {
    fn from(violations: Violations) -> Self {
        error::invalid_all(violations.into_iter().map(|violation| (violation.field, violation.description)))
    }
}

/// Reads the fields of one request and collects what is wrong with them.
#[derive(Debug, Default)]
pub struct Fields {
    /// The message that is being read: empty for the request itself, otherwise for example `chain.` or `transactions[2].`.
    prefix: String,
    violations: Violations,
}

impl Fields {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers a mistake that the caller of this function found.
    pub fn wrong(&mut self, field: impl Display, problem: impl Display) {
        self.violations.push(Violation::new(format!("{}{field}", self.prefix), problem));
    }

    /// Remembers `problem` unless `holds`.
    pub fn check(&mut self, field: impl Display, holds: bool, problem: impl Display) {
        if !holds {
            self.wrong(field, problem);
        }
    }

    /// A value that was read elsewhere, or the reason why it could not be read.
    pub fn take<T, E: Display>(&mut self, field: impl Display, read: Result<T, E>) -> Option<T> {
        read.map_err(|problem| self.wrong(field, problem)).ok()
    }

    /// Something that must be there: a message, or one choice of a `oneof`.
    pub fn required<T>(&mut self, field: impl Display, value: Option<T>) -> Option<T> {
        self.take(field, value.ok_or(MISSING))
    }

    /// Reads the fields of a nested message; mistakes are reported as `field.name`.
    pub fn nested<T>(&mut self, field: impl Display, read: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.prefix.len();
        self.prefix.push_str(&format!("{field}."));
        let value = read(self);
        self.prefix.truncate(outer);
        value
    }

    /// Reads each message of a repeated field; mistakes are reported as `field[2].name`. All are read, also after a mistake.
    pub fn each<M, T>(
        &mut self,
        field: &str,
        messages: impl IntoIterator<Item = M>,
        mut read: impl FnMut(&mut Self, M) -> Option<T>,
    ) -> Option<Vec<T>> {
        let read = messages.into_iter().enumerate().map(|(index, message)| {
            self.nested(format_args!("{field}[{index}]"), |fields| read(fields, message))
        });
        // In two steps, because collecting into an `Option` would stop at the first mistake.
        read.collect::<Vec<_>>().into_iter().collect()
    }

    /// How many elements a repeated field has.
    pub fn count(&mut self, field: impl Display, count: usize, allowed: RangeInclusive<usize>) {
        let (least, most) = (allowed.start(), allowed.end());
        self.check(field, allowed.contains(&count), format_args!("must be {least} to {most}, not {count}"));
    }

    pub fn parse<T: FromStr<Err: Display>>(&mut self, field: impl Display, text: &str) -> Option<T> {
        self.take(field, text.parse())
    }

    /// As [`Fields::parse`], but an empty text means that there is no value.
    pub fn parse_optional<T: FromStr<Err: Display>>(&mut self, field: impl Display, text: &str) -> Option<T> {
        if text.is_empty() { None } else { self.parse(field, text) }
    }

    /// A protobuf enum. `UNSPECIFIED` is a known value too: the caller decides what it means.
    pub fn enumeration<E: TryFrom<i32>>(&mut self, field: impl Display, value: i32) -> Option<E> {
        self.take(field, E::try_from(value).map_err(|_| format!("{value} is not a known value")))
    }

    /// A number in the type that the domain or the database uses.
    pub fn number<N, T: TryFrom<N, Error: Display>>(&mut self, field: impl Display, value: N) -> Option<T> {
        self.take(field, T::try_from(value))
    }

    pub fn bytes<const N: usize>(&mut self, field: impl Display, bytes: &[u8]) -> Option<[u8; N]> {
        self.take(field, bytes.try_into().map_err(|_| format!("has {} bytes, expected {N}", bytes.len())))
    }

    pub fn timestamp(
        &mut self,
        field: impl Display,
        at: Option<&prost_types::Timestamp>,
    ) -> Option<DateTime<Utc>> {
        self.take(field, at.ok_or(MISSING.to_owned()).and_then(datetime))
    }

    /// As [`Fields::timestamp`], but the field may be absent.
    pub fn timestamp_optional(
        &mut self,
        field: impl Display,
        at: Option<&prost_types::Timestamp>,
    ) -> Option<DateTime<Utc>> {
        self.take(field, datetime(at?))
    }

    /// A length of time, or `None` when the field is absent. Negative ones are refused.
    pub fn duration(
        &mut self,
        field: impl Display,
        duration: Option<&prost_types::Duration>,
    ) -> Option<Duration> {
        self.take(field, proto::time::span(duration?))
    }

    /// One line of text without control characters. An empty text counts as missing where at least one character is needed.
    pub fn line(&mut self, field: impl Display, text: &str, chars: RangeInclusive<usize>) -> Option<String> {
        self.take(field, check_text(text, chars, |c| c.is_control()))
    }

    /// Text that may have several lines and tabs, but no other control characters: they would break a terminal or a log.
    pub fn text(&mut self, field: impl Display, text: &str, chars: RangeInclusive<usize>) -> Option<String> {
        self.take(field, check_text(text, chars, |c| c.is_control() && c != '\n' && c != '\t'))
    }

    /// A name made of visible ASCII characters, without spaces.
    pub fn visible_ascii(&mut self, field: impl Display, text: &str, most: usize) -> Option<String> {
        let clean = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        let problem = || format!("must be 1 to {most} visible ASCII characters");
        self.take(field, clean.then(|| text.to_owned()).ok_or_else(problem))
    }

    /// `page_size`: 0 takes the default, more than [`page::MAX_SIZE`] is cut to it.
    pub fn page_size(&mut self, requested: impl Into<i64>) -> Option<u32> {
        let size = page::clamp(requested.into());
        self.take("page_size", size.ok_or("must not be negative"))
    }

    /// `page_size` of a list with a default of its own, which refuses more than `most` instead of cutting it.
    pub fn page_size_up_to(&mut self, requested: u32, default: u32, most: u32) -> Option<u32> {
        self.check("page_size", requested <= most, format_args!("must be at most {most}"));
        Some(if requested == 0 { default } else { requested })
    }

    /// `page_token`: the position inside it, or `None` for the first page. See [`page::decode`].
    pub fn page_token<const N: usize>(&mut self, filter: page::Filter, token: &str) -> Option<[String; N]> {
        self.take("page_token", page::decode(filter, token)).flatten()
    }

    /// The value, unless a field was wrong.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names every wrong field.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.violations.is_empty() => Ok(value),
            // A reader that returned nothing without saying why: still a refusal, never a half-read request.
            None if self.violations.is_empty() => Err(error::invalid("request", "is incomplete")),
            _ => Err(self.violations.into()),
        }
    }

    /// For requests whose values were read one by one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names every wrong field.
    pub fn done(self) -> Result<(), Status> {
        self.finish(Some(()))
    }

    /// What was wrong, for a domain error that is turned into a status later.
    #[must_use]
    pub fn into_violations(self) -> Violations {
        self.violations
    }
}

/// The only field of a request, or the only one that can be wrong.
///
/// # Errors
/// `INVALID_ARGUMENT` on `field`.
pub fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Status> {
    text.parse().map_err(|problem: T::Err| error::invalid(field, problem.to_string()))
}

/// A message without which nothing else of the request can be read.
///
/// # Errors
/// `INVALID_ARGUMENT` on `field`.
pub fn required<T>(field: &str, value: Option<T>) -> Result<T, Status> {
    value.ok_or_else(|| error::invalid(field, MISSING))
}

fn datetime(at: &prost_types::Timestamp) -> Result<DateTime<Utc>, String> {
    proto::time::datetime(at).map_err(|problem| problem.to_string())
}

fn check_text(
    text: &str,
    chars: RangeInclusive<usize>,
    forbidden: impl Fn(char) -> bool,
) -> Result<String, String> {
    let (least, most) = (*chars.start(), *chars.end());
    let blank = least > 0 && text.trim().is_empty();
    if blank || !chars.contains(&text.chars().count()) {
        return Err(match least {
            0 => format!("must have at most {most} characters"),
            _ => format!("must have {least} to {most} characters"),
        });
    }
    if text.chars().any(forbidden) {
        return Err("must not contain control characters".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_types::StatusExt as _;

    use super::*;

    fn wrong_fields(status: &Status) -> Vec<(String, String)> {
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(error::reason_of(status).as_deref(), Some(error::reason::INVALID_ARGUMENT));
        let violations = status.get_details_bad_request().unwrap().field_violations;
        violations.into_iter().map(|violation| (violation.field, violation.description)).collect()
    }

    fn problem_of<T>(read: impl FnOnce(&mut Fields) -> T) -> Option<String> {
        let mut fields = Fields::new();
        read(&mut fields);
        fields.done().err().map(|status| wrong_fields(&status).remove(0).1)
    }

    #[test]
    fn every_wrong_field_is_named_with_its_path_in_one_refusal() {
        let mut fields = Fields::new();
        let count: Option<u8> = fields.parse("count", "many");
        let chain: Option<u8> = fields.nested("chain", |fields| {
            fields.required::<()>("name", None);
            fields.parse("depth", "7")
        });
        let hashes =
            fields.each("transactions", ["1", "x", "y"], |fields, text| fields.parse::<u8>("tx_hash", text));
        assert_eq!((count, chain, hashes), (None, Some(7), None));
        fields.check("priority", false, "is not a known priority");
        let refused = fields.finish(Some(())).unwrap_err();
        let names: Vec<_> = wrong_fields(&refused).into_iter().map(|(field, _)| field).collect();
        assert_eq!(
            names,
            ["count", "chain.name", "transactions[1].tx_hash", "transactions[2].tx_hash", "priority"]
        );
    }

    #[test]
    fn right_fields_are_read_and_absent_ones_are_none() {
        let mut fields = Fields::new();
        assert_eq!(fields.parse_optional::<u8>("a", ""), None);
        assert_eq!(fields.parse_optional("a", "3"), Some(3u8));
        assert_eq!(fields.required("b", Some(1)), Some(1));
        assert_eq!(fields.number::<u64, i64>("c", 5), Some(5));
        assert_eq!(fields.bytes("d", &[1, 2]), Some([1, 2]));
        assert_eq!(fields.each("e", ["1", "2"], |f, t| f.parse::<u8>("x", t)), Some(vec![1, 2]));
        assert_eq!(fields.timestamp_optional("f", None), None);
        let epoch = prost_types::Timestamp { seconds: 0, nanos: 0 };
        assert_eq!(fields.timestamp("f", Some(&epoch)), Some(DateTime::UNIX_EPOCH));
        assert_eq!(fields.duration("g", None), None);
        let second = prost_types::Duration { seconds: 1, nanos: 0 };
        assert_eq!(fields.duration("g", Some(&second)), Some(Duration::from_secs(1)));
        fields.count("h", 2, 1..=2);
        assert!(fields.done().is_ok());
    }

    #[test]
    fn a_value_that_is_missing_without_a_reason_is_still_refused() {
        let refused = Fields::new().finish::<()>(None).unwrap_err();
        assert_eq!(wrong_fields(&refused), [("request".to_owned(), "is incomplete".to_owned())]);
    }

    #[test]
    fn times_and_durations_out_of_range_are_refused_and_never_panic() {
        for (seconds, nanos) in [(i64::MIN, 0), (i64::MIN, i32::MIN), (-1, 0), (0, -1), (i64::MIN, i32::MAX)]
        {
            let wire = prost_types::Duration { seconds, nanos };
            let problem = problem_of(|fields| assert_eq!(fields.duration("window", Some(&wire)), None));
            assert_eq!(problem.as_deref(), Some("time out of range"), "{wire:?}");
        }
        let wire = prost_types::Timestamp { seconds: i64::MIN, nanos: 0 };
        assert!(problem_of(|fields| assert_eq!(fields.timestamp("at", Some(&wire)), None)).is_some());
        assert_eq!(problem_of(|fields| fields.timestamp("at", None)).as_deref(), Some("is missing"));
    }

    #[test]
    fn texts_are_bounded_and_free_of_control_characters() {
        let line = |text: &str, chars| problem_of(|fields| fields.line("reason", text, chars));
        assert_eq!(line("fine, and ünïcode", 1..=20), None);
        assert_eq!(line("", 0..=3), None);
        assert_eq!(line(" ", 1..=3).as_deref(), Some("must have 1 to 3 characters"));
        assert_eq!(line("four", 0..=3).as_deref(), Some("must have at most 3 characters"));
        assert_eq!(line("a\nb", 1..=3).as_deref(), Some("must not contain control characters"));
        assert_eq!(problem_of(|fields| fields.text("memo", "a\n\tb", 0..=9)), None);
        assert!(problem_of(|fields| fields.text("memo", "a\u{1b}b", 0..=9)).is_some());
        assert_eq!(problem_of(|fields| fields.visible_ascii("id", "job/1", 5)), None);
        for text in ["", "a b", "é", "longer"] {
            assert!(problem_of(|fields| fields.visible_ascii("id", text, 5)).is_some(), "{text}");
        }
    }

    #[test]
    fn numbers_enums_and_lengths_out_of_range_are_refused() {
        use proto::workercontrol::v1::WorkerStatus;
        assert!(problem_of(|fields| fields.number::<u64, i64>("nonce", u64::MAX)).is_some());
        let known = WorkerStatus::Running.into();
        assert_eq!(Fields::new().enumeration("status", known), Some(WorkerStatus::Running));
        let problem = problem_of(|fields| fields.enumeration::<WorkerStatus>("status", 99));
        assert_eq!(problem.as_deref(), Some("99 is not a known value"));
        let problem = problem_of(|fields| fields.bytes::<64>("signature", &[0; 3]));
        assert_eq!(problem.as_deref(), Some("has 3 bytes, expected 64"));
        let problem = problem_of(|fields| fields.count("items", 0, 1..=256));
        assert_eq!(problem.as_deref(), Some("must be 1 to 256, not 0"));
    }

    #[test]
    fn page_sizes_are_cut_or_refused_as_the_list_says() {
        let mut fields = Fields::new();
        assert_eq!(fields.page_size(0), Some(page::DEFAULT_SIZE));
        assert_eq!(fields.page_size(1_000_000), Some(page::MAX_SIZE));
        assert_eq!(fields.page_size_up_to(0, 100, 1000), Some(100));
        assert_eq!(fields.page_size_up_to(1000, 100, 1000), Some(1000));
        assert!(fields.done().is_ok());
        assert!(problem_of(|fields| fields.page_size(-1)).is_some());
        assert!(problem_of(|fields| fields.page_size_up_to(1001, 100, 1000)).is_some());
    }

    #[test]
    fn a_page_token_is_read_as_a_field() {
        let filter = page::Filter::of("jobs", &[]);
        let mut fields = Fields::new();
        assert_eq!(fields.page_token::<1>(filter, ""), None);
        let token = page::encode(filter, &["id-1"]);
        assert_eq!(fields.page_token(filter, &token), Some(["id-1".to_owned()]));
        assert!(fields.done().is_ok());
        let mut fields = Fields::new();
        assert_eq!(fields.page_token::<1>(filter, "!"), None);
        assert_eq!(wrong_fields(&fields.done().unwrap_err())[0].0, "page_token");
    }

    #[test]
    fn mistakes_found_by_the_domain_become_the_same_refusal() {
        let mut violations = Violations::from(Violation::new("tiers", "must be 1 to 8"));
        violations.extend([Violation::new("approvers", "is named twice")]);
        let violations = violations.under("policy");
        assert_eq!(violations.to_string(), "policy.tiers: must be 1 to 8; policy.approvers: is named twice");
        assert_eq!(wrong_fields(&violations.clone().into()).len(), 2);
        assert_eq!(violations.clone().or(1), Err(violations));
        assert_eq!(Violations::default().or(1), Ok(1));
    }
}
