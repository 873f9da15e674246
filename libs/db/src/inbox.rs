//! What a receiver has already taken in, so that a message delivered twice acts once.
//!
//! Owns the `inbox` table (`sql/inbox.sql`). It never forgets, by itself or by retention: a message parked for months and then
//! requeued must still be recognised, and no receiver can know that its sender has no copy left. A row is an id and a time.
//! Where a table of the receiver already holds one row for each message (verdicts by their id, jobs by their withdrawal), that
//! row is the memory, and no inbox is needed.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::DbError;

/// The table, for tests; a service copies `sql/inbox.sql` into a migration of its own.
pub const INBOX_SCHEMA: &str = include_str!("../sql/inbox.sql");

/// Whether this message is new. Part of the caller's transaction: if that rolls back, the message is new again.
///
/// Two deliveries at once: the second waits here until the first commits, then learns that it is late.
pub async fn first_time_in(tx: &mut PgConnection, message_id: Uuid) -> Result<bool, DbError> {
    let inserted = sqlx::query("INSERT INTO inbox (message_id) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(message_id)
        .execute(tx)
        .await?;
    Ok(inserted.rows_affected() == 1)
}
