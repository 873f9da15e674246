//! Writing what the state machine decided: the job, its nonce, its reservation, its place in the queue, and what intent is
//! told, all in the caller's transaction.
//!
//! Invariants: a job is changed only from the status it was read in (compare and set); a reservation is released exactly
//! once, with the change after which the job pays no more; a failure is told only together with its being written.

use std::time::Duration;

use db::Due;
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use sqlx::PgConnection;
use types::{Backoff, TxHash};

use super::{Again, Change, Job, JobError, NonceFate, State, Wanted, repo};
use crate::outbox::{Told, tell_in};
use crate::{metrics, wallet};

/// How soon a job is looked at again that waits for somebody's word: only in case the word does not come.
const RARELY: Duration = Duration::from_secs(600);

/// When jobs are tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// After a counted try.
    pub tries: Backoff,
    /// While something outside is away; costs no try.
    pub waits: Backoff,
}

impl Schedule {
    fn due(&self, again: Again, job: &Job) -> Option<Due> {
        match again {
            Again::No => None,
            Again::Now => Some(Due::Now),
            Again::AfterTry => Some(Due::In(self.tries.delay(job.tries))),
            Again::AfterWait => Some(Due::In(self.waits.delay(job.waits))),
            Again::Rarely => Some(Due::In(RARELY)),
        }
    }
}

/// What a verdict adds to a change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Closing {
    /// Block in which the payment left the wallet.
    pub paid_in_block: Option<u64>,
    /// Whether it left otherwise than asked: the job never pays again, so nothing stays reserved for it.
    pub value_moved: bool,
}

/// Writes a change of one job, which must be locked.
pub(crate) async fn apply_in(
    tx: &mut PgConnection,
    job: &Job,
    change: &Change,
    schedule: &Schedule,
    closing: Closing,
) -> Result<(), JobError> {
    // The nonce first: the database refuses to call a job failed while it holds one.
    settle_nonce_in(tx, job, change.nonce).await?;
    let frees = ends(&change.to) || closing.value_moved;
    update_in(tx, job, change, frees).await?;
    if job.reserved
        && frees
        && let Some(payer) = &job.payer
    {
        wallet::repo::release_in(tx, payer.wallet, job.asset, job.amount, closing.paid_in_block).await?;
        if closing.paid_in_block.is_none() {
            // The money is free again: somebody may be waiting for it.
            repo::wake_blocked_in(tx, &job.chain).await?;
        }
    }
    tell_in(tx, &news(job, change)).await?;
    if let Some(due) = schedule.due(change.again, job) {
        job.line().push_in(tx, job.id.as_uuid(), job.priority, due).await?;
    }
    log(job, change, schedule);
    Ok(())
}

/// Whether the job has come to its end: what was reserved for it is free again.
fn ends(state: &State) -> bool {
    match state {
        State::Confirmed { .. } | State::Failed { .. } => true,
        State::Pending { .. } | State::Processing | State::Confirming | State::Parked { .. } => false,
    }
}

async fn settle_nonce_in(tx: &mut PgConnection, job: &Job, fate: NonceFate) -> Result<(), JobError> {
    let closed_by = match fate {
        NonceFate::Keep => return Ok(()),
        NonceFate::ClosedByPayment => Some("payment"),
        NonceFate::ClosedByCancellation => Some("cancellation"),
        NonceFate::ClosedByForeign => Some("foreign"),
        NonceFate::Expired => Some("expired"),
        NonceFate::Freed | NonceFate::Spent => None,
    };
    match closed_by {
        Some(by) => {
            sqlx::query(
                "UPDATE lane_nonces SET state = 'closed', closed_by = $2, closed_at = now()
                 WHERE job_id = $1 AND state = 'open'",
            )
            .bind(job.id.as_uuid())
            .bind(by)
            .execute(&mut *tx)
            .await?;
        }
        None => {
            let spent = fate == NonceFate::Spent;
            sqlx::query(
                "UPDATE lane_nonces SET state = CASE WHEN $2 THEN 'spent' ELSE 'free' END,
                     job_id = CASE WHEN $2 THEN job_id END, committed_raw = 0
                 WHERE job_id = $1 AND state = 'open'",
            )
            .bind(job.id.as_uuid())
            .bind(spent)
            .execute(&mut *tx)
            .await?;
            if spent {
                metrics::nonce_spent(job);
            }
            // Nothing was signed at it, and nothing may be signed for this job at it any more.
            sqlx::query("UPDATE attempts SET status = 'void' WHERE job_id = $1 AND status = 'reserved'")
                .bind(job.id.as_uuid())
                .execute(tx)
                .await?;
        }
    }
    Ok(())
}

async fn update_in(tx: &mut PgConnection, job: &Job, change: &Change, frees: bool) -> Result<(), JobError> {
    let (blocked, hash): (Option<&str>, Option<TxHash>) = match &change.to {
        State::Pending { blocked } => (blocked.as_deref(), None),
        State::Processing => (job.blocked.as_deref(), job.tx_hash),
        State::Confirming => (None, job.tx_hash),
        State::Confirmed { tx_hash } => (None, Some(*tx_hash)),
        State::Failed { .. } => (None, job.tx_hash),
        State::Parked { .. } => (None, job.tx_hash),
    };
    let waits = if change.again == Again::AfterWait { job.waits.saturating_add(1) } else { 0 };
    let updated = sqlx::query(include_str!("../../queries/change_job.sql"))
        .bind(job.id.as_uuid())
        .bind(job.state.name())
        .bind(change.to.name())
        .bind(i32::from(change.count_try))
        .bind(i32::try_from(waits).unwrap_or(i32::MAX))
        .bind(change.note.as_deref())
        .bind(blocked)
        .bind(change.wanted.map(Wanted::as_str))
        .bind(change.giving_up.as_deref())
        .bind(hash.map(|hash| hash.as_bytes().to_vec()))
        .bind(ends(&change.to))
        .bind(change.retreat)
        .bind(frees)
        .execute(tx)
        .await?;
    db::expect_one(updated).map_err(|_| JobError::Conflict)
}

/// What intent should hear. That a payment is complete it hears from confirmation, which knows.
fn news(job: &Job, change: &Change) -> Vec<Told> {
    let Some(withdrawal) = job.withdrawal else { return Vec::new() };
    let told = |progress| vec![Told::progress(withdrawal, progress).traced(job.trace.clone())];
    let blocked = |reason: &str| told(Progress::Blocked(intent::Blocked { reason: reason.to_owned() }));
    match &change.to {
        State::Failed { reason } => told(Progress::Failed(intent::Failed { reason: reason.clone() })),
        State::Parked { reason } => blocked(&format!("stopped for a person to look at: {reason}")),
        State::Pending { blocked: Some(reason) } if job.blocked.as_ref() != Some(reason) => blocked(reason),
        State::Pending { blocked: None } | State::Confirming | State::Confirmed { .. }
            if job.blocked.is_some() =>
        {
            told(Progress::Unblocked(intent::Unblocked {}))
        }
        State::Pending { .. } | State::Processing | State::Confirming | State::Confirmed { .. } => Vec::new(),
    }
}

/// What went wrong with this change, if anything did. A job that waits for the same thing as before is no news.
fn error<'a>(job: &Job, change: &'a Change) -> Option<&'a str> {
    let waits_for = match &change.to {
        State::Pending { blocked } if job.blocked != *blocked => blocked.as_deref(),
        State::Pending { .. }
        | State::Processing
        | State::Confirming
        | State::Confirmed { .. }
        | State::Failed { .. }
        | State::Parked { .. } => None,
    };
    change.note.as_deref().or(waits_for)
}

/// Whether the job goes on by itself.
fn is_retryable(change: &Change) -> bool {
    match &change.to {
        State::Pending { .. } | State::Processing | State::Confirming => true,
        State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => false,
    }
}

fn log(job: &Job, change: &Change, schedule: &Schedule) {
    let retry_in_ms = match schedule.due(change.again, job) {
        Some(Due::In(delay)) => u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
        Some(Due::Now) | None => 0,
    };
    let retry_count = job.tries + u32::from(change.count_try);
    tracing::info!(
        job_id = %job.id,
        withdrawal_id = job.withdrawal.map(tracing::field::display),
        chain = %job.chain,
        asset = %job.symbol,
        amount = %job.amount,
        to = %job.to,
        status = change.to.name(),
        was = job.state.name(),
        retry_count,
        max_retries = job.max_tries,
        retry_in_ms,
        wanted = change.wanted.map(Wanted::as_str),
        "job changed"
    );
    if let Some(error) = error(job, change) {
        tracing::warn!(
            job_id = %job.id,
            withdrawal_id = job.withdrawal.map(tracing::field::display),
            chain = %job.chain,
            status = change.to.name(),
            retry_count,
            max_retries = job.max_tries,
            is_retryable = is_retryable(change),
            retry_in_ms,
            error,
            "job error"
        );
    }
    metrics::job_changed(job, change);
}
