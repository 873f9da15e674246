//! Rows of the audit log. Moving the single head row gives every decision of the signer, on every replica, one order.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool, Row};

use super::{Draft, Entry, Hash, Head};

const INSERT: &str = include_str!("../../queries/audit_insert.sql");
const PAGE: &str = "SELECT sequence, at, caller, action, decision, reason, detail, previous_hash, hash \
                    FROM audit_log WHERE sequence > $1 ORDER BY sequence LIMIT $2";

/// Locks the head until the transaction ends and tells the database's time. Whoever holds this lock decides alone.
pub(crate) async fn lock_head_in(
    connection: &mut PgConnection,
) -> Result<(Head, DateTime<Utc>), sqlx::Error> {
    // A waiter's row is computed again once the lock is granted, clock included: times never run backwards.
    let row = sqlx::query("SELECT sequence, hash, clock_timestamp() AS at FROM audit_head FOR UPDATE")
        .fetch_one(connection)
        .await?;
    Ok((head_of(&row)?, row.try_get("at")?))
}

pub(crate) async fn append_in(connection: &mut PgConnection, drafts: Vec<Draft>) -> Result<(), sqlx::Error> {
    let (mut head, at) = lock_head_in(&mut *connection).await?;
    let entries: Vec<Entry> = drafts.into_iter().map(|draft| head.append(at, draft)).collect();
    insert_in(connection, &entries, head).await
}

/// Writes entries that were appended to the locked head, and the head itself.
async fn insert_in(connection: &mut PgConnection, entries: &[Entry], head: Head) -> Result<(), sqlx::Error> {
    let sequences: Vec<i64> = entries.iter().map(|entry| signed(entry.sequence)).collect();
    let times: Vec<DateTime<Utc>> = entries.iter().map(|entry| entry.at).collect();
    let text = |field: fn(&Entry) -> &str| entries.iter().map(field).collect::<Vec<&str>>();
    let previous: Vec<&[u8]> = entries.iter().map(|entry| entry.previous_hash.0.as_slice()).collect();
    let hashes: Vec<&[u8]> = entries.iter().map(|entry| entry.hash.0.as_slice()).collect();
    sqlx::query(INSERT)
        .bind(sequences)
        .bind(times)
        .bind(text(|entry| &entry.caller))
        .bind(text(|entry| &entry.action))
        .bind(text(|entry| &entry.decision))
        .bind(text(|entry| &entry.reason))
        .bind(text(|entry| &entry.detail))
        .bind(previous)
        .bind(hashes)
        .bind(signed(head.sequence))
        .bind(head.hash.0.as_slice())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn page(
    connection: &mut PgConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<Entry>, sqlx::Error> {
    let rows = sqlx::query(PAGE).bind(signed(after)).bind(i64::from(limit)).fetch_all(connection).await?;
    rows.iter().map(entry_of).collect()
}

/// The head as it stands, without a lock.
pub(super) async fn head(pool: &PgPool) -> Result<Head, sqlx::Error> {
    head_of(&sqlx::query("SELECT sequence, hash FROM audit_head").fetch_one(pool).await?)
}

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

fn entry_of(row: &sqlx::postgres::PgRow) -> Result<Entry, sqlx::Error> {
    Ok(Entry {
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
