//! Writing what the state machine decided: the job, its binding, its reservation, its place in the queue, and the messages
//! about it, all in the caller's transaction.
//!
//! Invariants: a job is changed only from the status it was read in (compare and set); a reservation is released exactly
//! once, with the change after which the job pays no more; a failure is reported only together with its being written.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::PgConnection;
use types::Backoff;

use super::{BindingFate, Change, Due, Job, JobError, State, repo};
use crate::outbox::{JobMessage, enqueue_in};
use crate::queue::{self, JobNews, JobQueue};
use crate::{metrics, wallet};

/// How soon a job that waits for somebody's message is looked at again, in case the message does not come.
const RARELY: Duration = Duration::from_secs(600);

/// When the jobs of a queue are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// After a counted try.
    pub tries: Backoff,
    /// While something outside is away; costs no try.
    pub waits: Backoff,
}

impl Schedule {
    fn due(&self, job: &Job, due: Due) -> Option<db::Due> {
        match due {
            Due::Never => None,
            Due::Now => Some(db::Due::Now),
            Due::AfterTry => Some(db::Due::In(self.tries.delay(job.tries))),
            Due::AfterWait => Some(db::Due::In(self.waits.delay(job.waits))),
            Due::Rarely => Some(db::Due::In(RARELY)),
        }
    }
}

/// The schedule of every queue that workers serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedules(BTreeMap<JobQueue, Schedule>);

impl Schedules {
    /// Asks `schedule` for each queue that workers serve.
    pub fn of(schedule: impl Fn(JobQueue, Backoff) -> Schedule) -> Self {
        Self(JobQueue::worked().map(|(queue, kind)| (queue, schedule(queue, kind.retries()))).collect())
    }

    pub fn max_tries(&self, queue: JobQueue) -> u32 {
        self.0.get(&queue).map_or(1, |schedule| schedule.tries.max_tries)
    }

    fn due(&self, job: &Job, due: Due) -> Option<db::Due> {
        self.0.get(&job.worked_in()).and_then(|schedule| schedule.due(job, due))
    }
}

/// What a verdict adds to a change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settlement {
    /// Block in which the payment left the wallet.
    pub paid_in_block: Option<u64>,
    /// Whether it left otherwise than requested: the job never pays again, so nothing stays reserved for it.
    pub value_moved: bool,
}

/// Writes a change of one job, which must be locked.
pub(crate) async fn apply_in(
    tx: &mut PgConnection,
    job: &Job,
    change: &Change,
    schedules: &Schedules,
    settlement: Settlement,
) -> Result<(), JobError> {
    // The binding first: the database refuses to call a job failed while it holds one.
    repo::changes::release_binding_in(tx, job.id, change.binding).await?;
    if change.binding == BindingFate::Spent {
        metrics::nonce_spent(job);
    }
    let frees = change.to.status().is_final() || settlement.value_moved;
    repo::changes::update_in(tx, job, change, frees).await?;
    if job.reserved
        && frees
        && let Some(payer) = &job.payer
    {
        wallet::repo::release_in(tx, payer.wallet, job.asset, job.amount, settlement.paid_in_block).await?;
        if settlement.paid_in_block.is_none() {
            // The money is free again: somebody may be waiting for it.
            repo::wake_blocked_in(tx, &job.chain).await?;
        }
    }
    let messages: Vec<JobMessage> = news(job, change).into_iter().collect();
    enqueue_in(tx, &messages).await?;
    let due = schedules.due(job, change.due);
    if let Some(due) = due {
        job.db_queue().push_in(tx, job.id.as_uuid(), job.priority, due).await?;
    }
    log(job, change, due);
    Ok(())
}

fn news(job: &Job, change: &Change) -> Option<JobMessage> {
    let parked;
    let news = match &change.to {
        State::Failed { reason } => JobNews::Failed { reason },
        State::Parked { reason, .. } => {
            parked = format!("stopped for a person to look at: {reason}");
            JobNews::Blocked { reason: &parked }
        }
        State::Pending { blocked: Some(reason), .. } if job.blocked.as_ref() != Some(reason) => {
            JobNews::Blocked { reason }
        }
        State::Pending { blocked: None, .. } | State::Confirming { .. } | State::Confirmed { .. }
            if job.blocked.is_some() =>
        {
            JobNews::Unblocked
        }
        State::Pending { .. }
        | State::Processing { .. }
        | State::Confirming { .. }
        | State::Confirmed { .. } => {
            return None;
        }
    };
    queue::message(job, news)
}

/// What went wrong with this change, if anything did. That a job waits for the same thing as before is not reported again.
fn error<'a>(job: &Job, change: &'a Change) -> Option<&'a str> {
    let waits_for = match &change.to {
        State::Pending { blocked, .. } if job.blocked != *blocked => blocked.as_deref(),
        State::Pending { .. }
        | State::Processing { .. }
        | State::Confirming { .. }
        | State::Confirmed { .. }
        | State::Failed { .. }
        | State::Parked { .. } => None,
    };
    change.note.as_deref().or(waits_for)
}

/// Whether the job goes on by itself.
fn is_retryable(change: &Change) -> bool {
    match &change.to {
        State::Pending { .. } | State::Processing { .. } | State::Confirming { .. } => true,
        State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => false,
    }
}

fn log(job: &Job, change: &Change, due: Option<db::Due>) {
    let retry_in_ms = match due {
        Some(db::Due::In(delay)) => u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
        Some(db::Due::Now) | None => 0,
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
        wanted = change.to.request().map(<&'static str>::from),
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
