//! SQL that changes jobs: what the state machine decided, and the bulk steps of the workers.

use std::collections::HashSet;

use sqlx::{PgConnection, PgExecutor};
use types::{JobId, TxHash, WalletId};
use uuid::Uuid;

use crate::job::{
    AfterClosing, Approval, Attempt, BindingFate, Change, Due, Exit, Job, JobError, Request, State,
};
use crate::row::bigint;

/// The columns of a state; `read_state` is the way back.
struct Columns<'a> {
    blocked: Option<&'a str>,
    tx_hash: Option<TxHash>,
    /// None in a final state: why it was being closed stays as it is.
    closing: Option<(Option<&'a str>, AfterClosing)>,
}

impl<'a> Columns<'a> {
    fn of(job: &'a Job, to: &'a State) -> Self {
        let closing = to
            .closing()
            .map_or((None, AfterClosing::Fail), |closing| (Some(closing.reason.as_str()), closing.then));
        let (blocked, tx_hash, closing) = match to {
            State::Pending { blocked, .. } => (blocked.as_deref(), None, Some(closing)),
            State::Processing { .. } => (job.blocked.as_deref(), job.tx_hash, Some(closing)),
            State::Confirming { .. } => (None, job.tx_hash, Some(closing)),
            State::Confirmed { tx_hash } => (None, Some(*tx_hash), None),
            State::Failed { .. } => (None, job.tx_hash, None),
            State::Parked { exit: Exit::Close { reason, then }, .. } => {
                (None, job.tx_hash, Some((reason.as_deref(), *then)))
            }
            State::Parked { exit: Exit::Decide | Exit::Unproven | Exit::Undone, .. } => {
                (None, job.tx_hash, Some(closing))
            }
        };
        Self { blocked, tx_hash, closing }
    }
}

/// Writes a change; a job that is no longer in the status it was read in is a conflict.
pub(crate) async fn update_in(
    tx: &mut PgConnection,
    job: &Job,
    change: &Change,
    frees: bool,
) -> Result<(), JobError> {
    let columns = Columns::of(job, &change.to);
    let (reason, then) = columns.closing.unwrap_or((None, AfterClosing::Fail));
    let waits = if change.due == Due::AfterWait { job.waits.saturating_add(1) } else { 0 };
    let updated = sqlx::query(include_str!("../../../queries/change_job.sql"))
        .bind(job.id.as_uuid())
        .bind(job.state.name())
        .bind(change.to.name())
        .bind(i32::from(change.count_try))
        .bind(i32::try_from(waits).unwrap_or(i32::MAX))
        .bind(change.note.as_deref())
        .bind(columns.blocked)
        .bind(change.to.request().map(<&'static str>::from))
        .bind(reason)
        .bind(columns.tx_hash.map(|hash| hash.as_bytes().to_vec()))
        .bind(change.to.status().is_final())
        .bind(reason.is_some() && then == AfterClosing::Retry)
        .bind(frees)
        .execute(tx)
        .await?;
    db::expect_one(updated).map_err(|_| JobError::Conflict)
}

/// Releases the binding that a job holds.
pub(crate) async fn release_binding_in(
    tx: &mut PgConnection,
    job: JobId,
    fate: BindingFate,
) -> Result<(), JobError> {
    let spent = match fate {
        BindingFate::Keep => return Ok(()),
        BindingFate::Closed { by, .. } => {
            sqlx::query(
                "UPDATE lane_nonces SET state = 'closed', closed_by = $2, closed_at = now()
                 WHERE job_id = $1 AND state = 'open'",
            )
            .bind(job.as_uuid())
            .bind(<&'static str>::from(by))
            .execute(tx)
            .await?;
            return Ok(());
        }
        BindingFate::Freed => false,
        BindingFate::Spent => true,
    };
    sqlx::query(
        "UPDATE lane_nonces SET state = CASE WHEN $2 THEN 'spent' ELSE 'free' END,
             job_id = CASE WHEN $2 THEN job_id END, committed_raw = 0
         WHERE job_id = $1 AND state = 'open'",
    )
    .bind(job.as_uuid())
    .bind(spent)
    .execute(&mut *tx)
    .await?;
    // Nothing was signed under it, and nothing may be signed for this job under it any more.
    sqlx::query("UPDATE attempts SET status = 'void' WHERE job_id = $1 AND status = 'reserved'")
        .bind(job.as_uuid())
        .execute(tx)
        .await?;
    Ok(())
}

/// Writes that these jobs were claimed. Those that are being confirmed stay so.
pub(crate) async fn claim_in(tx: &mut PgConnection, ids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE jobs SET status = 'processing', processing_since = now(), updated_at = now()
         WHERE id = ANY ($1) AND status = 'pending'",
    )
    .bind(ids)
    .execute(tx)
    .await?;
    Ok(())
}

/// Gives wallets to jobs that have none.
pub(crate) async fn assign_in(tx: &mut PgConnection, found: &[(JobId, WalletId)]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE jobs AS j SET wallet_id = n.wallet_id, reserved = true, blocked_reason = NULL, waits = 0, updated_at = now()
         FROM unnest($1::uuid[], $2::uuid[]) AS n (id, wallet_id)
         WHERE j.id = n.id AND j.wallet_id IS NULL",
    )
    .bind(found.iter().map(|(job, _)| job.as_uuid()).collect::<Vec<_>>())
    .bind(found.iter().map(|(_, wallet)| wallet.as_uuid()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Locks the jobs and returns those that are still to be paid: nobody cancelled them meanwhile.
pub(crate) async fn lock_payable_in(
    tx: &mut PgConnection,
    held: &HashSet<Uuid>,
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let ids: Vec<Uuid> = held.iter().copied().collect();
    let payable: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM jobs WHERE id = ANY ($1) AND status = 'processing' AND wanted IS NULL AND cancel_reason IS NULL
         ORDER BY id FOR UPDATE",
    )
    .bind(ids)
    .fetch_all(tx)
    .await?;
    Ok(payable.into_iter().collect())
}

/// A job whose attempt was sent, and what follows from the nodes' answers.
pub(crate) struct SentJob<'a> {
    pub job: &'a Job,
    pub attempt: &'a Attempt,
    pub error: Option<String>,
    pub blocked: Option<String>,
    /// The nodes call the fee too low.
    pub underpriced: bool,
}

/// Moves jobs to confirming unless a verdict or an operator was faster; returns those moved.
pub(crate) async fn confirm_in(
    tx: &mut PgConnection,
    sent: &[SentJob<'_>],
) -> Result<HashSet<JobId>, sqlx::Error> {
    let hash = |sent: &SentJob<'_>| sent.attempt.tx_hash.map(|hash| hash.as_bytes().to_vec());
    let request = |sent: &SentJob<'_>| {
        let request = if sent.attempt.action.is_cancellation() { Request::Cancel } else { Request::Bump };
        sent.underpriced.then(|| <&'static str>::from(request))
    };
    let moved: Vec<Uuid> = sqlx::query_scalar(include_str!("../../../queries/confirm_jobs.sql"))
        .bind(sent.iter().map(|sent| sent.job.id.as_uuid()).collect::<Vec<_>>())
        .bind(sent.iter().map(hash).collect::<Vec<_>>())
        .bind(sent.iter().map(|sent| sent.attempt.action.name()).collect::<Vec<_>>())
        .bind(sent.iter().map(|sent| sent.error.clone()).collect::<Vec<_>>())
        .bind(sent.iter().map(|sent| sent.blocked.clone()).collect::<Vec<_>>())
        .bind(sent.iter().map(request).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    Ok(moved.into_iter().map(JobId::from_uuid).collect())
}

/// Shows whether a job that is being confirmed waits for money; false if that is shown already.
pub(crate) async fn show_blocked_in(
    tx: &mut PgConnection,
    job: JobId,
    blocked: Option<&str>,
) -> Result<bool, sqlx::Error> {
    let changed = sqlx::query(
        "UPDATE jobs SET blocked_reason = $2, updated_at = now()
         WHERE id = $1 AND status = 'confirming' AND blocked_reason IS DISTINCT FROM $2",
    );
    let changed = changed.bind(job.as_uuid()).bind(blocked).execute(tx).await?;
    Ok(changed.rows_affected() > 0)
}

/// Requests a bump, or another cancellation, of a job that is being confirmed and locked.
pub(crate) async fn request_in(
    tx: &mut PgConnection,
    job: JobId,
    request: Request,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE jobs SET wanted = $2, updated_at = now() WHERE id = $1")
        .bind(job.as_uuid())
        .bind(<&'static str>::from(request))
        .execute(tx)
        .await?;
    Ok(())
}

/// Replaces approvals; false if those of this revision, or newer ones, are stored already.
pub(crate) async fn renew_approvals(
    db: impl PgExecutor<'_>,
    job: JobId,
    approvals: &[Approval],
    revision: u64,
) -> Result<bool, JobError> {
    let renewed = sqlx::query(
        "UPDATE jobs SET approvals = $2, approvals_revision = $3, updated_at = now()
         WHERE id = $1 AND approvals_revision < $3",
    )
    .bind(job.as_uuid())
    .bind(serde_json::to_value(approvals)?)
    .bind(bigint(revision))
    .execute(db)
    .await?;
    Ok(renewed.rows_affected() == 1)
}
