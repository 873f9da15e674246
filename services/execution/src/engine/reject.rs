//! What follows when every node refuses stored bytes for good: other gas and a higher price at the same nonce, a bounded number
//! of times; then the nonce is closed by a cancellation; and when no node takes even that, the job is parked.
//!
//! - A node changes its mind about bytes it refused: whatever replaces them has their nonce, so at most one of them lands.
//! - Two workers, or a worker and the resend loop, see the same refusal: the job's row is locked, only the newest bytes at the
//!   nonce count, and what is requested already is not requested twice.
//! - A crash before this is written: the same bytes are sent again and refused again. After it: the job is in the queue, and
//!   whoever claims it reads off its attempts what comes next.

use chain::{Advice, BroadcastOutcome};
use sqlx::PgConnection;
use types::{AttemptId, JobId};

use crate::job::change::{Settlement, apply_in};
use crate::job::{Event, Newest, RefusedAction, State, Step, repo};
use crate::worker::{WorkError, WorkerConfig};

/// Whether all nodes refused for good, or one has the bytes for certain. `None`: neither is certain.
pub(crate) fn rejected(outcome: &BroadcastOutcome) -> Option<bool> {
    match outcome.advice() {
        Advice::Replace => Some(true),
        Advice::Watch => Some(false),
        Advice::ResendSame | Advice::LookUp | Advice::Bump | Advice::Fund => None,
    }
}

/// Changes a job that is being confirmed and whose newest bytes were refused. The refusal itself is recorded before.
pub(crate) async fn reject_in(
    tx: &mut PgConnection,
    config: &WorkerConfig,
    (job, attempt): (JobId, AttemptId),
    outcome: &BroadcastOutcome,
) -> Result<(), WorkError> {
    let job = repo::lock_in(tx, job).await?;
    let State::Confirming { newest: Newest::Live | Newest::Rejected, requested: false, .. } = job.state
    else {
        return Ok(());
    };
    let attempts = repo::attempts::of_job(&mut *tx, &job).await?;
    let at_nonce = || {
        attempts
            .iter()
            .filter(|other| other.nonce == job.nonce && other.status.can_land() && other.raw.is_some())
    };
    let Some(newest) = at_nonce().next_back().filter(|newest| newest.id == attempt) else { return Ok(()) };
    if newest.has_window() {
        // Nothing replaces or cancels it: that it did not land is proven when its time is over.
        tracing::error!(job_id = %job.id, chain = %job.chain, error = %outcome, "every node refuses the transaction");
        return Ok(());
    }
    let cancels = newest.action.is_cancellation();
    let refused =
        at_nonce().filter(|other| other.action.is_cancellation() == cancels && other.rejected).count();
    let last = u32::try_from(refused).unwrap_or(u32::MAX) > config.max_replacements;
    let kind = newest.action.name();
    tracing::error!(
        job_id = %job.id, chain = %job.chain, nonce = job.nonce, kind, refused, last, error = %outcome,
        tx_hash = newest.tx_hash.map(tracing::field::display), "every node refuses the transaction"
    );
    crate::metrics::rejected(&job, kind);
    let action = if cancels { RefusedAction::Cancellation } else { RefusedAction::Payment };
    let event = Event::Rejected { action, reason: outcome.to_string(), last };
    if let Ok(Step::Changed(change)) = job.apply(&event) {
        apply_in(tx, &job, &change, &config.schedules, Settlement::default()).await?;
    }
    Ok(())
}
