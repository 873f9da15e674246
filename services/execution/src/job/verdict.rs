//! Taking verdicts: what confirmation proved becomes the job's state, once.
//!
//! Where it could hurt, and what holds:
//! - The same verdict arrives twice, or late: its id is a key, and a finding about a nonce the job no longer holds changes
//!   nothing.
//! - A worker is bumping the fee while the payment settles: the job's row is locked here; the worker's next write finds
//!   another status and ends. What it signed is at the same nonce.
//! - "Reverted" frees the job for another nonce: only together with the nonce being closed, and with the proof that the
//!   signer will ask for.
//! - What was called dead pays after all: noted as a contradiction, after which the job neither pays again nor fails.
//! - Confirmation decided before it heard of everything that was signed at the nonce: what it takes for somebody else's may be
//!   our own newest bytes, and they may have paid. A finding that does not name all of them closes nothing; confirmation is
//!   told again, and decides again.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row as _};
use types::{JobId, RawAmount, TxHash};
use uuid::Uuid;

use super::write::{Closing, apply_in};
use super::{Event, Finding, Job, JobError, JobsConfig, NonceFate, Step, VoidProof, repo, watch};
use crate::lane;
use crate::outbox::tell_in;
use crate::sql::bigint;

/// What a receipt said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub tx_hash: TxHash,
    pub block_number: u64,
    pub gas_used: u64,
    pub gas_price: u128,
    /// All that was taken, where that is more than gas.
    pub fee: Option<RawAmount>,
}

impl Receipt {
    pub(super) fn fee(&self) -> Option<RawAmount> {
        self.fee.or_else(|| RawAmount::from(self.gas_price).checked_mul(self.gas_used))
    }
}

/// What a finding rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// A final transaction of the job.
    Receipt(Receipt),
    /// No transaction of these can land.
    Void(Vec<TxHash>),
    /// A transaction that was seen or not seen; an end that rested on none has none.
    Hash(Option<TxHash>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub id: Uuid,
    pub job: JobId,
    pub at: DateTime<Utc>,
    pub finding: Finding,
    pub evidence: Evidence,
    /// For a finding after which another nonce may be used.
    pub proof: Option<VoidProof>,
}

/// Records one verdict, alone. A replay is no news.
pub(super) async fn record_in(
    tx: &mut PgConnection,
    config: &JobsConfig,
    verdict: &Verdict,
) -> Result<(), JobError> {
    let job = repo::lock_in(tx, verdict.job).await?;
    let meant = meant_in(tx, &job, verdict).await?;
    if !note_in(tx, verdict, meant.as_ref().unwrap_or(&verdict.finding)).await? {
        return Ok(());
    }
    let Some(finding) = meant else {
        tracing::info!(job_id = %job.id, finding = verdict.finding.name(), "verdict about a closed nonce");
        return Ok(());
    };
    if finding == Finding::Reopened {
        return send_again_in(tx, &job).await;
    }
    if let Some(unnamed) = unnamed_in(tx, &job, verdict).await? {
        tracing::warn!(
            job_id = %job.id, chain = %job.chain, finding = finding.name(), tx_hash = %unnamed,
            "verdict without all that was signed; confirmation is told again"
        );
        let told = watch::watches_in(tx, &[(&job, job.nonce)]).await?;
        return Ok(tell_in(tx, &told).await?);
    }
    let mut standing = job.standing();
    // Another nonce needs confirmation's signature; where there is none, the closed nonce is the end.
    standing.retreat &= verdict.proof.is_some();
    let Step::Changed(change) = standing.apply(&Event::Verdict(finding.clone()))? else {
        return Ok(());
    };
    if change.nonce != NonceFate::Keep || matches!(finding, Finding::Settled { .. }) {
        close_attempts_in(tx, &job, verdict).await?;
        keep_proof_in(tx, &job, verdict.proof.as_ref()).await?;
    }
    let value_moved = matches!(finding, Finding::Reverted { value_moved: true, .. });
    let paid_in_block = match (&finding, &verdict.evidence) {
        (Finding::Settled { .. }, Evidence::Receipt(receipt)) => Some(receipt.block_number),
        (_, Evidence::Receipt(receipt)) if value_moved => Some(receipt.block_number),
        _ => None,
    };
    apply_in(tx, &job, &change, &config.schedule, Closing { paid_in_block, value_moved }).await?;
    look_after_lane_in(tx, config, &job, &finding).await
}

/// What the verdict means for the job as it stands; `None` if it is about a nonce that the job no longer holds.
async fn meant_in(tx: &mut PgConnection, job: &Job, verdict: &Verdict) -> Result<Option<Finding>, JobError> {
    let finding = &verdict.finding;
    match &verdict.evidence {
        Evidence::Receipt(receipt) => Ok(match (hold_in(tx, job, &receipt.tx_hash).await?, finding) {
            (Hold::Current, _) => Some(finding.clone()),
            // Called dead, and it paid after all: nobody but a person can say what that means.
            (Hold::Dead, Finding::Settled { tx_hash }) => {
                Some(Finding::Contradicted { reason: format!("{tx_hash} paid, though it was called dead") })
            }
            (Hold::Dead | Hold::Settled, _) => None,
        }),
        Evidence::Void(hashes) => Ok(names_live_in(tx, job, hashes).await?.then(|| finding.clone())),
        Evidence::Hash(_) => Ok(Some(finding.clone())),
    }
}

/// Whether one of these could land at the nonce the job holds, or without one because another system sent it.
async fn names_live_in(tx: &mut PgConnection, job: &Job, hashes: &[TxHash]) -> Result<bool, JobError> {
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

fn bytes(hashes: &[TxHash]) -> Vec<Vec<u8>> {
    hashes.iter().map(|hash| hash.as_bytes().to_vec()).collect()
}

/// A transaction that could land at the job's nonce and that the verdict, which says that none can, does not name.
async fn unnamed_in(tx: &mut PgConnection, job: &Job, verdict: &Verdict) -> Result<Option<TxHash>, JobError> {
    let named = match (&verdict.evidence, &verdict.proof) {
        (Evidence::Void(hashes), _) => hashes,
        (Evidence::Receipt(_) | Evidence::Hash(_), Some(proof)) => &proof.tx_hashes,
        (Evidence::Receipt(_) | Evidence::Hash(_), None) => return Ok(None),
    };
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
    Ok(row.map(|row| repo::hash(&row, "tx_hash")).transpose()?.flatten())
}

/// With a nonce goes the proof about what was signed at it. A nonce that closes without one leaves none behind: an older
/// proof says nothing about it.
async fn keep_proof_in(tx: &mut PgConnection, job: &Job, proof: Option<&VoidProof>) -> Result<(), JobError> {
    let proof = proof.map(serde_json::to_value).transpose()?;
    sqlx::query(
        "UPDATE jobs SET void_proof = $2 WHERE id = $1 AND (void_proof IS NOT NULL OR $2::jsonb IS NOT NULL)",
    )
    .bind(job.id.as_uuid())
    .bind(proof)
    .execute(tx)
    .await?;
    Ok(())
}

/// A foreign transaction at one of our nonces means that somebody else has the key, or that a person used it.
async fn look_after_lane_in(
    tx: &mut PgConnection,
    config: &JobsConfig,
    job: &Job,
    finding: &Finding,
) -> Result<(), JobError> {
    let (Finding::Void { reason }, Some(payer), Some(nonce)) = (finding, &job.payer, job.nonce) else {
        return Ok(());
    };
    tracing::error!(
        chain = %job.chain, address = %payer.address, nonce, job_id = %job.id, reason, "foreign transaction at our nonce"
    );
    ::metrics::counter!("bursar_execution_foreign_transactions_total", "chain" => job.chain.to_string())
        .increment(1);
    if config.halt_on_foreign {
        let reason = format!("nonce {nonce} was used by a transaction that is not ours: {reason}");
        lane::repo::halt_in(tx, &job.chain, &payer.address, &reason).await?;
    }
    Ok(())
}

/// Remembers the verdict as what it meant; false if it was recorded before.
async fn note_in(tx: &mut PgConnection, verdict: &Verdict, meant: &Finding) -> Result<bool, JobError> {
    let noted = sqlx::query(
        "INSERT INTO verdicts (id, job_id, finding, detail, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING",
    )
    .bind(verdict.id)
    .bind(verdict.job.as_uuid())
    .bind(meant.name())
    .bind(format!("{:?}", verdict.evidence))
    .bind(verdict.at)
    .execute(tx)
    .await?;
    Ok(noted.rows_affected() == 1)
}

/// How a transaction of a job stands with it.
enum Hold {
    /// At the nonce it holds, or without one because another system sent it.
    Current,
    /// Final already, by an earlier verdict.
    Settled,
    /// Void, reverted, or at a nonce that is closed.
    Dead,
}

async fn hold_in(tx: &mut PgConnection, job: &Job, hash: &TxHash) -> Result<Hold, JobError> {
    let row = sqlx::query("SELECT nonce, status FROM attempts WHERE job_id = $1 AND tx_hash = $2")
        .bind(job.id.as_uuid())
        .bind(hash.as_bytes().to_vec())
        .fetch_optional(tx)
        .await?;
    let Some(row) = row else { return Err(JobError::ForeignHash { job: job.id, tx_hash: *hash }) };
    let nonce: Option<i64> = row.try_get("nonce")?;
    let held = nonce.is_none_or(|nonce| job.nonce.map(bigint) == Some(nonce));
    Ok(match row.try_get("status")? {
        "settled" => Hold::Settled,
        "signed" | "broadcast" if held => Hold::Current,
        _ => Hold::Dead,
    })
}

/// The bytes go out again at the resend loop's next look.
async fn send_again_in(tx: &mut PgConnection, job: &Job) -> Result<(), JobError> {
    sqlx::query(
        "UPDATE attempts SET last_sent_at = NULL WHERE job_id = $1 AND status IN ('signed', 'broadcast')",
    )
    .bind(job.id.as_uuid())
    .execute(tx)
    .await?;
    tracing::warn!(job_id = %job.id, chain = %job.chain, "a block that held the payment was undone; sending again");
    Ok(())
}

/// The winner of the nonce gets its receipt, everybody else at it can never land.
async fn close_attempts_in(tx: &mut PgConnection, job: &Job, verdict: &Verdict) -> Result<(), JobError> {
    if let Evidence::Receipt(receipt) = &verdict.evidence {
        let status = match &verdict.finding {
            Finding::Reverted { .. } => "reverted",
            Finding::Settled { .. }
            | Finding::Cancelled
            | Finding::Void { .. }
            | Finding::Expired { .. }
            | Finding::Stuck
            | Finding::Reopened
            | Finding::Contradicted { .. } => "settled",
        };
        sqlx::query(
            "UPDATE attempts SET status = $3, gas_used = $4::numeric, gas_price = $5::numeric, block_number = $6
             WHERE job_id = $1 AND tx_hash = $2",
        )
        .bind(job.id.as_uuid())
        .bind(receipt.tx_hash.as_bytes().to_vec())
        .bind(status)
        .bind(receipt.gas_used.to_string())
        .bind(receipt.gas_price.to_string())
        .bind(bigint(receipt.block_number))
        .execute(&mut *tx)
        .await?;
        if let Some(fee) = receipt.fee() {
            sqlx::query("UPDATE jobs SET fee_paid_raw = fee_paid_raw + $2::numeric WHERE id = $1")
                .bind(job.id.as_uuid())
                .bind(fee.to_string())
                .execute(&mut *tx)
                .await?;
        }
        crate::metrics::gas_used(job, receipt.gas_used);
    }
    sqlx::query("UPDATE attempts SET status = 'void' WHERE job_id = $1 AND status IN ('reserved', 'signed', 'broadcast')")
        .bind(job.id.as_uuid())
        .execute(tx)
        .await?;
    Ok(())
}
