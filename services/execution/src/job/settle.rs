//! Verdicts in groups. Nearly all are "settled" about a confirming job with one live transaction: those are written in a
//! handful of statements for the whole group. Whatever is not that plain goes the long way (`verdict`), one by one, each in a
//! savepoint of its own.
//!
//! Invariant: the short way does exactly what the long way would; which of the two a verdict takes changes nothing but speed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sqlx::{Connection as _, PgConnection, PgPool};
use telemetry::crash_point;
use types::{JobId, TxHash};
use uuid::Uuid;

use super::error::Answer;
use super::verdict::record_in;
use super::{
    Again, Attempt, AttemptStatus, Change, Event, Evidence, Finding, Job, JobError, JobsConfig, NonceFate,
    Receipt, State, Step, Verdict, repo,
};
use crate::sql::bigint;

/// A job that simply settled.
struct Plain {
    verdict: Verdict,
    job: Job,
    receipt: Receipt,
    change: Change,
}

/// Records all of these in one transaction; one answer for each, in order.
pub(super) async fn record_group(
    pool: &PgPool,
    config: &JobsConfig,
    verdicts: &[Verdict],
) -> Result<Vec<Answer<()>>, JobError> {
    let mut tx = db::begin(pool).await?;
    let plain = plain_in(&mut tx, verdicts).await?;
    let settled: HashSet<Uuid> = plain.iter().map(|plain| plain.verdict.id).collect();
    settle_in(&mut tx, plain).await?;
    let mut answers = Vec::with_capacity(verdicts.len());
    for verdict in verdicts {
        if settled.contains(&verdict.id) {
            answers.push(Ok(()));
            continue;
        }
        let mut savepoint = tx.begin().await?;
        match record_in(&mut savepoint, config, verdict).await {
            Ok(()) => {
                savepoint.commit().await?;
                answers.push(Ok(()));
            }
            // A broken connection breaks the group; a refusal is this verdict's alone.
            Err(JobError::Database(error)) => return Err(error.into()),
            Err(error) => {
                savepoint.rollback().await?;
                answers.push(Err(error));
            }
        }
    }
    crash_point("execution.before_verdict");
    tx.commit().await?;
    crash_point("execution.after_verdict");
    Ok(answers)
}

/// Locks the jobs and picks those whose verdict is plain and new.
async fn plain_in(tx: &mut PgConnection, verdicts: &[Verdict]) -> Result<Vec<Plain>, JobError> {
    let mut once = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for verdict in verdicts {
        if !once.insert(verdict.job.as_uuid()) {
            twice.insert(verdict.job.as_uuid());
        }
    }
    let wanted: BTreeMap<JobId, &Verdict> = verdicts
        .iter()
        .filter(|verdict| {
            matches!(verdict.finding, Finding::Settled { .. }) && !twice.contains(&verdict.job.as_uuid())
        })
        .map(|verdict| (verdict.job, verdict))
        .collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = wanted.keys().map(JobId::as_uuid).collect();
    repo::lock_all_in(tx, &ids).await?;
    let jobs = repo::by_ids(&mut *tx, &ids).await?;
    let attempts = repo::attempts(&mut *tx, &ids).await?;
    let known: HashSet<Uuid> = seen_in(tx, verdicts).await?;
    let plain = jobs.into_iter().filter_map(|job| {
        let verdict = (*wanted.get(&job.id)?).clone();
        let Evidence::Receipt(receipt) = verdict.evidence else { return None };
        let of_job = attempts.get(&job.id).map(Vec::as_slice).unwrap_or_default();
        if known.contains(&verdict.id) || !is_plain(&job, of_job, &receipt.tx_hash) {
            return None;
        }
        match job.standing().apply(&Event::Verdict(verdict.finding.clone())) {
            Ok(Step::Changed(change)) if is_short(&change) => Some(Plain { verdict, job, receipt, change }),
            Ok(_) | Err(_) => None,
        }
    });
    Ok(plain.collect())
}

async fn seen_in(tx: &mut PgConnection, verdicts: &[Verdict]) -> Result<HashSet<Uuid>, JobError> {
    let ids: Vec<Uuid> = verdicts.iter().map(|verdict| verdict.id).collect();
    let seen: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM verdicts WHERE id = ANY ($1)").bind(ids).fetch_all(tx).await?;
    Ok(seen.into_iter().collect())
}

/// A confirming job that nothing else is the matter with, and a live transaction at the nonce it holds.
fn is_plain(job: &Job, attempts: &[Attempt], hash: &TxHash) -> bool {
    let live = attempts.iter().any(|attempt| {
        attempt.tx_hash == Some(*hash)
            && matches!(attempt.status, AttemptStatus::Signed | AttemptStatus::Broadcast)
            && attempt.nonce.is_none_or(|nonce| job.nonce == Some(nonce))
    });
    live && job.state == State::Confirming && job.blocked.is_none() && job.void_proof.is_none()
}

fn is_short(change: &Change) -> bool {
    matches!(change.to, State::Confirmed { .. })
        && change.nonce == NonceFate::ClosedByPayment
        && change.again == Again::No
        && !change.count_try
}

/// Writes a group of plain settlements.
async fn settle_in(tx: &mut PgConnection, plain: Vec<Plain>) -> Result<(), JobError> {
    if plain.is_empty() {
        return Ok(());
    }
    note_all_in(tx, &plain).await?;
    let jobs: Vec<Uuid> = plain.iter().map(|plain| plain.job.id.as_uuid()).collect();
    let hashes: Vec<Vec<u8>> = plain.iter().map(|plain| plain.receipt.tx_hash.as_bytes().to_vec()).collect();
    sqlx::query(include_str!("../../queries/settle_attempts.sql"))
        .bind(&jobs)
        .bind(&hashes)
        .bind(plain.iter().map(|plain| plain.receipt.gas_used.to_string()).collect::<Vec<_>>())
        .bind(plain.iter().map(|plain| plain.receipt.gas_price.to_string()).collect::<Vec<_>>())
        .bind(plain.iter().map(|plain| bigint(plain.receipt.block_number)).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "UPDATE lane_nonces SET state = 'closed', closed_by = 'payment', closed_at = now()
         WHERE job_id = ANY ($1) AND state = 'open'",
    )
    .bind(&jobs)
    .execute(&mut *tx)
    .await?;
    let fee =
        |plain: &Plain| plain.receipt.fee().map(|fee| fee.to_string()).unwrap_or_else(|| "0".to_owned());
    let settled = sqlx::query(include_str!("../../queries/settle_jobs.sql"))
        .bind(&jobs)
        .bind(&hashes)
        .bind(plain.iter().map(fee).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    db::cas::expect_rows(settled, plain.len()).map_err(|_| JobError::Conflict)?;
    release_in(tx, &plain).await?;
    for Plain { job, receipt, change, .. } in &plain {
        tracing::info!(
            job_id = %job.id, withdrawal_id = job.withdrawal.map(tracing::field::display), chain = %job.chain,
            asset = %job.symbol, amount = %job.amount, to = %job.to, tx_hash = %receipt.tx_hash,
            block = receipt.block_number, status = change.to.name(), was = job.state.name(), "job changed"
        );
        crate::metrics::job_changed(job, change);
        crate::metrics::gas_used(job, receipt.gas_used);
    }
    Ok(())
}

async fn note_all_in(tx: &mut PgConnection, plain: &[Plain]) -> Result<(), JobError> {
    sqlx::query(
        "INSERT INTO verdicts (id, job_id, finding, detail, at)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[])",
    )
    .bind(plain.iter().map(|plain| plain.verdict.id).collect::<Vec<_>>())
    .bind(plain.iter().map(|plain| plain.job.id.as_uuid()).collect::<Vec<_>>())
    .bind(plain.iter().map(|plain| plain.verdict.finding.name()).collect::<Vec<_>>())
    .bind(plain.iter().map(|plain| format!("{:?}", plain.verdict.evidence)).collect::<Vec<_>>())
    .bind(plain.iter().map(|plain| plain.verdict.at).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

async fn release_in(tx: &mut PgConnection, plain: &[Plain]) -> Result<(), JobError> {
    let held: Vec<(&Plain, Uuid)> = plain
        .iter()
        .filter(|plain| plain.job.reserved)
        .filter_map(|plain| Some((plain, plain.job.payer.as_ref()?.wallet.as_uuid())))
        .collect();
    sqlx::query(include_str!("../../queries/release_many.sql"))
        .bind(held.iter().map(|(_, wallet)| *wallet).collect::<Vec<_>>())
        .bind(held.iter().map(|(plain, _)| plain.job.asset.as_uuid()).collect::<Vec<_>>())
        .bind(held.iter().map(|(plain, _)| plain.job.amount.to_string()).collect::<Vec<_>>())
        .bind(held.iter().map(|(plain, _)| bigint(plain.receipt.block_number)).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}
