//! Writes what a batch decided by one statement, which applies as a whole or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};
use types::{AssetSymbol, ChainName, JobId, RawAmount};
use uuid::Uuid;

use super::signed;
use crate::audit::{AuditEntry, Head};
use crate::guard::{GuardedPayment, PaymentKey, Slot, State, Terms};
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

/// What the guard remembers of a payment now, and when it was first paid.
type ChangedPayment<'a> = (&'a PaymentKey, &'a (GuardedPayment, Option<DateTime<Utc>>));
type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Writes all of it if the head is still where the batch was judged; returns whether it was.
pub(in crate::signing) async fn save_in(
    connection: &mut PgConnection,
    writes: &BatchWrites,
    log: &LogAppend<'_>,
) -> Result<bool, sqlx::Error> {
    let payments: Vec<ChangedPayment<'_>> = writes.payments.iter().collect();
    let query = sqlx::query(include_str!("../../../queries/ledger_save.sql"));
    let query = bind_payments(writes.bind_records(bind_log(query, log)), &payments);
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
            .bind(column(records, |new| new.record.tx_hash.as_bytes()))
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

fn bind_payments<'q>(query: Query<'q>, changed: &[ChangedPayment<'q>]) -> Query<'q> {
    let terms: Vec<Option<&Terms>> = column(changed, |(_, (guarded, _))| guarded.terms.as_ref());
    let guarded: Vec<&GuardedPayment> = column(changed, |(_, (guarded, _))| guarded);
    let slots: Vec<_> = column(&guarded, |guarded| match guarded.slot {
        Slot::Nonce(nonce) => (Some(signed(nonce)), None, None),
        Slot::Transaction { id, expires_ms } => (None, Some(id.as_bytes().to_vec()), Some(expires_ms)),
    });
    let states: Vec<_> = column(&guarded, |guarded| match guarded.state {
        State::Paying { bumps } => ("paying", true, bumps),
        State::Closing { live, bumps } => ("closing", live, bumps),
    });
    query
        .bind(column(changed, |(payment, _)| payment.as_str()))
        .bind(column(&guarded, |guarded| guarded.parties.job.as_uuid()))
        .bind(column(&guarded, |guarded| guarded.parties.chain.as_str()))
        .bind(column(&guarded, |guarded| guarded.parties.wallet.to_string()))
        .bind(column(&terms, |terms| terms.and_then(|terms| terms.asset.as_ref()).map(AssetSymbol::as_str)))
        .bind(column(&terms, |terms| terms.map(|terms| terms.destination.to_string())))
        .bind(column(&terms, |terms| terms.map(|terms| terms.amount.to_string())))
        .bind(column(&terms, |terms| {
            terms.and_then(|terms| terms.call_hash.as_ref()).map(<[u8; 32]>::as_slice)
        }))
        .bind(column(&terms, |terms| terms.is_some_and(|terms| terms.may_shrink)))
        .bind(column(&guarded, |guarded| counted(guarded.generation)))
        .bind(column(&slots, |slot| slot.0))
        .bind(column(&slots, |slot| slot.1.clone()))
        .bind(column(&slots, |slot| slot.2))
        .bind(column(&guarded, |guarded| guarded.bid.ceiling.to_string()))
        .bind(column(&guarded, |guarded| guarded.bid.tip.to_string()))
        .bind(column(&guarded, |guarded| signed(guarded.bid.gas_limit)))
        .bind(column(&states, |state| state.0))
        .bind(column(&states, |state| state.1))
        .bind(column(&states, |state| counted(state.2)))
        .bind(column(changed, |(_, (_, first_paid_at))| *first_paid_at))
}

fn counted(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
