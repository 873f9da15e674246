//! Sending stored bytes to every node, and noting that confirmation now has the word.
//!
//! Where it could hurt, and what holds:
//! - A crash before, during or after sending: the bytes are stored; sending them again is harmless, and the job is still
//!   claimed by whoever comes next.
//! - The node took them and its answer is lost: the outcome is unknown, which changes nothing: the job is confirming, and the
//!   same bytes are sent again until a verdict ends it.
//! - Bytes are on their way and nobody watches: the watch was told with the bytes, before they could be sent.

use std::collections::{HashMap, HashSet};

use chain::{Advice, Broadcast, BroadcastOutcome};
use db::queue::NewJob;
use db::{Due, Lease};
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use sqlx::{PgConnection, Row as _};
use types::{JobId, TxHash};
use uuid::Uuid;

use super::WorkError;
use super::batch::{Bench, Work};
use super::reject::{reject_in, rejected};
use crate::job::{AttemptKind, Job, Wanted};
use crate::outbox::{Told, tell_in};

/// How long after "too cheap" the fee is raised.
const BUMP_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

impl Bench {
    /// Sends stored bytes and moves their jobs to confirming.
    pub(super) async fn send(&self, mut work: Vec<Work>) -> Result<(), WorkError> {
        if work.is_empty() {
            return Ok(());
        }
        // In the order of nonces: a pool takes a gapless series at once and may refuse one that comes too early.
        work.sort_by_key(|work| (work.attempt.address.body(), work.attempt.nonce));
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
        // Jobs in the order of ids, and before their attempts: as verdicts lock them, so that nobody waits in a circle.
        ours.sort_by_key(|work| work.item.job.id);
        let moved = move_in(&mut tx, &ours, &outcome).await?;
        let sends: Vec<(Uuid, Option<&BroadcastOutcome>)> = ours
            .iter()
            .filter(|work| !held_back(work))
            .map(|work| (work.attempt.id.as_uuid(), outcome(work)))
            .collect();
        note_sends_in(&mut tx, &sends).await?;
        let confirming: Vec<&&Work> = ours.iter().filter(|work| moved.contains(&work.item.job.id)).collect();
        let told: Vec<Told> = confirming
            .iter()
            .filter_map(|work| progress(&work.item.job, outcome(work).and_then(unfunded).as_deref()))
            .collect();
        tell_in(&mut tx, &told).await.map_err(crate::job::JobError::from)?;
        let again: Vec<NewJob> = confirming
            .iter()
            .filter(|work| outcome(work).is_some_and(|outcome| outcome.advice() == Advice::Bump))
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

/// Bytes of a payment that is given up and that nothing can cancel: watched until their time is over, and never sent.
fn held_back(work: &Work) -> bool {
    work.attempt.window.is_some() && work.item.job.cancel_reason.is_some()
}

fn log(work: &Work, outcome: Option<&BroadcastOutcome>) {
    let (job, attempt) = (&work.item.job, &work.attempt);
    tracing::info!(
        job_id = %job.id, withdrawal_id = job.withdrawal.map(tracing::field::display), chain = %job.chain,
        asset = %job.symbol, amount = %job.amount, from = %attempt.address, to = %job.to,
        nonce = attempt.nonce.filter(|_| attempt.window.is_none()),
        tx_hash = attempt.tx_hash.map(tracing::field::display), kind = attempt.kind.as_str(),
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

/// What intent hears about a job that was blocked, or is now.
pub(crate) fn progress(job: &Job, blocked: Option<&str>) -> Option<Told> {
    let withdrawal = job.withdrawal?;
    let progress = match (job.blocked.as_deref(), blocked) {
        (None, Some(reason)) => Progress::Blocked(intent::Blocked { reason: reason.to_owned() }),
        (Some(before), Some(reason)) if before != reason => {
            Progress::Blocked(intent::Blocked { reason: reason.to_owned() })
        }
        (Some(_), None) => Progress::Unblocked(intent::Unblocked {}),
        (None, None) | (Some(_), Some(_)) => return None,
    };
    Some(Told::progress(withdrawal, progress).traced(job.trace.clone()))
}

/// Notes that attempts were sent, and what the nodes said.
pub(crate) async fn note_sends_in(
    tx: &mut PgConnection,
    sends: &[(Uuid, Option<&BroadcastOutcome>)],
) -> Result<(), sqlx::Error> {
    let error = |outcome: Option<&BroadcastOutcome>| match outcome {
        Some(outcome) if outcome.in_pool() => None,
        Some(outcome) => Some(outcome.to_string()),
        None => Some("not sent".to_owned()),
    };
    sqlx::query(include_str!("../../queries/note_sends.sql"))
        .bind(sends.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(sends.iter().map(|(_, outcome)| outcome.is_some_and(|o| o.in_pool())).collect::<Vec<_>>())
        .bind(sends.iter().map(|(_, outcome)| error(*outcome)).collect::<Vec<_>>())
        .bind(sends.iter().map(|(_, outcome)| outcome.and_then(rejected)).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Moves jobs to confirming unless a verdict or an operator was faster; returns those moved.
async fn move_in<'a>(
    tx: &mut PgConnection,
    work: &[&'a Work],
    outcome: &impl Fn(&'a Work) -> Option<&'a BroadcastOutcome>,
) -> Result<HashSet<JobId>, WorkError> {
    let error = |work: &&'a Work| match outcome(work) {
        Some(outcome) if outcome.in_pool() => None,
        Some(outcome) => Some(outcome.to_string()),
        None => None,
    };
    let wanted = |work: &&'a Work| {
        let again = match work.attempt.kind {
            AttemptKind::Pay => Wanted::Bump,
            AttemptKind::Cancel => Wanted::Cancel,
        };
        outcome(work).is_some_and(|outcome| outcome.advice() == Advice::Bump).then(|| again.as_str())
    };
    let hash = |work: &&'a Work| work.attempt.tx_hash.map(|hash| hash.as_bytes().to_vec());
    let rows = sqlx::query(include_str!("../../queries/confirm_jobs.sql"))
        .bind(work.iter().map(|work| work.item.lease.job_id).collect::<Vec<_>>())
        .bind(work.iter().map(hash).collect::<Vec<_>>())
        .bind(work.iter().map(|work| work.attempt.kind.as_str()).collect::<Vec<_>>())
        .bind(work.iter().map(error).collect::<Vec<_>>())
        .bind(work.iter().map(|work| outcome(work).and_then(unfunded)).collect::<Vec<_>>())
        .bind(work.iter().map(wanted).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    let ids = rows.iter().map(|row| Ok(JobId::from_uuid(row.try_get("id")?)));
    ids.collect::<Result<_, sqlx::Error>>().map_err(WorkError::from)
}
