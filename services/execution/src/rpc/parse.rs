//! Reading fields. Mistakes are collected, so that a caller mends them in one go.

use std::fmt::Display;
use std::str::FromStr;

use tonic::Status;

/// The mistakes of one request.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<(String, String)>);

impl Mistakes {
    pub(super) fn note(&mut self, field: &str, problem: impl Display) {
        self.0.push((field.to_owned(), problem.to_string()));
    }

    /// A field that must parse.
    pub(super) fn parse<T>(&mut self, field: &str, text: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        text.parse().map_err(|error| self.note(field, error)).ok()
    }

    /// A field that may be empty.
    pub(super) fn parse_opt<T>(&mut self, field: &str, text: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        if text.is_empty() { None } else { self.parse(field, text) }
    }

    /// Refuses if anything was noted; `value` is then incomplete.
    pub(super) fn done<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ if self.0.is_empty() => Err(rpc::error::invalid("request", "is incomplete")),
            _ => Err(rpc::error::invalid_all(self.0)),
        }
    }

    /// Refuses if anything was noted.
    pub(super) fn none(self) -> Result<(), Status> {
        self.done(Some(()))
    }
}

/// A field that holds a message.
pub(super) fn required<T>(field: &str, value: Option<T>) -> Result<T, Status> {
    value.ok_or_else(|| rpc::error::invalid(field, "is missing"))
}

/// One field that must parse, alone.
pub(super) fn one<T>(field: &str, text: &str) -> Result<T, Status>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| rpc::error::invalid(field, error.to_string()))
}
