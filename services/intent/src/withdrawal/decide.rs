//! Deciding about a request: approve, reject, cancel.
//!
//! Owns these use cases. The quorum, the approved state and the message to execution are one transaction: execution is told if
//! and only if the request is approved.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use types::WithdrawalId;

use super::app::Withdrawals;
use super::approval::{self, Approval, Consent, Decision, Electorate, Refusal};
use super::domain::{Event, Status, Step};
use super::error::WithdrawalError;
use super::repo::{self, Note};
use super::request::Withdrawal;
use super::{handover, measure};
use crate::policy;

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
        let mut tx = self.pool.begin().await?;
        let mut withdrawal = repo::lock_in(&mut tx, id).await?;
        let now = time_of_change(&mut tx, &withdrawal).await?;
        let policy =
            policy::repo::find_in(&mut tx, &withdrawal.payload.chain, &withdrawal.payload.asset).await?;
        let key = self.approvers.key(&consent.approver);
        let electorate = Electorate {
            key: key.as_ref(),
            approvers: policy.as_ref().map_or(&[][..], |policy| &policy.approvers),
        };
        let (quorum, renews) = match approval::decide(&withdrawal, &consent, electorate, now) {
            Ok(Decision::AlreadyRecorded) => return Ok(withdrawal),
            Ok(Decision::Counts { quorum, renews }) => (quorum, renews),
            Err(refusal) => {
                refuse_in(&mut tx, withdrawal, &consent.approver, &refusal, now).await?;
                tx.commit().await?;
                return Err(WithdrawalError::Refused(refusal));
            }
        };
        repo::put_approval_in(&mut tx, &withdrawal, &consent, now).await?;
        let read = withdrawal.sequence;
        let approver = consent.approver.clone();
        count(&mut withdrawal, consent, now);
        let mut notes = vec![counted(&withdrawal, renews, now)];
        if quorum && let Step::Changed(changes) = withdrawal.state.apply(&Event::QuorumReached, now)? {
            notes.extend(follow(&mut withdrawal, changes));
        }
        finish(&mut withdrawal, &notes, now);
        repo::update_in(&mut tx, &withdrawal, read, &notes, &approver).await?;
        if quorum {
            handover::enqueue_in(&mut tx, &withdrawal, now).await?;
        }
        tx.commit().await?;
        tracing::info!(withdrawal_id = %id, approver, quorum, "withdrawal approved by one");
        measure::changed(&withdrawal, &notes);
        Ok(withdrawal)
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
        let mut tx = self.pool.begin().await?;
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
        tx.commit().await?;
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
fn follow(withdrawal: &mut Withdrawal, changes: Vec<super::domain::Change>) -> Vec<Note> {
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

fn count(withdrawal: &mut Withdrawal, consent: Consent, now: DateTime<Utc>) {
    withdrawal.approvals.retain(|approval| approval.approver != consent.approver);
    withdrawal.approvals.push(Approval {
        approver: consent.approver,
        signature: consent.signature,
        expires_at: consent.expires_at,
        approved_at: now,
    });
}

fn counted(withdrawal: &Withdrawal, renews: bool, now: DateTime<Utc>) -> Note {
    let counting = approval::usable(&withdrawal.approvals, now).count();
    let word = if renews { "approval renewed" } else { "approved" };
    let detail = format!("{word}, {counting} of {}", withdrawal.required_approvals);
    Note { from: Some(Status::Pending), to: Status::Pending, detail }
}

/// Writes a refused approval down: always in the audit table, and once per approver and reason in the history, as long as the
/// request is pending (the history of what ended is closed).
async fn refuse_in(
    tx: &mut PgConnection,
    mut withdrawal: Withdrawal,
    approver: &str,
    refusal: &Refusal,
    now: DateTime<Utc>,
) -> Result<(), WithdrawalError> {
    let times = repo::put_refusal_in(tx, withdrawal.id, approver, refusal).await?;
    tracing::warn!(withdrawal_id = %withdrawal.id, approver, reason = refusal.reason(), times, "approval refused");
    measure::refused(refusal);
    if times > 1 || withdrawal.state.status() != Status::Pending {
        return Ok(());
    }
    let read = withdrawal.sequence;
    let detail = format!("approval refused: {refusal}");
    let notes = [Note { from: Some(Status::Pending), to: Status::Pending, detail }];
    finish(&mut withdrawal, &notes, now);
    repo::update_in(tx, &withdrawal, read, &notes, approver).await
}
