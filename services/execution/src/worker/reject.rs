//! What follows when every node refuses stored bytes for good: other gas and a higher price at the same nonce, a bounded number
//! of times; then the nonce is closed by a cancellation; and when not even that is taken, the job is parked.
//!
//! Where it could hurt, and what holds:
//! - A node changes its mind about bytes it refused: whatever replaces them has their nonce, so one of them lands at most.
//! - Two workers, or a worker and the resend loop, hear the same refusal: the job's row is locked, only the newest bytes at the
//!   nonce count, and what is asked for already is not asked for twice.
//! - A crash before this is written: the same bytes are sent again and refused again. After it: the job is in the queue, and
//!   whoever claims it reads off its attempts what comes next.

use chain::{Advice, BroadcastOutcome};
use sqlx::PgConnection;
use types::{AttemptId, JobId};

use super::{WorkError, WorkerConfig};
use crate::job::write::{Closing, apply_in};
use crate::job::{AttemptKind, Event, State, Step, repo};

/// Whether all nodes refused for good, or one has the bytes for certain. `None`: neither can be said.
pub(super) fn rejected(outcome: &BroadcastOutcome) -> Option<bool> {
    match outcome.advice() {
        Advice::Replace => Some(true),
        Advice::Watch => Some(false),
        Advice::ResendSame | Advice::LookUp | Advice::Bump | Advice::Fund => None,
    }
}

/// Moves a watched job on whose newest bytes were refused. Their being refused is noted before.
pub(super) async fn reject_in(
    tx: &mut PgConnection,
    config: &WorkerConfig,
    (job, attempt): (JobId, AttemptId),
    outcome: &BroadcastOutcome,
) -> Result<(), WorkError> {
    let job = repo::lock_in(tx, job).await?;
    if job.state != State::Confirming || job.wanted.is_some() || job.nonce.is_none() {
        return Ok(());
    }
    let attempts = repo::attempts(&mut *tx, &[job.id.as_uuid()]).await?.remove(&job.id).unwrap_or_default();
    let at_nonce = || {
        attempts
            .iter()
            .filter(|other| other.nonce == job.nonce && other.status.is_live() && other.raw.is_some())
    };
    let Some(newest) = at_nonce().next_back().filter(|newest| newest.id == attempt) else { return Ok(()) };
    if newest.window.is_some() {
        // Nothing replaces or cancels it: what nobody takes now is proven gone when its time is over.
        tracing::error!(job_id = %job.id, chain = %job.chain, error = %outcome, "every node refuses the transaction");
        return Ok(());
    }
    let refused = at_nonce().filter(|other| other.kind == newest.kind && other.rejected).count();
    let last = u32::try_from(refused).unwrap_or(u32::MAX) > config.max_replacements;
    let kind = match newest.kind {
        AttemptKind::Pay => "pay",
        AttemptKind::Cancel => "cancel",
    };
    tracing::error!(
        job_id = %job.id, chain = %job.chain, nonce = job.nonce, kind, refused, last, error = %outcome,
        tx_hash = newest.tx_hash.map(tracing::field::display), "every node refuses the transaction"
    );
    crate::metrics::rejected(&job, kind);
    let event = Event::Rejected { kind: newest.kind, reason: outcome.to_string(), last };
    if let Ok(Step::Changed(change)) = job.standing().apply(&event) {
        apply_in(tx, &job, &change, &config.schedule, Closing::default()).await?;
    }
    Ok(())
}
