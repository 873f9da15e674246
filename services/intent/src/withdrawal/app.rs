//! Creating, importing and reading withdrawal requests.
//!
//! Owns these use cases: load, decide, save with the outbox in one transaction. Approving, ending and progress are in `decide`
//! and `progress`, on the same struct.
//!
//! Invariants: one idempotency key, one row, for ever; a stored request passed every check at one moment, under the locks of
//! its limits.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};
use types::WithdrawalId;

use super::create::{self, Call, Counter, Made, unknown_asset};
use super::domain::{Blockage, Handover, State};
use super::draft::Draft;
use super::error::WithdrawalError;
use super::import::ImportDraft;
use super::list::Page;
use super::repo::{self, Transition};
use super::request::{IdempotencyKey, ImportedPayment, Origin, Payload, Withdrawal};
use super::together::{self, Desk};
use super::{handover, measure};
use crate::approvers::Approvers;
use crate::catalogue::{self, Entry, Standing};

/// Longest history that is handed out at once. No request comes near it: approvals and refusals are bounded per approver, and
/// blocked reasons come with the retries of one job.
const MAX_HISTORY: u32 = 10_000;

/// One writes new requests, one what happens to them.
const WRITERS: u32 = 2;

/// The use cases of withdrawal requests.
#[derive(Debug, Clone)]
pub struct Withdrawals {
    pub(super) pool: PgPool,
    /// Where approvals and reports of progress are written together.
    pub(super) desk: Desk,
    /// Where new requests are written together.
    counter: Counter,
}

impl Withdrawals {
    /// Call it inside a Tokio runtime: it starts the writers of what arrives together, which end with the last clone. An asset
    /// without a policy demands so many approvals; `None` refuses its withdrawals.
    pub fn new(pool: PgPool, approvers: Approvers, default_required_approvals: Option<u32>) -> Self {
        let writers = db::dedicated_pool(&pool, WRITERS);
        let desk = together::start(writers.clone(), approvers);
        Self { pool, desk, counter: create::start(writers, default_required_approvals) }
    }

    /// Stores a request, or returns the one that the same caller stored before under the same key.
    pub async fn create(&self, draft: Draft, requested_by: &str) -> Result<Withdrawal, WithdrawalError> {
        let call = Call { draft, requested_by: requested_by.to_owned() };
        let withdrawal = match self.counter.call(call.clone()).await {
            Ok(Made::New(withdrawal)) => withdrawal,
            Ok(Made::Known(withdrawal)) => return Ok(withdrawal),
            Ok(Made::Overtaken) => return self.replay_winner(&call).await,
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

    /// The parallel call that came first has committed, so its row is there.
    async fn replay_winner(&self, call: &Call) -> Result<Withdrawal, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        let key = call.draft.idempotency_key.as_str();
        match repo::find_by_keys_in(&mut connection, &[key].into()).await?.remove(key) {
            Some(stored) => create::replay(stored, call),
            // Only an id can have collided, which two random ids do not: have the caller try again.
            None => Err(WithdrawalError::Conflict(db::Conflict { rows: 0 })),
        }
    }

    /// Takes over a payment that another system broadcast. Repeating it returns the stored request.
    pub async fn import(
        &self,
        draft: ImportDraft,
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
        let entry = entry.ok_or_else(|| WithdrawalError::Invalid(vec![unknown_asset(chain, asset)]))?;
        let now = repo::now_in(&mut tx).await?;
        let payer = payer_in(&mut tx, &draft, &entry).await?;
        let (payload, payment) = draft.clone().read(&entry, payer, now).map_err(WithdrawalError::Invalid)?;
        let withdrawal = imported(&draft, payload, payment, requested_by, now);
        if repo::insert_in(&mut tx, &[&withdrawal]).await?.is_empty() {
            tx.rollback().await?;
            return draft.replay(self.get(withdrawal.id).await?);
        }
        repo::put_import_in(&mut tx, &withdrawal, &payment).await?;
        handover::import_in(&mut tx, &withdrawal, &payment).await?;
        tx.commit().await?;
        tracing::info!(withdrawal_id = %withdrawal.id, tx_hash = %payment.tx_hash, requested_by, "withdrawal imported");
        measure::created(&withdrawal);
        Ok(withdrawal)
    }

    /// One request.
    pub async fn get(&self, id: WithdrawalId) -> Result<Withdrawal, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::find_in(&mut connection, id).await
    }

    /// One page of requests.
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
}

/// What the address that an import was paid from is to us.
async fn payer_in(
    tx: &mut PgConnection,
    draft: &ImportDraft,
    entry: &Entry,
) -> Result<Standing, WithdrawalError> {
    let Some(address) = draft.payer(entry) else { return Ok(Standing::Foreign) };
    let asked = (draft.chain.clone(), address);
    let standings = catalogue::repo::standings_in(tx, [asked.clone()].into()).await?;
    Ok(standings.get(&asked).copied().unwrap_or(Standing::Foreign))
}

fn imported(
    draft: &ImportDraft,
    payload: Payload,
    payment: ImportedPayment,
    requested_by: &str,
    now: DateTime<Utc>,
) -> Withdrawal {
    let handover = Handover { approved_at: None, queued_at: now };
    Withdrawal {
        id: draft.id,
        origin: Origin::Import(payment),
        key: IdempotencyKey::of_import(draft.id),
        payload,
        requested_by: requested_by.to_owned(),
        required_approvals: 0,
        approvals: Vec::new(),
        state: State::Queued { handover, blockage: Blockage::default() },
        sequence: 1,
        created_at: draft.created_at,
        updated_at: now,
    }
}
