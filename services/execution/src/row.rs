//! Reading columns into values: text that must parse, numbers that must not be negative. A row that does not fit is a
//! decoding error that names the column, never a default.

use std::error::Error;
use std::str::FromStr;

use sqlx::postgres::PgRow;
use sqlx::{Error as SqlxError, Row as _};
use types::RawAmount;

/// An error of this column.
pub(crate) fn bad_column(column: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> SqlxError {
    SqlxError::ColumnDecode { index: column.to_owned(), source: source.into() }
}

/// A column whose text is a value of ours.
pub(crate) fn text<T>(row: &PgRow, column: &str) -> Result<T, SqlxError>
where
    T: FromStr,
    T::Err: Error + Send + Sync + 'static,
{
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error: T::Err| bad_column(column, error))
}

/// The same where NULL is possible.
pub(crate) fn opt_text<T>(row: &PgRow, column: &str) -> Result<Option<T>, SqlxError>
where
    T: FromStr,
    T::Err: Error + Send + Sync + 'static,
{
    let text: Option<&str> = row.try_get(column)?;
    text.map(str::parse).transpose().map_err(|error: T::Err| bad_column(column, error))
}

/// A raw amount, selected as `column::text`.
pub(crate) fn amount(row: &PgRow, column: &str) -> Result<RawAmount, SqlxError> {
    text(row, column)
}

/// A number that is never negative.
pub(crate) fn unsigned(row: &PgRow, column: &str) -> Result<u64, SqlxError> {
    let value: i64 = row.try_get(column)?;
    u64::try_from(value).map_err(|error| bad_column(column, error))
}

/// The same where NULL is possible.
pub(crate) fn opt_number(row: &PgRow, column: &str) -> Result<Option<u64>, SqlxError> {
    let value: Option<i64> = row.try_get(column)?;
    value.map(|_| unsigned(row, column)).transpose()
}

/// A count that is never negative.
pub(crate) fn count(row: &PgRow, column: &str) -> Result<u32, SqlxError> {
    let value: i32 = row.try_get(column)?;
    u32::try_from(value).map_err(|error| bad_column(column, error))
}

/// How a number of ours goes into `bigint`: what does not fit is refused by the constraint, not wrapped.
pub(crate) fn bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(-1)
}
