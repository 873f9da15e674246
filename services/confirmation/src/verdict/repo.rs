//! Verdicts and observations between the tables and the domain. Rows are only ever added.

use chrono::{DateTime, Utc};
use payment::BlockRef;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use types::{JobId, TxHash};
use uuid::Uuid;

use crate::columns::{self, bytes, signed};
use crate::error::Error;

/// How many observations of one watch are shown.
const MAX_OBSERVATIONS: i64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ObservationKind {
    Seen,
    Undone,
    Final,
    Closed,
    Overdue,
    Delayed,
    Contradicted,
    Round,
}

/// Something seen of a watch, for people who must understand a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub job: JobId,
    pub kind: ObservationKind,
    pub tx: Option<TxHash>,
    pub block: Option<BlockRef>,
    pub detail: String,
}

pub async fn observe_in(tx: &mut PgConnection, seen: &[Observation]) -> Result<(), Error> {
    if seen.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO observations (job_id, kind, tx_hash, block_number, block_hash, detail)
         SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::bytea[], $6::text[])",
    )
    .bind(seen.iter().map(|seen| seen.job.as_uuid()).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.kind.into()).collect::<Vec<&'static str>>())
    .bind(seen.iter().map(|seen| seen.tx.as_ref().map(bytes)).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.block.map(|block| signed(block.number))).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.block.map(|block| bytes(&block.hash))).collect::<Vec<_>>())
    .bind(seen.iter().map(|seen| seen.detail.as_str()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObservation {
    pub kind: String,
    pub tx: Option<TxHash>,
    pub block: Option<BlockRef>,
    pub detail: String,
    pub at: DateTime<Utc>,
}

/// What was observed of one watch, oldest first; of a long history the newest.
pub async fn observations(pool: &PgPool, job: JobId) -> Result<Vec<StoredObservation>, Error> {
    let rows = sqlx::query(
        "SELECT kind, tx_hash, block_number, block_hash, detail, at FROM observations
         WHERE job_id = $1 ORDER BY id DESC LIMIT $2",
    )
    .bind(job.as_uuid())
    .bind(MAX_OBSERVATIONS)
    .fetch_all(pool)
    .await?;
    rows.iter().rev().map(observation).collect()
}

fn observation(row: &PgRow) -> Result<StoredObservation, Error> {
    Ok(StoredObservation {
        kind: row.try_get("kind")?,
        tx: columns::optional_hash(row, "tx_hash")?,
        block: columns::optional_block(row, "block")?,
        detail: row.try_get("detail")?,
        at: row.try_get("at")?,
    })
}

#[derive(Debug, Clone)]
pub struct VerdictRow {
    pub id: Uuid,
    pub job: JobId,
    pub round: u32,
    pub kind: &'static str,
    /// The encoded `bursar.execution.v1.Verdict`.
    pub payload: Vec<u8>,
}

pub async fn insert_in(
    tx: &mut PgConnection,
    verdicts: &[VerdictRow],
    at: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO verdicts (id, job_id, round, kind, payload, at)
         SELECT *, $6 FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::bytea[])",
    )
    .bind(verdicts.iter().map(|verdict| verdict.id).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| verdict.job.as_uuid()).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| columns::round(verdict.round)).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| verdict.kind).collect::<Vec<_>>())
    .bind(verdicts.iter().map(|verdict| verdict.payload.as_slice()).collect::<Vec<_>>())
    .bind(at)
    .execute(tx)
    .await?;
    Ok(())
}
