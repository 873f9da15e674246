//! Creating, importing and reading withdrawal requests.
//!
//! Owns these use cases: load, decide, save with the outbox in one transaction. Approving, ending and progress are in `decide`
//! and `progress`, on the same struct.
//!
//! Invariants: one idempotency key, one row, for ever; a stored request passed every check at one moment, under the locks of
//! its limits.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};
use telemetry::crash_point;
use types::WithdrawalId;

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
use crate::violation::Violation;
use crate::{catalogue, limit, policy};

/// Longest history that is handed out at once. No request comes near it: approvals and refusals are bounded per approver, and
/// blocked reasons come with the retries of one job.
const MAX_HISTORY: u32 = 10_000;

/// The use cases of withdrawal requests.
#[derive(Debug, Clone)]
pub struct Withdrawals {
    pub(super) pool: PgPool,
    /// Where approvals and reports of progress are written together.
    pub(super) desk: Desk,
    /// What an asset without a policy demands; `None` refuses its withdrawals.
    default_required_approvals: Option<u32>,
}

impl Withdrawals {
    /// Call it inside a Tokio runtime: it starts the writer of what arrives together, which ends with the last clone.
    pub fn new(pool: PgPool, approvers: Approvers, default_required_approvals: Option<u32>) -> Self {
        let desk = together::start(pool.clone(), approvers);
        Self { pool, desk, default_required_approvals }
    }

    /// Stores a request, or returns the one that the same caller stored before under the same key.
    pub async fn create(&self, draft: Draft, requested_by: &str) -> Result<Withdrawal, WithdrawalError> {
        let mut tx = db::begin(&self.pool).await?;
        let mut wrong = Vec::new();
        let key =
            IdempotencyKey::parse(&draft.idempotency_key).map_err(|violation| wrong.push(violation)).ok();
        if let Some(key) = &key
            && let Some(stored) = repo::find_by_key_in(&mut tx, key).await?
        {
            return replay(stored, &draft, requested_by);
        }
        let payload = read_in(&mut tx, draft.clone(), &mut wrong).await?;
        let (Some(key), Some(payload)) = (key, payload) else { return Err(WithdrawalError::Invalid(wrong)) };
        let required = self.required_in(&mut tx, &payload).await?;
        let now = repo::now_in(&mut tx).await?;
        let withdrawal = Withdrawal {
            id: WithdrawalId::new(),
            origin: Origin::Request,
            key,
            payload,
            requested_by: requested_by.to_owned(),
            required_approvals: required,
            approvals: Vec::new(),
            state: State::Pending,
            sequence: 1,
            created_at: now,
            updated_at: now,
        };
        // Before the limits: a parallel call with the same key waits here and then answers with this row, where the limits
        // would count that row against it.
        if !repo::insert_in(&mut tx, &withdrawal, &created_detail(&withdrawal)).await? {
            tx.rollback().await?;
            return self.replay_winner(&withdrawal.key, &draft, requested_by).await;
        }
        let payload = &withdrawal.payload;
        let exceeded =
            limit::repo::exceeded_in(&mut tx, payload.user_id, &payload.chain, &payload.asset).await?;
        if let Some(limit) = exceeded {
            tx.rollback().await?;
            measure::limit_exceeded(&limit);
            return Err(WithdrawalError::LimitExceeded(Box::new(limit)));
        }
        crash_point("intent.before_create");
        tx.commit().await?;
        crash_point("intent.after_create");
        tracing::info!(
            withdrawal_id = %withdrawal.id, user_id = %payload.user_id, chain = %payload.chain, asset = %payload.asset,
            amount = payload.amount_text(), requested_by, on_behalf_of = payload.on_behalf_of,
            required_approvals = required, "withdrawal requested"
        );
        measure::created(&withdrawal);
        Ok(withdrawal)
    }

    /// The parallel call that came first has committed, so its row is there.
    async fn replay_winner(
        &self,
        key: &IdempotencyKey,
        draft: &Draft,
        requested_by: &str,
    ) -> Result<Withdrawal, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        match repo::find_by_key_in(&mut connection, key).await? {
            Some(stored) => replay(stored, draft, requested_by),
            // Only an id can have collided, which two random ids do not: have the caller try again.
            None => Err(WithdrawalError::Conflict(db::Conflict { rows: 0 })),
        }
    }

    async fn required_in(&self, tx: &mut PgConnection, payload: &Payload) -> Result<u32, WithdrawalError> {
        let policy = policy::repo::find_in(tx, &payload.chain, &payload.asset).await?;
        let required = match &policy {
            Some(policy) => policy.required_for(payload.amount),
            None => self.default_required_approvals,
        };
        required.ok_or_else(|| WithdrawalError::NoPolicy {
            chain: payload.chain.clone(),
            asset: payload.asset.clone(),
        })
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
        let (payload, payment) = draft.clone().read(&entry, now).map_err(WithdrawalError::Invalid)?;
        let withdrawal = imported(&draft, payload, payment, requested_by, now);
        let detail = format!("imported from another system, broadcast as {}", payment.tx_hash);
        if !repo::insert_in(&mut tx, &withdrawal, &detail).await? {
            tx.rollback().await?;
            return draft.replay(self.get(withdrawal.id).await?);
        }
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

/// Reads a draft against the catalogue. `None` when anything is wrong, with all of it in `wrong`.
async fn read_in(
    tx: &mut PgConnection,
    draft: Draft,
    wrong: &mut Vec<Violation>,
) -> Result<Option<Payload>, WithdrawalError> {
    let names = draft.read_names(wrong);
    let (Some(chain), Some(asset)) = (&names.chain, &names.asset) else { return Ok(None) };
    let Some(entry) = catalogue::repo::find_in(tx, chain, asset).await? else {
        wrong.push(if catalogue::repo::chain_known_in(tx, chain).await? {
            unknown_asset(chain, asset)
        } else {
            Violation::new("chain", format_args!("{chain} is not known"))
        });
        return Ok(None);
    };
    let mut destination = entry.read_destination(&draft.destination);
    if let Ok(address) = destination {
        let standing = catalogue::repo::standing_in(tx, chain, &address).await?;
        destination = standing.check().map(|()| address);
    }
    Ok(draft.read_payload(names.user_id, &entry, destination, wrong))
}

fn unknown_asset(chain: &types::ChainName, asset: &types::AssetSymbol) -> Violation {
    Violation::new("asset", format_args!("{asset} is not known on {chain}"))
}

fn replay(stored: Withdrawal, draft: &Draft, requested_by: &str) -> Result<Withdrawal, WithdrawalError> {
    let fields = draft.differences(&stored, requested_by);
    if fields.is_empty() { Ok(stored) } else { Err(WithdrawalError::KeyReused { fields }) }
}

fn created_detail(withdrawal: &Withdrawal) -> String {
    let payload = &withdrawal.payload;
    format!("requested {} {} on {}", payload.amount_text(), payload.asset, payload.chain)
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
