//! Recording verdicts in batches. Nearly all of them are "settled" about a confirming job with one live transaction: those are
//! written in a handful of statements for the whole batch. Every other verdict is recorded by itself, in a savepoint.
//!
//! Invariant: `record_in` is the truth; a batch leaves the same rows as `record_in` called for one verdict after the other, and
//! a property test over random batches compares the two (`batch_tests.rs`).

use std::collections::{BTreeMap, HashSet};

use payment::{Finding, Verdict};
use sqlx::{Connection as _, PgConnection, PgPool};
use telemetry::crash_point;
use types::{JobId, TxHash};
use uuid::Uuid;

use super::repo::{self, PlainSettlement};
use super::verdict::record_in;
use crate::job::repo as jobs;
use crate::job::{
    Attempt, AttemptStatus, BindingFate, Change, ClosedBy, Due, Event, Job, JobError, JobsConfig, State, Step,
};

/// Records all of these in one transaction; one result for each, in order.
pub(crate) async fn record_batch(
    pool: &PgPool,
    config: &JobsConfig,
    verdicts: &[Verdict],
) -> Result<Vec<Result<(), JobError>>, JobError> {
    let mut tx = db::begin(pool).await?;
    let results = record_all_in(&mut tx, config, verdicts).await?;
    crash_point("execution.before_verdict");
    tx.commit().await?;
    crash_point("execution.after_verdict");
    Ok(results)
}

async fn record_all_in(
    tx: &mut PgConnection,
    config: &JobsConfig,
    verdicts: &[Verdict],
) -> Result<Vec<Result<(), JobError>>, JobError> {
    let plain = plain_in(tx, verdicts).await?;
    let settled: HashSet<Uuid> = plain.iter().map(|(one, _)| one.verdict.id).collect();
    settle_in(tx, plain).await?;
    let mut results = Vec::with_capacity(verdicts.len());
    for verdict in verdicts {
        if settled.contains(&verdict.id) {
            results.push(Ok(()));
        } else {
            results.push(record_alone_in(tx, config, verdict).await?);
        }
    }
    Ok(results)
}

/// The truth: records one verdict in a savepoint. A broken connection fails the batch; a refusal concerns this verdict alone.
async fn record_alone_in(
    tx: &mut PgConnection,
    config: &JobsConfig,
    verdict: &Verdict,
) -> Result<Result<(), JobError>, JobError> {
    let mut savepoint = tx.begin().await?;
    match record_in(&mut savepoint, config, verdict).await {
        Ok(()) => {
            savepoint.commit().await?;
            Ok(Ok(()))
        }
        Err(JobError::Database(error)) => Err(error.into()),
        Err(error) => {
            savepoint.rollback().await?;
            Ok(Err(error))
        }
    }
}

/// Locks the jobs and picks those whose verdict is plain and new.
async fn plain_in<'a>(
    tx: &mut PgConnection,
    verdicts: &'a [Verdict],
) -> Result<Vec<(PlainSettlement<'a>, Change)>, JobError> {
    let (mut of_job, mut of_id): (BTreeMap<JobId, u32>, BTreeMap<Uuid, u32>) = Default::default();
    for verdict in verdicts {
        *of_job.entry(verdict.job).or_default() += 1;
        *of_id.entry(verdict.id).or_default() += 1;
    }
    // A job with several verdicts takes them one after the other, and so do repeated verdicts.
    let alone = |verdict: &Verdict| of_job[&verdict.job] == 1 && of_id[&verdict.id] == 1;
    let candidates: BTreeMap<JobId, &Verdict> = verdicts
        .iter()
        .filter(|verdict| matches!(verdict.finding, Finding::Settled(_)) && alone(verdict))
        .map(|verdict| (verdict.job, verdict))
        .collect();
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = candidates.keys().map(JobId::as_uuid).collect();
    jobs::lock_all_in(tx, &ids).await?;
    let locked = jobs::by_ids(&mut *tx, &ids).await?;
    let attempts = jobs::attempts::of_jobs(&mut *tx, &locked.iter().collect::<Vec<_>>()).await?;
    let known = repo::known_in(tx, verdicts).await?;
    let plain = locked.into_iter().filter_map(|job| {
        let verdict = *candidates.get(&job.id)?;
        let inclusion = *verdict.finding.inclusion()?;
        let of_job = attempts.get(&job.id).map(Vec::as_slice).unwrap_or_default();
        if known.contains(&verdict.id) || !is_plain(&job, of_job, &inclusion.tx) {
            return None;
        }
        match job.apply(&Event::Verdict(verdict.finding.clone())) {
            Ok(Step::Changed(change)) if only_settles(&change) => {
                Some((PlainSettlement { verdict, job, inclusion }, change))
            }
            Ok(_) | Err(_) => None,
        }
    });
    Ok(plain.collect())
}

/// A confirming job that nothing else is the matter with, and a live transaction at the nonce it holds.
fn is_plain(job: &Job, attempts: &[Attempt], hash: &TxHash) -> bool {
    let live = attempts.iter().any(|attempt| {
        attempt.tx_hash == Some(*hash)
            && matches!(attempt.status, AttemptStatus::Signed | AttemptStatus::Broadcast)
            && attempt.nonce.is_none_or(|nonce| job.nonce == Some(nonce))
    });
    let confirming = matches!(job.state, State::Confirming { .. });
    live && confirming && job.blocked.is_none() && job.void_proof.is_none()
}

fn only_settles(change: &Change) -> bool {
    matches!(change.to, State::Confirmed { .. })
        && matches!(change.binding, BindingFate::Closed { by: ClosedBy::Payment, .. })
        && change.due == Due::Never
        && !change.count_try
}

async fn settle_in(tx: &mut PgConnection, plain: Vec<(PlainSettlement<'_>, Change)>) -> Result<(), JobError> {
    if plain.is_empty() {
        return Ok(());
    }
    let (settled, changes): (Vec<PlainSettlement<'_>>, Vec<Change>) = plain.into_iter().unzip();
    repo::settle_all_in(tx, &settled).await?;
    for (PlainSettlement { job, inclusion, .. }, change) in settled.iter().zip(&changes) {
        tracing::info!(
            job_id = %job.id, withdrawal_id = job.withdrawal.map(tracing::field::display), chain = %job.chain,
            asset = %job.symbol, amount = %job.amount, to = %job.to, tx_hash = %inclusion.tx,
            block = inclusion.block_number, status = change.to.name(), was = job.state.name(), "job changed"
        );
        crate::metrics::job_changed(job, change);
        crate::metrics::gas_used(job, inclusion.cost.units);
    }
    Ok(())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
