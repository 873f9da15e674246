//! Compare-and-set: an update names the state it expects, and zero rows is a conflict.
//!
//! Owns only the check of the row count. It never retries: after a conflict the caller must read again and decide again.

use sqlx::postgres::PgQueryResult;

/// The row was not in the expected state: somebody else changed it first, or it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected to change one row, changed {rows}")]
pub struct Conflict {
    pub rows: u64,
}

/// Exactly one row was changed, or it is a conflict.
///
/// More than one row is a conflict too: the condition was not the key it was meant to be. Roll back then.
pub fn expect_one(result: PgQueryResult) -> Result<(), Conflict> {
    match result.rows_affected() {
        1 => Ok(()),
        rows => Err(Conflict { rows }),
    }
}

/// Exactly the expected number of rows was changed, or it is a conflict.
pub fn expect_rows(result: PgQueryResult, expected: usize) -> Result<(), Conflict> {
    match result.rows_affected() {
        rows if u64::try_from(expected) == Ok(rows) => Ok(()),
        rows => Err(Conflict { rows }),
    }
}
