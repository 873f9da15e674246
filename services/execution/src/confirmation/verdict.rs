//! Recording one verdict: what confirmation proved becomes the job's state, once.
//!
//! - The same verdict arrives twice, or late: its id is a key, and a finding about a nonce that the job no longer holds changes
//!   nothing.
//! - A worker is bumping the fee while the payment settles: the job's row is locked here; the worker's next write finds
//!   another status and ends. What it signed is at the same nonce.
//! - "Reverted" frees the job for another nonce: only together with the nonce being closed, and with the proof that the
//!   signer will demand.
//! - What was called dead pays after all: recorded as a contradiction, after which the job neither pays again nor fails.
//! - Confirmation decided before it knew of everything that was signed at the nonce: what it takes for somebody else's may be
//!   our own newest bytes, and they may have paid. A finding that does not name all of them closes nothing; the watch is sent
//!   to confirmation again, which decides again.

use payment::{Finding, Verdict};
use sqlx::PgConnection;
use types::TxHash;

use super::repo::{self, Liveness};
use super::watch;
use crate::job::change::{Settlement, apply_in};
use crate::job::{BindingFate, Event, Job, JobError, JobsConfig, Step};
use crate::lane;
use crate::outbox::enqueue_in;

/// Records one verdict. A replay changes nothing.
pub(crate) async fn record_in(
    tx: &mut PgConnection,
    config: &JobsConfig,
    verdict: &Verdict,
) -> Result<(), JobError> {
    let job = crate::job::repo::lock_in(tx, verdict.job).await?;
    let meaning = meaning_in(tx, &job, &verdict.finding).await?;
    if !repo::insert_in(tx, verdict, meaning.as_ref().unwrap_or(&verdict.finding)).await? {
        return Ok(());
    }
    let Some(finding) = meaning else {
        let finding = repo::name(&verdict.finding);
        tracing::info!(job_id = %job.id, finding, "verdict about a closed nonce");
        return Ok(());
    };
    if let Finding::Reopened { .. } = finding {
        crate::job::repo::attempts::resend_now_in(tx, job.id).await?;
        tracing::warn!(job_id = %job.id, chain = %job.chain, "a block that held the payment was undone; sending again");
        return Ok(());
    }
    if let Some(unnamed) = unnamed_in(tx, &job, &finding).await? {
        tracing::warn!(
            job_id = %job.id, chain = %job.chain, finding = repo::name(&finding), tx_hash = %unnamed,
            "verdict without all that was signed; the watch is sent to confirmation again"
        );
        let messages = watch::messages_in(tx, &[(&job, job.nonce)]).await?;
        return Ok(enqueue_in(tx, &messages).await?);
    }
    let Step::Changed(change) = job.apply(&Event::Verdict(finding.clone()))? else {
        return Ok(());
    };
    if change.binding != BindingFate::Keep || matches!(finding, Finding::Settled(_)) {
        repo::close_attempts_in(tx, &job, &finding).await?;
        repo::keep_proof_in(tx, &job, finding.proof()).await?;
        if let Some(inclusion) = finding.inclusion() {
            crate::metrics::gas_used(&job, inclusion.cost.units);
        }
    }
    apply_in(tx, &job, &change, &config.schedules, settlement(&finding)).await?;
    watch_lane_in(tx, config, &job, &finding).await
}

fn settlement(finding: &Finding) -> Settlement {
    match finding {
        Finding::Settled(inclusion) => {
            Settlement { paid_in_block: Some(inclusion.block_number), value_moved: false }
        }
        Finding::Reverted { inclusion, value_moved: true, .. } => {
            Settlement { paid_in_block: Some(inclusion.block_number), value_moved: true }
        }
        Finding::Reverted { value_moved: false, .. }
        | Finding::Void { .. }
        | Finding::Cancelled { .. }
        | Finding::Stuck { .. }
        | Finding::Reopened { .. }
        | Finding::Contradicted { .. } => Settlement::default(),
    }
}

/// What the finding means for the job as it is now; none if it is about a nonce that the job no longer holds.
async fn meaning_in(
    tx: &mut PgConnection,
    job: &Job,
    finding: &Finding,
) -> Result<Option<Finding>, JobError> {
    let live = match finding {
        Finding::Settled(inclusion) => match repo::liveness_in(tx, job, &inclusion.tx).await? {
            Liveness::Current => true,
            Liveness::Settled => false,
            // Called dead, and it paid after all: only a person can say what that means.
            Liveness::Dead => {
                let reason = format!("{} paid, though it was called dead", inclusion.tx);
                return Ok(Some(Finding::Contradicted { tx: Some(inclusion.tx), reason }));
            }
        },
        Finding::Reverted { inclusion, .. } | Finding::Cancelled { inclusion, .. } => {
            repo::liveness_in(tx, job, &inclusion.tx).await? == Liveness::Current
        }
        Finding::Void { void, .. } => repo::has_live_in(tx, job, void).await?,
        Finding::Stuck { .. } | Finding::Reopened { .. } | Finding::Contradicted { .. } => true,
    };
    Ok(live.then(|| finding.clone()))
}

/// A transaction that could land at the job's nonce and that the finding, which says that none can, does not name.
async fn unnamed_in(tx: &mut PgConnection, job: &Job, finding: &Finding) -> Result<Option<TxHash>, JobError> {
    let named = match finding {
        Finding::Void { void, .. } => void,
        Finding::Reverted { proof: Some(proof), .. } | Finding::Cancelled { proof: Some(proof), .. } => {
            &proof.tx_hashes
        }
        Finding::Reverted { proof: None, .. }
        | Finding::Cancelled { proof: None, .. }
        | Finding::Settled(_)
        | Finding::Stuck { .. }
        | Finding::Reopened { .. }
        | Finding::Contradicted { .. } => return Ok(None),
    };
    repo::live_besides_in(tx, job, named).await
}

/// A foreign transaction at one of our nonces means that somebody else has the key, or that a person used it.
async fn watch_lane_in(
    tx: &mut PgConnection,
    config: &JobsConfig,
    job: &Job,
    finding: &Finding,
) -> Result<(), JobError> {
    let (Finding::Void { foreign: Some(_), reason, .. }, Some(payer), Some(nonce)) =
        (finding, &job.payer, job.nonce)
    else {
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
