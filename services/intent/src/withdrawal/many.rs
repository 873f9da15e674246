//! SQL that changes requests, many at once: whoever changes one changes a batch of one.
//!
//! Owns the statements that lock and change requests and append to their histories. It never decides; every change is
//! compare-and-set on the request's sequence.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use types::WithdrawalId;
use uuid::Uuid;

use super::approval::Consent;
use super::domain::{State, Status};
use super::error::WithdrawalError;
use super::repo::{self, Note};
use super::request::Withdrawal;
use super::watch::TOPIC;

const UPDATE: &str = include_str!("../../queries/withdrawal_update.sql");
const APPEND: &str = include_str!("../../queries/transition_append.sql");
const PUT_APPROVALS: &str = include_str!("../../queries/approval_put.sql");

/// One entry of a history, to be added.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) note: &'a Note,
    pub(super) actor: &'a str,
}

/// A request in its new state, and how it came there.
#[derive(Debug, Clone)]
pub(super) struct Changed<'a> {
    pub(super) withdrawal: &'a Withdrawal,
    /// Its newest entry when it was loaded.
    pub(super) read: u64,
    pub(super) entries: Vec<Entry<'a>>,
}

/// Requests, held against other writers until the transaction ends. In the order of their ids, so that two of these never
/// wait for each other in a circle. Unknown ones are left out.
pub(super) async fn lock_in(
    tx: &mut PgConnection,
    ids: &BTreeSet<WithdrawalId>,
) -> Result<HashMap<WithdrawalId, Withdrawal>, WithdrawalError> {
    let ids: Vec<Uuid> = ids.iter().map(WithdrawalId::as_uuid).collect();
    let locked = repo::lock_many_in(tx, &ids).await?;
    Ok(locked.into_iter().map(|withdrawal| (withdrawal.id, withdrawal)).collect())
}

/// Writes new states with the entries that led to them.
pub(super) async fn save_in(tx: &mut PgConnection, changed: &[Changed<'_>]) -> Result<(), WithdrawalError> {
    if changed.is_empty() {
        return Ok(());
    }
    let blocked_since = |state: &State| match state {
        State::Queued { blockage, .. } => blockage.changed_at,
        _ => None,
    };
    let paid = |state: &State| match state {
        State::Completed { tx_hash, block, .. } => (Some(tx_hash.to_string()), Some(*block)),
        _ => (None, None),
    };
    let all = || changed.iter().map(|changed| changed.withdrawal);
    let states = || all().map(|withdrawal| &withdrawal.state);
    let blocks = states().map(|state| paid(state).1.map(signed).transpose());
    let updated = sqlx::query(UPDATE)
        .bind(all().map(|withdrawal| withdrawal.id.as_uuid()).collect::<Vec<_>>())
        .bind(changed.iter().map(|changed| signed(changed.read)).collect::<Result<Vec<_>, _>>()?)
        .bind(all().map(|withdrawal| signed(withdrawal.sequence)).collect::<Result<Vec<_>, _>>()?)
        .bind(states().map(|state| state.status().as_str()).collect::<Vec<_>>())
        .bind(states().map(State::blocked_reason).collect::<Vec<_>>())
        .bind(states().map(blocked_since).collect::<Vec<_>>())
        .bind(states().map(State::failure_reason).collect::<Vec<_>>())
        .bind(states().map(|state| paid(state).0).collect::<Vec<_>>())
        .bind(blocks.collect::<Result<Vec<_>, _>>()?)
        .bind(all().map(|withdrawal| withdrawal.updated_at).collect::<Vec<_>>())
        .bind(states().map(State::approved_at).collect::<Vec<_>>())
        .bind(states().map(State::queued_at).collect::<Vec<_>>())
        .bind(states().map(State::finished_at).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    db::cas::expect_rows(updated, changed.len())?;
    append_in(tx, changed).await
}

/// Appends to histories, each after the entry that was read.
pub(super) async fn append_in(tx: &mut PgConnection, changed: &[Changed<'_>]) -> Result<(), WithdrawalError> {
    let mut rows: Vec<(Uuid, i64, Entry<'_>, DateTime<Utc>)> = Vec::new();
    for Changed { withdrawal, read, entries } in changed {
        for (place, entry) in (read + 1..).zip(entries) {
            rows.push((withdrawal.id.as_uuid(), signed(place)?, *entry, withdrawal.updated_at));
        }
    }
    let notes = || rows.iter().map(|(_, _, entry, _)| entry.note);
    sqlx::query(APPEND)
        .bind(rows.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, sequence, ..)| *sequence).collect::<Vec<_>>())
        .bind(notes().map(|note| note.from.map(Status::as_str)).collect::<Vec<_>>())
        .bind(notes().map(|note| note.to.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, _, entry, _)| entry.actor).collect::<Vec<_>>())
        .bind(notes().map(|note| note.detail.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(.., at)| *at).collect::<Vec<_>>())
        .bind(TOPIC)
        .execute(tx)
        .await?;
    Ok(())
}

/// A consent that counts, for the request it is about.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    request: Uuid,
    requested_by: String,
    on_behalf_of: String,
    consent: Consent,
    at: DateTime<Utc>,
    /// The signature of the same approver that was read and no longer counts.
    replaced: Option<[u8; 64]>,
}

impl Counted {
    pub(super) fn of(withdrawal: &Withdrawal, consent: &Consent, at: DateTime<Utc>) -> Self {
        let earlier = withdrawal.approvals.iter().find(|approval| approval.approver == consent.approver);
        Self {
            request: withdrawal.id.as_uuid(),
            requested_by: withdrawal.requested_by.clone(),
            on_behalf_of: withdrawal.payload.on_behalf_of.clone(),
            consent: consent.clone(),
            at,
            replaced: earlier.map(|approval| approval.signature),
        }
    }
}

/// Stores consents that count. Each replaces only what was read of the same approver.
pub(super) async fn put_approvals_in(
    tx: &mut PgConnection,
    counted: &[Counted],
) -> Result<(), WithdrawalError> {
    if counted.is_empty() {
        return Ok(());
    }
    let consents = || counted.iter().map(|counted| &counted.consent);
    let stored = sqlx::query(PUT_APPROVALS)
        .bind(counted.iter().map(|counted| counted.request).collect::<Vec<_>>())
        .bind(consents().map(|consent| consent.approver.as_str()).collect::<Vec<_>>())
        .bind(counted.iter().map(|counted| counted.requested_by.as_str()).collect::<Vec<_>>())
        .bind(consents().map(|consent| consent.signature.as_slice()).collect::<Vec<_>>())
        .bind(consents().map(|consent| consent.expires_at).collect::<Vec<_>>())
        .bind(counted.iter().map(|counted| counted.at).collect::<Vec<_>>())
        .bind(counted.iter().map(|counted| counted.on_behalf_of.as_str()).collect::<Vec<_>>())
        .bind(
            counted
                .iter()
                .filter_map(|counted| counted.replaced.as_ref())
                .map(|s| s.as_slice())
                .collect::<Vec<_>>(),
        )
        .execute(tx)
        .await?;
    db::cas::expect_rows(stored, counted.len())?;
    Ok(())
}

fn signed(value: u64) -> Result<i64, WithdrawalError> {
    i64::try_from(value).map_err(|_| WithdrawalError::Corrupt(format!("{value} is too large to store")))
}
