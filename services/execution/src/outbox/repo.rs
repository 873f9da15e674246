//! The time that messages carry.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

/// The database's time now. It is not the time at which the transaction began, which may lie before that of a transaction it
/// waited for.
pub(super) async fn now_in(tx: &mut PgConnection) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(tx).await
}
