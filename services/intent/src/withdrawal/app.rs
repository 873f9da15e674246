//! Use cases of withdrawal requests.
//!
//! What changes a request goes through `batch`; logs and metrics are written here, after the commit.
//!
//! Invariants: one idempotency key, one row, for ever; a stored request passed every check at one moment, under the locks of
//! its limits.

use std::time::Duration;

use db::outbox;
use sqlx::PgPool;
use telemetry::propagation;
use types::WithdrawalId;

use super::approval::Consent;
use super::batch::{
    self, Change, ChangeOutcome, Changes, Command, Creation, CreationOutcome, Creations, Rules,
};
use super::domain::{Event, Status, Transition};
use super::error::WithdrawalError;
use super::list::{Page, Statistics};
use super::request::Withdrawal;
use super::request::draft::WithdrawalDraft;
use super::request::import::ImportDraft;
use super::{measure, message, repo};
use crate::approvers::Approvers;
use crate::catalogue::{self, AddressKind};

/// The longest history that is returned at once. No request comes near it: approvals and refusals are bounded for each
/// approver, and blocked reasons by the retries of one job.
const MAX_HISTORY: u32 = 10_000;

/// One for each batch writer.
const WRITER_CONNECTIONS: u32 = 2;

/// The actor of what this service records by itself.
const SELF: &str = "intent";
/// Reasons are for people; a longer one is a stack trace.
pub const MAX_REPORTED_REASON_CHARS: usize = 1000;

#[derive(Debug, Clone)]
pub struct Withdrawals {
    pool: PgPool,
    creations: Creations,
    changes: Changes,
}

impl Withdrawals {
    /// Must be called inside a Tokio runtime: it starts the batch writers, which end with the last clone. Without
    /// `default_required_approvals`, withdrawals of an asset without a policy are refused.
    pub fn new(pool: PgPool, approvers: Approvers, default_required_approvals: Option<u32>) -> Self {
        let writers = db::dedicated_pool(&pool, WRITER_CONNECTIONS);
        let rules = Rules { approvers, default_required_approvals };
        let creations = batch::start_creations(writers.clone(), rules.clone());
        Self { pool, creations, changes: batch::start_changes(writers, rules) }
    }

    /// Stores a request, or returns the one that the same caller stored before under the same key.
    pub async fn create(
        &self,
        draft: WithdrawalDraft,
        requested_by: &str,
    ) -> Result<Withdrawal, WithdrawalError> {
        let creation = Creation { id: WithdrawalId::new(), draft, requested_by: requested_by.to_owned() };
        let withdrawal = match self.creations.call(creation).await {
            Ok(CreationOutcome::Created(withdrawal)) => withdrawal,
            Ok(CreationOutcome::AlreadyStored(withdrawal)) => return Ok(withdrawal),
            Err(error) => {
                if let WithdrawalError::LimitExceeded(limit) = &error {
                    measure::limit_exceeded(limit);
                }
                return Err(error);
            }
        };
        let payload = &withdrawal.payload;
        tracing::info!(
            withdrawal_id = %withdrawal.id, user_id = %payload.user_id, chain = %payload.chain, asset = %payload.asset,
            amount = payload.amount_text(), requested_by, on_behalf_of = payload.on_behalf_of,
            required_approvals = withdrawal.required_approvals, "withdrawal requested"
        );
        measure::created(&withdrawal);
        Ok(withdrawal)
    }

    /// Records a signed approval; the one that completes the quorum hands the request to execution.
    pub async fn approve(&self, id: WithdrawalId, consent: Consent) -> Result<Withdrawal, WithdrawalError> {
        let approver = consent.approver.clone();
        let command = Command::Approve { consent, trace: propagation::current() };
        match self.changes.call(Change { id, command }).await? {
            ChangeOutcome::Unchanged(withdrawal) => Ok(withdrawal),
            ChangeOutcome::Changed { withdrawal, transitions, quorum } => {
                tracing::info!(withdrawal_id = %id, approver, quorum, "withdrawal approved by one");
                measure::changed(&withdrawal, &transitions);
                Ok(withdrawal)
            }
            ChangeOutcome::ApprovalRefused { refusal, times } => {
                tracing::warn!(withdrawal_id = %id, approver, reason = refusal.reason(), times, "approval refused");
                measure::refused(&refusal);
                Err(WithdrawalError::Refused(refusal))
            }
            ChangeOutcome::Illegal { illegal, .. } => Err(illegal.into()),
        }
    }

    pub async fn reject(
        &self,
        id: WithdrawalId,
        reason: String,
        by: &str,
    ) -> Result<Withdrawal, WithdrawalError> {
        self.apply(id, Event::Reject { reason }, by, false).await
    }

    /// `only_requester` refuses to cancel a request that somebody else made.
    pub async fn cancel(
        &self,
        id: WithdrawalId,
        reason: String,
        by: &str,
        only_requester: bool,
    ) -> Result<Withdrawal, WithdrawalError> {
        let reason = if reason.is_empty() { format!("by {by}") } else { reason };
        self.apply(id, Event::Cancel { reason }, by, only_requester).await
    }

    /// Records progress that another service reports. A repeated report changes nothing; one that contradicts what is recorded
    /// is refused and raises an alarm.
    pub async fn record_progress(
        &self,
        id: WithdrawalId,
        event: Event,
        by: &str,
    ) -> Result<(), WithdrawalError> {
        self.apply(id, event, by, false).await.map(drop)
    }

    /// Records that execution refused to accept a request. This says nothing about payment: the message stays parked, and if
    /// execution has the request after all, execution's own reports count.
    pub async fn handover_refused(&self, id: WithdrawalId, refusal: &str) -> Result<(), WithdrawalError> {
        // PostgreSQL's text cannot contain a zero byte, and the receiver's message may contain anything.
        let cut = refusal.chars().filter(|c| *c != '\0').take(MAX_REPORTED_REASON_CHARS).collect::<String>();
        let event = Event::RefuseHandover { reason: format!("execution refused to take it: {cut}") };
        self.record_progress(id, event, SELF).await
    }

    async fn apply(
        &self,
        id: WithdrawalId,
        event: Event,
        actor: &str,
        only_requester: bool,
    ) -> Result<Withdrawal, WithdrawalError> {
        let name = event.name();
        let command = Command::Apply { event, actor: actor.to_owned(), only_requester };
        match self.changes.call(Change { id, command }).await? {
            ChangeOutcome::Unchanged(withdrawal) => Ok(withdrawal),
            ChangeOutcome::Changed { withdrawal, transitions, .. } => {
                let status = withdrawal.state.status();
                tracing::info!(withdrawal_id = %id, actor, event = name, %status, "withdrawal changed");
                measure::changed(&withdrawal, &transitions);
                Ok(withdrawal)
            }
            ChangeOutcome::Illegal { withdrawal, illegal } => {
                if illegal.contradiction {
                    measure::contradicted(&withdrawal, &illegal, actor);
                }
                Err(illegal.into())
            }
            ChangeOutcome::ApprovalRefused { refusal, .. } => Err(WithdrawalError::Refused(refusal)),
        }
    }

    /// Accepts a payment that another system broadcast. Repeating it returns the stored request.
    pub async fn import(
        &self,
        draft: ImportDraft,
        requested_by: &str,
    ) -> Result<Withdrawal, WithdrawalError> {
        match self.import_once(&draft, requested_by).await {
            // A parallel call with the same id has committed, so this finds what it stored.
            Err(WithdrawalError::Conflict(_)) => self.import_once(&draft, requested_by).await,
            result => result,
        }
    }

    async fn import_once(
        &self,
        draft: &ImportDraft,
        requested_by: &str,
    ) -> Result<Withdrawal, WithdrawalError> {
        let mut tx = db::begin(&self.pool).await?;
        match repo::find_in(&mut tx, draft.id).await {
            Ok(stored) => return draft.replay(stored),
            Err(WithdrawalError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let (chain, asset) = (&draft.chain, &draft.asset);
        let entry = catalogue::repo::find_in(&mut tx, chain, asset).await?;
        let entry =
            entry.ok_or_else(|| WithdrawalError::Invalid(catalogue::unknown_asset(chain, asset).into()))?;
        let sender = draft.sender(&entry).map(|address| (chain.clone(), address));
        let kinds = catalogue::repo::address_kinds_in(&mut tx, sender.into_iter().collect()).await?;
        let sender = kinds.into_values().next().unwrap_or(AddressKind::Unknown);
        let now = repo::now_in(&mut tx).await?;
        let (withdrawal, payment) =
            draft.accept(&entry, sender, requested_by, now).map_err(WithdrawalError::Invalid)?;
        repo::insert_in(&mut tx, &[&withdrawal]).await?;
        repo::put_import_in(&mut tx, &withdrawal, &payment).await?;
        outbox::enqueue_in(&mut tx, &message::import(&withdrawal, &payment)).await?;
        tx.commit().await?;
        tracing::info!(withdrawal_id = %withdrawal.id, tx_hash = %payment.tx_hash, requested_by, "withdrawal imported");
        measure::created(&withdrawal);
        Ok(withdrawal)
    }

    pub async fn get(&self, id: WithdrawalId) -> Result<Withdrawal, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::find_in(&mut connection, id).await
    }

    pub async fn list(&self, page: &Page) -> Result<Vec<Withdrawal>, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::list_in(&mut connection, page).await
    }

    /// The whole history of a request.
    pub async fn transitions(&self, id: WithdrawalId) -> Result<Vec<Transition>, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        let transitions = repo::transitions_in(&mut connection, id, 0, MAX_HISTORY).await?;
        // Every request has a first entry.
        if transitions.is_empty() { Err(WithdrawalError::NotFound(id)) } else { Ok(transitions) }
    }

    pub async fn statistics(&self, window: Duration) -> Result<Statistics, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::statistics_in(&mut connection, window).await
    }

    /// How many requests are not finished, by status.
    pub async fn count_open(&self) -> Result<Vec<(Status, u64)>, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::count_open_in(&mut connection).await
    }
}
