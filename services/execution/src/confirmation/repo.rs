//! SQL of verdicts and of what they settle.

use std::collections::HashSet;

use payment::{Finding, Inclusion, Verdict, VoidProof};
use sqlx::PgConnection;
use types::TxHash;
use uuid::Uuid;

use crate::job::repo::{proof_document, read_hash};
use crate::job::{AttemptStatus, Job, JobError};
use crate::row::{bigint, opt_number, text};

/// The finding as recorded: a window that closed has a name of its own.
pub(super) fn name(finding: &Finding) -> &'static str {
    match finding {
        Finding::Void { foreign: None, .. } => "expired",
        Finding::Void { foreign: Some(_), .. }
        | Finding::Settled(_)
        | Finding::Reverted { .. }
        | Finding::Cancelled { .. }
        | Finding::Stuck { .. }
        | Finding::Reopened { .. }
        | Finding::Contradicted { .. } => finding.name(),
    }
}

/// Records the verdict with what it means for the job; false if it was recorded before.
pub(super) async fn insert_in(
    tx: &mut PgConnection,
    verdict: &Verdict,
    meaning: &Finding,
) -> Result<bool, JobError> {
    let inserted = sqlx::query(
        "INSERT INTO verdicts (id, job_id, finding, detail, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING",
    )
    .bind(verdict.id)
    .bind(verdict.job.as_uuid())
    .bind(name(meaning))
    .bind(format!("{:?}", verdict.finding))
    .bind(verdict.at)
    .execute(tx)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

/// Whether a transaction of a job can still decide about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    /// At the nonce that the job holds, or without one because another system sent it.
    Current,
    /// Final already, by an earlier verdict.
    Settled,
    /// Void, reverted, or at a nonce that is closed.
    Dead,
}

pub(super) async fn liveness_in(
    tx: &mut PgConnection,
    job: &Job,
    hash: &TxHash,
) -> Result<Liveness, JobError> {
    let row = sqlx::query("SELECT nonce, status FROM attempts WHERE job_id = $1 AND tx_hash = $2")
        .bind(job.id.as_uuid())
        .bind(hash.as_bytes().to_vec())
        .fetch_optional(tx)
        .await?;
    let Some(row) = row else { return Err(JobError::ForeignHash { job: job.id, tx_hash: *hash }) };
    let held = opt_number(&row, "nonce")?.is_none_or(|nonce| job.nonce == Some(nonce));
    Ok(match text::<AttemptStatus>(&row, "status")? {
        AttemptStatus::Settled => Liveness::Settled,
        AttemptStatus::Signed | AttemptStatus::Broadcast if held => Liveness::Current,
        AttemptStatus::Signed
        | AttemptStatus::Broadcast
        | AttemptStatus::Reserved
        | AttemptStatus::Reverted
        | AttemptStatus::Void => Liveness::Dead,
    })
}

/// Whether one of these could land at the nonce that the job holds, or without one because another system sent it.
pub(super) async fn has_live_in(
    tx: &mut PgConnection,
    job: &Job,
    hashes: &[TxHash],
) -> Result<bool, JobError> {
    let live = sqlx::query_scalar(
        "SELECT EXISTS (
             SELECT FROM attempts
             WHERE job_id = $1 AND nonce IS NOT DISTINCT FROM $2 AND status IN ('signed', 'broadcast')
               AND tx_hash = ANY ($3)
         )",
    );
    let live = live.bind(job.id.as_uuid()).bind(job.nonce.map(bigint)).bind(bytes(hashes));
    Ok(live.fetch_one(tx).await?)
}

/// A transaction that could land at the job's nonce and is none of these.
pub(super) async fn live_besides_in(
    tx: &mut PgConnection,
    job: &Job,
    named: &[TxHash],
) -> Result<Option<TxHash>, JobError> {
    let row = sqlx::query(
        "SELECT tx_hash FROM attempts
         WHERE job_id = $1 AND nonce = $2 AND status IN ('signed', 'broadcast') AND tx_hash <> ALL ($3)
         ORDER BY number LIMIT 1",
    )
    .bind(job.id.as_uuid())
    .bind(job.nonce.map(bigint))
    .bind(bytes(named))
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| read_hash(&row, "tx_hash")).transpose()?.flatten())
}

fn bytes(hashes: &[TxHash]) -> Vec<Vec<u8>> {
    hashes.iter().map(|hash| hash.as_bytes().to_vec()).collect()
}

/// Stores the proof about what was signed at the nonce that closes. A nonce that closes without one removes an older proof,
/// which says nothing about it.
pub(super) async fn keep_proof_in(
    tx: &mut PgConnection,
    job: &Job,
    proof: Option<&VoidProof>,
) -> Result<(), JobError> {
    sqlx::query(
        "UPDATE jobs SET void_proof = $2 WHERE id = $1 AND (void_proof IS NOT NULL OR $2::jsonb IS NOT NULL)",
    )
    .bind(job.id.as_uuid())
    .bind(proof_document(proof)?)
    .execute(tx)
    .await?;
    Ok(())
}

/// The winner of the nonce gets its receipt; every other attempt at it can never land.
pub(super) async fn close_attempts_in(
    tx: &mut PgConnection,
    job: &Job,
    finding: &Finding,
) -> Result<(), JobError> {
    if let Some(inclusion) = finding.inclusion() {
        let status = match finding {
            Finding::Reverted { .. } => AttemptStatus::Reverted,
            Finding::Settled(_)
            | Finding::Cancelled { .. }
            | Finding::Void { .. }
            | Finding::Stuck { .. }
            | Finding::Reopened { .. }
            | Finding::Contradicted { .. } => AttemptStatus::Settled,
        };
        sqlx::query(
            "UPDATE attempts SET status = $3, gas_used = $4::numeric, gas_price = $5::numeric, block_number = $6
             WHERE job_id = $1 AND tx_hash = $2",
        )
        .bind(job.id.as_uuid())
        .bind(inclusion.tx.as_bytes().to_vec())
        .bind(<&'static str>::from(status))
        .bind(inclusion.cost.units.to_string())
        .bind(inclusion.cost.unit_price.to_string())
        .bind(bigint(inclusion.block_number))
        .execute(&mut *tx)
        .await?;
        sqlx::query("UPDATE jobs SET fee_paid_raw = fee_paid_raw + $2::numeric WHERE id = $1")
            .bind(job.id.as_uuid())
            .bind(inclusion.cost.fee.to_string())
            .execute(&mut *tx)
            .await?;
    }
    sqlx::query("UPDATE attempts SET status = 'void' WHERE job_id = $1 AND status IN ('reserved', 'signed', 'broadcast')")
        .bind(job.id.as_uuid())
        .execute(tx)
        .await?;
    Ok(())
}

/// Those of these verdicts that are recorded already.
pub(super) async fn known_in(tx: &mut PgConnection, verdicts: &[Verdict]) -> Result<HashSet<Uuid>, JobError> {
    let ids: Vec<Uuid> = verdicts.iter().map(|verdict| verdict.id).collect();
    let known: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM verdicts WHERE id = ANY ($1)").bind(ids).fetch_all(tx).await?;
    Ok(known.into_iter().collect())
}

/// A job that simply settled.
pub(super) struct PlainSettlement<'a> {
    pub verdict: &'a Verdict,
    pub job: Job,
    pub inclusion: Inclusion,
}

/// Writes plain settlements in a handful of statements for all of them.
pub(super) async fn settle_all_in(
    tx: &mut PgConnection,
    settled: &[PlainSettlement<'_>],
) -> Result<(), JobError> {
    let jobs: Vec<Uuid> = settled.iter().map(|one| one.job.id.as_uuid()).collect();
    let hashes: Vec<Vec<u8>> = settled.iter().map(|one| one.inclusion.tx.as_bytes().to_vec()).collect();
    let column =
        |of: fn(&Inclusion) -> String| settled.iter().map(|one| of(&one.inclusion)).collect::<Vec<_>>();
    sqlx::query(
        "INSERT INTO verdicts (id, job_id, finding, detail, at)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[])",
    )
    .bind(settled.iter().map(|one| one.verdict.id).collect::<Vec<_>>())
    .bind(&jobs)
    .bind(settled.iter().map(|one| name(&one.verdict.finding)).collect::<Vec<_>>())
    .bind(settled.iter().map(|one| format!("{:?}", one.verdict.finding)).collect::<Vec<_>>())
    .bind(settled.iter().map(|one| one.verdict.at).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    sqlx::query(include_str!("../../queries/settle_attempts.sql"))
        .bind(&jobs)
        .bind(&hashes)
        .bind(column(|inclusion| inclusion.cost.units.to_string()))
        .bind(column(|inclusion| inclusion.cost.unit_price.to_string()))
        .bind(settled.iter().map(|one| bigint(one.inclusion.block_number)).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "UPDATE lane_nonces SET state = 'closed', closed_by = 'payment', closed_at = now()
         WHERE job_id = ANY ($1) AND state = 'open'",
    )
    .bind(&jobs)
    .execute(&mut *tx)
    .await?;
    let updated = sqlx::query(include_str!("../../queries/settle_jobs.sql"))
        .bind(&jobs)
        .bind(&hashes)
        .bind(column(|inclusion| inclusion.cost.fee.to_string()))
        .execute(&mut *tx)
        .await?;
    db::cas::expect_rows(updated, settled.len()).map_err(|_| JobError::Conflict)?;
    let reserved: Vec<(&PlainSettlement<'_>, Uuid)> = settled
        .iter()
        .filter(|one| one.job.reserved)
        .filter_map(|one| Some((one, one.job.payer.as_ref()?.wallet.as_uuid())))
        .collect();
    sqlx::query(include_str!("../../queries/release_many.sql"))
        .bind(reserved.iter().map(|(_, wallet)| *wallet).collect::<Vec<_>>())
        .bind(reserved.iter().map(|(one, _)| one.job.asset.as_uuid()).collect::<Vec<_>>())
        .bind(reserved.iter().map(|(one, _)| one.job.amount.to_string()).collect::<Vec<_>>())
        .bind(reserved.iter().map(|(one, _)| bigint(one.inclusion.block_number)).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}
