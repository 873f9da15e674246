//! Deciding about a request: approve, reject, cancel.
//!
//! Owns these use cases. The quorum, the approved state and the message to execution are one transaction: execution is told if
//! and only if the request is approved.
//!
//! Approvals may expire after the quorum and before anything is signed; execution then waits. Where that could hurt, and what
//! holds: a renewal is written with its message under the request's lock, so two of them at one moment make one quorum; the
//! message follows the request in the order of its aggregate and carries a revision; what is lost is told again. Nothing is
//! signed in between, because the signer counts the approvals itself.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use telemetry::{crash_point_of, propagation};
use types::WithdrawalId;

use super::app::Withdrawals;
use super::approval::Consent;
use super::domain::{Event, Step};
use super::error::WithdrawalError;
use super::measure;
use super::repo::{self, Note};
use super::request::Withdrawal;
use super::together::{Call, Told};

/// Who ends a request.
#[derive(Debug, Clone, Copy)]
pub struct Ender<'a> {
    pub name: &'a str,
    /// Whether they may end requests that are not theirs.
    pub operator: bool,
}

impl Withdrawals {
    /// Records a signed approval; the one that makes the quorum hands the request to execution.
    pub async fn approve(&self, id: WithdrawalId, consent: Consent) -> Result<Withdrawal, WithdrawalError> {
        let approver = consent.approver.clone();
        let call = Call::Approve { id, consent, trace: propagation::current() };
        match self.desk.call(call).await? {
            Told::Nothing(withdrawal) => Ok(withdrawal),
            Told::Changed { withdrawal, notes, quorum } => {
                tracing::info!(withdrawal_id = %id, approver, quorum, "withdrawal approved by one");
                measure::changed(&withdrawal, &notes);
                Ok(withdrawal)
            }
            Told::Refused { refusal, times } => {
                tracing::warn!(withdrawal_id = %id, approver, reason = refusal.reason(), times, "approval refused");
                measure::refused(&refusal);
                Err(WithdrawalError::Refused(refusal))
            }
            Told::Illegal { illegal, .. } => Err(illegal.into()),
        }
    }

    /// Ends a pending request on an approver's word.
    pub async fn reject(
        &self,
        id: WithdrawalId,
        reason: String,
        by: &str,
    ) -> Result<Withdrawal, WithdrawalError> {
        self.apply(id, &Event::Reject { reason }, by, |_| Ok(())).await
    }

    /// Ends a pending request on its requester's word.
    pub async fn cancel(
        &self,
        id: WithdrawalId,
        reason: String,
        by: Ender<'_>,
    ) -> Result<Withdrawal, WithdrawalError> {
        let reason = if reason.is_empty() { format!("by {}", by.name) } else { reason };
        self.apply(id, &Event::Cancel { reason }, by.name, |withdrawal| {
            if by.operator || by.name == withdrawal.requested_by {
                Ok(())
            } else {
                Err(WithdrawalError::NotTheRequester)
            }
        })
        .await
    }

    /// Applies one event under the request's lock. A replay changes nothing and answers with the request as it stands.
    pub(super) async fn apply(
        &self,
        id: WithdrawalId,
        event: &Event,
        actor: &str,
        admit: impl FnOnce(&Withdrawal) -> Result<(), WithdrawalError>,
    ) -> Result<Withdrawal, WithdrawalError> {
        let mut tx = db::begin(&self.pool).await?;
        let mut withdrawal = repo::lock_in(&mut tx, id).await?;
        admit(&withdrawal)?;
        let now = time_of_change(&mut tx, &withdrawal).await?;
        let changes = match withdrawal.state.apply(event, now) {
            Ok(Step::AlreadyApplied) => return Ok(withdrawal),
            Ok(Step::Changed(changes)) => changes,
            Err(illegal) => {
                if illegal.contradiction {
                    measure::contradicted(&withdrawal, &illegal, actor);
                }
                return Err(illegal.into());
            }
        };
        let read = withdrawal.sequence;
        let notes = follow(&mut withdrawal, changes);
        finish(&mut withdrawal, &notes, now);
        repo::update_in(&mut tx, &withdrawal, read, &notes, actor).await?;
        crash_point_of("intent.before_progress", event.name());
        tx.commit().await?;
        crash_point_of("intent.after_progress", event.name());
        tracing::info!(withdrawal_id = %id, actor, event = event.name(), status = %withdrawal.state.status(), "withdrawal changed");
        measure::changed(&withdrawal, &notes);
        Ok(withdrawal)
    }
}

/// The transaction's time, but never before the request's last change: a transaction that waited for its turn began earlier
/// than the one it waited for, and the history must not run backwards.
async fn time_of_change(
    tx: &mut PgConnection,
    withdrawal: &Withdrawal,
) -> Result<DateTime<Utc>, WithdrawalError> {
    Ok(repo::now_in(tx).await?.max(withdrawal.updated_at))
}

/// Moves the request along the changes and says what to write down.
pub(super) fn follow(withdrawal: &mut Withdrawal, changes: Vec<super::domain::Change>) -> Vec<Note> {
    let mut notes = Vec::with_capacity(changes.len());
    for change in changes {
        notes.push(Note {
            from: Some(withdrawal.state.status()),
            to: change.to.status(),
            detail: change.detail,
        });
        withdrawal.state = change.to;
    }
    notes
}

fn finish(withdrawal: &mut Withdrawal, notes: &[Note], now: DateTime<Utc>) {
    withdrawal.sequence += notes.len() as u64;
    withdrawal.updated_at = now;
}
