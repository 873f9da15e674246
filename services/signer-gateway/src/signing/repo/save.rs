//! Writes what a batch decided by one statement, which applies as a whole or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};
use types::{ChainName, JobId, RawAmount};
use uuid::Uuid;

use super::signed;
use crate::audit::{AuditEntry, Head};
use crate::guard::{GuardedPayment, PaymentKey, Slot, State};
use crate::signing::facts::SigningRecord;

#[derive(Debug)]
pub(in crate::signing) struct NewRecord {
    pub(in crate::signing) key: String,
    pub(in crate::signing) payment: PaymentKey,
    pub(in crate::signing) generation: u32,
    pub(in crate::signing) pays: bool,
    pub(in crate::signing) from: String,
    pub(in crate::signing) record: Arc<SigningRecord>,
    pub(in crate::signing) audit_sequence: u64,
}

/// A nonce used for the first time.
#[derive(Debug)]
pub(in crate::signing) struct NewSlot {
    pub(in crate::signing) chain: ChainName,
    pub(in crate::signing) wallet: String,
    pub(in crate::signing) nonce: u64,
    pub(in crate::signing) payment: PaymentKey,
    pub(in crate::signing) generation: u32,
}

/// Everything a batch changes besides the log. Later changes of one payment or job replace earlier ones.
#[derive(Debug, Default)]
pub(in crate::signing) struct BatchWrites {
    pub(in crate::signing) records: Vec<NewRecord>,
    pub(in crate::signing) payments: HashMap<PaymentKey, (GuardedPayment, Option<DateTime<Utc>>)>,
    pub(in crate::signing) slots: Vec<NewSlot>,
    pub(in crate::signing) fences: HashMap<JobId, u64>,
    pub(in crate::signing) usage: HashMap<(ChainName, String), RawAmount>,
}

/// The log before and after a batch.
#[derive(Debug, Clone, Copy)]
pub(in crate::signing) struct LogAppend<'a> {
    pub(in crate::signing) from: Head,
    pub(in crate::signing) to: Head,
    pub(in crate::signing) entries: &'a [AuditEntry],
    pub(in crate::signing) now: DateTime<Utc>,
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Writes all of it if the head is still where the batch was judged; returns whether it was.
pub(in crate::signing) async fn save_in(
    connection: &mut PgConnection,
    writes: &BatchWrites,
    log: &LogAppend<'_>,
) -> Result<bool, sqlx::Error> {
    let rows: Vec<PaymentRow<'_>> = writes
        .payments
        .iter()
        .map(|(payment, (guarded, first_paid_at))| PaymentRow::of(payment, guarded, *first_paid_at))
        .collect();
    let query = sqlx::query(include_str!("../../../queries/ledger_save.sql"));
    let query = bind_payments(writes.bind_records(bind_log(query, log)), &rows);
    let row = writes.bind_rest(query).fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>("moved")? == 1)
}

impl BatchWrites {
    fn bind_records<'q>(&'q self, query: Query<'q>) -> Query<'q> {
        let records = &self.records;
        query
            .bind(column(records, |new| new.key.as_str()))
            .bind(column(records, |new| new.payment.as_str()))
            .bind(column(records, |new| counted(new.generation)))
            .bind(column(records, |new| new.pays))
            .bind(column(records, |new| new.record.canonical.as_str()))
            .bind(column(records, |new| new.from.as_str()))
            .bind(column(records, |new| new.record.raw.as_slice()))
            .bind(column(records, |new| new.record.tx_hash.as_bytes().as_slice()))
            .bind(column(records, |new| signed(new.audit_sequence)))
    }

    fn bind_rest<'q>(&'q self, query: Query<'q>) -> Query<'q> {
        let slots = &self.slots;
        query
            .bind(column(slots, |slot| slot.chain.as_str()))
            .bind(column(slots, |slot| slot.wallet.as_str()))
            .bind(column(slots, |slot| signed(slot.nonce)))
            .bind(column(slots, |slot| slot.payment.as_str()))
            .bind(column(slots, |slot| counted(slot.generation)))
            .bind(self.fences.keys().map(JobId::as_uuid).collect::<Vec<Uuid>>())
            .bind(self.fences.values().map(|epoch| signed(*epoch)).collect::<Vec<_>>())
            .bind(self.usage.keys().map(|key| key.0.as_str()).collect::<Vec<_>>())
            .bind(self.usage.keys().map(|key| key.1.as_str()).collect::<Vec<_>>())
            .bind(self.usage.values().map(RawAmount::to_string).collect::<Vec<_>>())
    }
}

fn column<'r, R, T>(rows: &'r [R], value: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

fn bind_log<'q>(query: Query<'q>, log: &LogAppend<'q>) -> Query<'q> {
    let entries = log.entries;
    query
        .bind(signed(log.from.sequence))
        .bind(log.from.hash.0.to_vec())
        .bind(signed(log.to.sequence))
        .bind(log.to.hash.0.to_vec())
        .bind(log.now)
        .bind(column(entries, |entry| signed(entry.sequence)))
        .bind(column(entries, |entry| entry.caller.as_str()))
        .bind(column(entries, |entry| entry.action.as_str()))
        .bind(column(entries, |entry| entry.decision.as_str()))
        .bind(column(entries, |entry| entry.reason.as_str()))
        .bind(column(entries, |entry| entry.detail.as_str()))
        .bind(column(entries, |entry| entry.previous_hash.0.as_slice()))
        .bind(column(entries, |entry| entry.hash.0.as_slice()))
}

fn bind_payments<'q>(query: Query<'q>, rows: &'q [PaymentRow<'q>]) -> Query<'q> {
    query
        .bind(column(rows, |row| row.payment))
        .bind(column(rows, |row| row.guarded.parties.job.as_uuid()))
        .bind(column(rows, |row| row.guarded.parties.chain.as_str()))
        .bind(column(rows, |row| row.guarded.parties.wallet.to_string()))
        .bind(column(rows, |row| row.asset))
        .bind(column(rows, |row| row.destination.as_deref()))
        .bind(column(rows, |row| row.amount.as_deref()))
        .bind(column(rows, |row| row.call_hash))
        .bind(column(rows, |row| row.may_shrink))
        .bind(column(rows, |row| counted(row.guarded.generation)))
        .bind(column(rows, |row| row.nonce))
        .bind(column(rows, |row| row.transaction_id.as_deref()))
        .bind(column(rows, |row| row.expires_ms))
        .bind(column(rows, |row| row.guarded.bid.ceiling.to_string()))
        .bind(column(rows, |row| row.guarded.bid.tip.to_string()))
        .bind(column(rows, |row| signed(row.guarded.bid.gas_limit)))
        .bind(column(rows, |row| row.state))
        .bind(column(rows, |row| row.live))
        .bind(column(rows, |row| row.bumps))
        .bind(column(rows, |row| row.first_paid_at))
}

struct PaymentRow<'a> {
    payment: &'a str,
    guarded: &'a GuardedPayment,
    asset: Option<&'a str>,
    destination: Option<String>,
    amount: Option<String>,
    call_hash: Option<&'a [u8]>,
    may_shrink: bool,
    nonce: Option<i64>,
    transaction_id: Option<Vec<u8>>,
    expires_ms: Option<i64>,
    state: &'static str,
    live: bool,
    bumps: i32,
    first_paid_at: Option<DateTime<Utc>>,
}

impl<'a> PaymentRow<'a> {
    fn of(
        payment: &'a PaymentKey,
        guarded: &'a GuardedPayment,
        first_paid_at: Option<DateTime<Utc>>,
    ) -> Self {
        let terms = guarded.terms.as_ref();
        let (nonce, transaction_id, expires_ms) = match guarded.slot {
            Slot::Nonce(nonce) => (Some(signed(nonce)), None, None),
            Slot::Transaction { id, expires_ms } => (None, Some(id.as_bytes().to_vec()), Some(expires_ms)),
        };
        let (state, live, bumps) = match guarded.state {
            State::Paying { bumps } => ("paying", true, bumps),
            State::Closing { live, bumps } => ("closing", live, bumps),
        };
        Self {
            payment: payment.as_str(),
            guarded,
            asset: terms.and_then(|terms| terms.asset.as_ref()).map(|asset| asset.as_str()),
            destination: terms.map(|terms| terms.destination.to_string()),
            amount: terms.map(|terms| terms.amount.to_string()),
            call_hash: terms.and_then(|terms| terms.call_hash.as_ref()).map(|hash| hash.as_slice()),
            may_shrink: terms.is_some_and(|terms| terms.may_shrink),
            nonce,
            transaction_id,
            expires_ms,
            state,
            live,
            bumps: counted(bumps),
            first_paid_at,
        }
    }
}

fn counted(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
