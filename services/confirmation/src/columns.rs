//! Columns of PostgreSQL to domain values and back, for all repositories.

use std::time::Duration;

use payment::BlockRef;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use types::{JobId, TxHash};

use crate::error::Error;

/// Block numbers and times fit in 63 bits for longer than any chain will last. A larger one becomes the largest, which no
/// query treats as final or due.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> Result<u64, Error> {
    u64::try_from(value).map_err(|error| Error::corrupt("number", error))
}

pub(crate) fn round(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 1_000_000)
}

pub(crate) fn bytes(hash: &TxHash) -> Vec<u8> {
    hash.as_bytes().to_vec()
}

pub(crate) fn job(row: &PgRow) -> Result<JobId, Error> {
    Ok(JobId::from_uuid(row.try_get("job_id")?))
}

pub(crate) fn number(row: &PgRow, column: &str) -> Result<u64, Error> {
    unsigned(row.try_get(column)?)
}

pub(crate) fn optional_number(row: &PgRow, column: &str) -> Result<Option<u64>, Error> {
    row.try_get::<Option<i64>, _>(column)?.map(unsigned).transpose()
}

pub(crate) fn hash(row: &PgRow, column: &str) -> Result<TxHash, Error> {
    Ok(TxHash::from(row.try_get::<[u8; 32], _>(column)?))
}

pub(crate) fn optional_hash(row: &PgRow, column: &str) -> Result<Option<TxHash>, Error> {
    Ok(row.try_get::<Option<[u8; 32]>, _>(column)?.map(TxHash::from))
}

/// A block in the columns `<prefix>_number` and `<prefix>_hash`, which are both null or both there.
pub(crate) fn optional_block(row: &PgRow, prefix: &str) -> Result<Option<BlockRef>, Error> {
    let number = optional_number(row, &format!("{prefix}_number"))?;
    let hash = optional_hash(row, &format!("{prefix}_hash"))?;
    Ok(number.zip(hash).map(|(number, hash)| BlockRef { number, hash }))
}

pub(crate) fn block(row: &PgRow) -> Result<BlockRef, Error> {
    Ok(BlockRef { number: number(row, "block_number")?, hash: hash(row, "block_hash")? })
}

pub(crate) fn hashes(row: &PgRow, column: &str) -> Result<Vec<TxHash>, Error> {
    Ok(row.try_get::<Vec<[u8; 32]>, _>(column)?.into_iter().map(TxHash::from).collect())
}
