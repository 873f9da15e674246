//! The rows of a batch of signing requests: one statement loads what the database holds about them, one writes all decisions.

mod load;
mod save;

pub(super) use load::load_in;
pub(super) use save::{BatchWrites, LogAppend, NewRecord, NewSlot, save_in};

/// Numbers that reach the database were bounded when they were parsed.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
