//! Sending stored bytes to every node, and recording that confirmation decides from now on.
//!
//! - A crash before, during or after sending: the bytes are stored; sending them again is harmless, and the job is still
//!   claimed by whoever comes next.
//! - The node took them and its reply is lost: the outcome is unknown, which changes nothing: the job is confirming, and the
//!   same bytes are sent again until a verdict ends it.
//! - Bytes are sent and nobody watches: the watch was stored with the bytes, before they could be sent.

use std::collections::HashMap;
use std::time::Duration;

use chain::{Advice, Broadcast, BroadcastOutcome};
use db::queue::NewJob;
use db::{Due, Lease};
use types::TxHash;

use super::context::{Work, WorkContext};
use super::reject::{reject_in, rejected};
use crate::job::repo::attempts::{SendNote, note_sends_in};
use crate::job::repo::changes::{SentJob, confirm_in};
use crate::job::{Job, JobError};
use crate::outbox::{JobMessage, enqueue_in};
use crate::queue::{self, JobNews};
use crate::worker::WorkError;

/// How long after "too cheap" the fee is raised.
const BUMP_PAUSE: Duration = Duration::from_millis(500);

impl WorkContext {
    /// Sends stored bytes and moves their jobs to confirming.
    pub(super) async fn send(&self, mut work: Vec<Work>) -> Result<(), WorkError> {
        if work.is_empty() {
            return Ok(());
        }
        // In the order of nonces: a pool takes a gapless series at once and may refuse one that comes too early.
        work.sort_by_cached_key(|work| (work.attempt.sender().to_string(), work.attempt.nonce));
        let sent = work.iter().filter(|work| !held_back(work));
        let raw: Vec<Vec<u8>> = sent.filter_map(|work| work.attempt.raw.clone()).collect();
        let sent = self.chain.edge.broadcast(&raw).await;
        self.checkpoints.pass("execution.after_broadcast").await;
        let outcomes: HashMap<TxHash, Broadcast> = sent.into_iter().map(|sent| (sent.hash, sent)).collect();
        self.confirm(&work, &outcomes).await?;
        self.checkpoints.pass("execution.after_confirm").await;
        Ok(())
    }

    async fn confirm(&self, work: &[Work], outcomes: &HashMap<TxHash, Broadcast>) -> Result<(), WorkError> {
        let outcome =
            |work: &Work| work.attempt.tx_hash.and_then(|hash| outcomes.get(&hash)).map(|sent| &sent.merged);
        let leases: Vec<Lease> = work.iter().map(|work| work.item.lease.clone()).collect();
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, &leases).await?;
        let mut ours: Vec<&Work> =
            work.iter().filter(|work| held.contains(&work.item.lease.job_id)).collect();
        // Jobs in the order of ids, and before their attempts: verdicts lock them in this order too, so that no two
        // transactions wait for each other.
        ours.sort_by_key(|work| work.item.job.id);
        let sent: Vec<SentJob<'_>> = ours.iter().map(|work| sent_job(work, outcome(work))).collect();
        let moved = confirm_in(&mut tx, &sent).await?;
        let sends = ours.iter().filter(|work| !held_back(work)).map(|work| {
            let outcome = outcome(work);
            SendNote { attempt: work.attempt.id, outcome, rejected: outcome.and_then(rejected) }
        });
        note_sends_in(&mut tx, &sends.collect::<Vec<_>>()).await?;
        let confirming: Vec<&Work> =
            ours.into_iter().filter(|work| moved.contains(&work.item.job.id)).collect();
        let messages: Vec<JobMessage> = confirming
            .iter()
            .filter_map(|work| funding_message(&work.item.job, outcome(work).and_then(unfunded).as_deref()))
            .collect();
        enqueue_in(&mut tx, &messages).await.map_err(JobError::from)?;
        let again: Vec<NewJob> = confirming
            .iter()
            .filter(|work| outcome(work).is_some_and(is_underpriced))
            .map(|work| NewJob {
                job_id: work.item.lease.job_id,
                priority: work.item.job.priority,
                due: Due::In(BUMP_PAUSE),
            })
            .collect();
        self.queue.complete_many_in(&mut tx, &leases).await?;
        self.queue.push_many_in(&mut tx, &again).await?;
        for work in &confirming {
            if let Some(outcome) = outcome(work).filter(|outcome| rejected(outcome) == Some(true)) {
                reject_in(&mut tx, &self.config, (work.item.job.id, work.attempt.id), outcome).await?;
            }
        }
        tx.commit().await?;
        for work in confirming {
            log(work, outcome(work));
        }
        Ok(())
    }
}

fn sent_job<'a>(work: &'a Work, outcome: Option<&BroadcastOutcome>) -> SentJob<'a> {
    SentJob {
        job: &work.item.job,
        attempt: &work.attempt,
        error: outcome.filter(|outcome| !outcome.in_pool()).map(ToString::to_string),
        blocked: outcome.and_then(unfunded),
        underpriced: outcome.is_some_and(is_underpriced),
    }
}

fn is_underpriced(outcome: &BroadcastOutcome) -> bool {
    outcome.advice() == Advice::Bump
}

/// Bytes of a payment that is given up and that nothing can cancel: watched until their time is over, and never sent.
fn held_back(work: &Work) -> bool {
    work.attempt.has_window() && (work.given_up || work.item.job.state.closing().is_some())
}

fn log(work: &Work, outcome: Option<&BroadcastOutcome>) {
    let (job, attempt) = (&work.item.job, &work.attempt);
    tracing::info!(
        job_id = %job.id, withdrawal_id = job.withdrawal.map(tracing::field::display), chain = %job.chain,
        asset = %job.symbol, amount = %job.amount, from = %attempt.sender(), to = %job.to,
        nonce = attempt.chain_nonce(),
        tx_hash = attempt.tx_hash.map(tracing::field::display), kind = attempt.action.name(),
        outcome = outcome.map(BroadcastOutcome::label), retry_count = job.tries, max_retries = job.max_tries,
        "transaction broadcast"
    );
    crate::metrics::job_sent(job);
}

/// Why the bytes have to wait for money, if that is what the nodes say.
pub(crate) fn unfunded(outcome: &BroadcastOutcome) -> Option<String> {
    (outcome.advice() == Advice::Fund)
        .then(|| "the wallet cannot pay for its transaction; it is sent again".to_owned())
}

/// The message about a job that was blocked, or is now.
pub(crate) fn funding_message(job: &Job, blocked: Option<&str>) -> Option<JobMessage> {
    let news = match (job.blocked.as_deref(), blocked) {
        (before, Some(reason)) if before != Some(reason) => JobNews::Blocked { reason },
        (Some(_), None) => JobNews::Unblocked,
        (None, None) | (Some(_) | None, Some(_)) => return None,
    };
    queue::message(job, news)
}
