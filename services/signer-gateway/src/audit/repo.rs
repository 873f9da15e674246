//! Rows of the audit log. Moving the single head row gives every decision of the signer, on every replica, one order.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool, Postgres, Row, Transaction};

use super::{AuditEntry, Draft, Hash, Head};

/// Locks the head until the transaction ends and returns the database's time. Whoever holds this lock is the only one to decide.
pub(crate) async fn lock_head_in(
    connection: &mut PgConnection,
) -> Result<(Head, DateTime<Utc>), sqlx::Error> {
    // PostgreSQL computes the row again once the lock is granted, clock included, so times never run backwards.
    let row = sqlx::query("SELECT sequence, hash, clock_timestamp() AS at FROM audit_head FOR UPDATE")
        .fetch_one(connection)
        .await?;
    Ok((head_of(&row)?, row.try_get("at")?))
}

/// Appends a decision in a transaction of the caller.
pub(crate) async fn append_in(connection: &mut PgConnection, draft: Draft) -> Result<(), sqlx::Error> {
    let (mut head, at) = lock_head_in(&mut *connection).await?;
    let entry = head.append(at, draft);
    sqlx::query(include_str!("../../queries/audit_insert.sql"))
        .bind(signed(entry.sequence))
        .bind(entry.at)
        .bind(&entry.caller)
        .bind(&entry.action)
        .bind(&entry.decision)
        .bind(&entry.reason)
        .bind(&entry.detail)
        .bind(entry.previous_hash.0.as_slice())
        .bind(entry.hash.0.as_slice())
        .execute(connection)
        .await?;
    Ok(())
}

/// A transaction in which every statement sees the same rows, and which writes nothing.
pub(super) async fn begin_snapshot(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let mut tx = db::begin(pool).await?;
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut *tx).await?;
    Ok(tx)
}

pub(super) async fn page(
    connection: &mut PgConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<AuditEntry>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT sequence, at, caller, action, decision, reason, detail, previous_hash, hash \
         FROM audit_log WHERE sequence > $1 ORDER BY sequence LIMIT $2",
    )
    .bind(signed(after))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(entry_of).collect()
}

/// The head, without a lock.
pub(super) async fn head_in(connection: &mut PgConnection) -> Result<Head, sqlx::Error> {
    head_of(&sqlx::query("SELECT sequence, hash FROM audit_head").fetch_one(connection).await?)
}

/// A part of the log; open where it has no bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) after: Option<u64>,
    pub(super) to: Option<u64>,
}

/// The first signing record of a part that the log does not confirm.
pub(super) async fn stray_record(
    connection: &mut PgConnection,
    range: Range,
) -> Result<Option<(String, u64)>, sqlx::Error> {
    let row = sqlx::query(include_str!("../../queries/audit_stray_record.sql"))
        .bind(range.after.map_or(i64::MIN, signed))
        .bind(range.to.map_or(i64::MAX, signed))
        .fetch_optional(connection)
        .await?;
    row.map(|row| Ok((row.try_get("idempotency_key")?, unsigned(row.try_get("audit_sequence")?)))).transpose()
}

fn entry_of(row: &sqlx::postgres::PgRow) -> Result<AuditEntry, sqlx::Error> {
    Ok(AuditEntry {
        sequence: unsigned(row.try_get("sequence")?),
        at: row.try_get("at")?,
        caller: row.try_get("caller")?,
        action: row.try_get("action")?,
        decision: row.try_get("decision")?,
        reason: row.try_get("reason")?,
        detail: row.try_get("detail")?,
        previous_hash: hash_of(row, "previous_hash")?,
        hash: hash_of(row, "hash")?,
    })
}

fn head_of(row: &sqlx::postgres::PgRow) -> Result<Head, sqlx::Error> {
    Ok(Head { sequence: unsigned(row.try_get("sequence")?), hash: hash_of(row, "hash")? })
}

fn hash_of(row: &sqlx::postgres::PgRow, column: &str) -> Result<Hash, sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(column)?;
    // The table's constraint keeps every hash at 32 bytes; a row that got around it must show up as an edit.
    Ok(Hash(bytes.try_into().unwrap_or([0xff; 32])))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
