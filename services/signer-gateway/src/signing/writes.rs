//! What a batch decided, as rows of one statement, which applies whole or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};
use types::{ChainName, JobId, RawAmount};
use uuid::Uuid;

use super::facts::Record;
use super::repo::signed;
use crate::audit::{Entry as LogEntry, Head};
use crate::guard::{Entry, PaymentKey, Slot, State};

const SAVE: &str = include_str!("../../queries/ledger_save.sql");

#[derive(Debug)]
pub(super) struct NewRecord {
    pub(super) key: String,
    pub(super) payment: PaymentKey,
    pub(super) generation: u32,
    pub(super) pays: bool,
    pub(super) from: String,
    pub(super) record: Arc<Record>,
    pub(super) audit_sequence: u64,
}

/// A nonce used for the first time.
#[derive(Debug)]
pub(super) struct NewSlot {
    pub(super) chain: ChainName,
    pub(super) wallet: String,
    pub(super) nonce: u64,
    pub(super) payment: PaymentKey,
    pub(super) generation: u32,
}

/// Everything a batch changes beside the log. Later changes of one payment or job replace earlier ones.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) records: Vec<NewRecord>,
    pub(super) payments: HashMap<PaymentKey, (Entry, Option<DateTime<Utc>>)>,
    pub(super) slots: Vec<NewSlot>,
    pub(super) fences: HashMap<JobId, u64>,
    pub(super) usage: HashMap<(ChainName, String), RawAmount>,
}

/// The log before and after a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move<'a> {
    pub(super) from: Head,
    pub(super) to: Head,
    pub(super) entries: &'a [LogEntry],
    pub(super) now: DateTime<Utc>,
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

impl Writes {
    /// Writes all of it if the head is still where the batch was judged; says whether it was.
    pub(super) async fn save_in(
        &self,
        connection: &mut PgConnection,
        log: &Move<'_>,
    ) -> Result<bool, sqlx::Error> {
        let rows: Vec<PaymentRow<'_>> = self
            .payments
            .iter()
            .map(|(payment, (entry, first_paid_at))| PaymentRow::of(payment, entry, *first_paid_at))
            .collect();
        let query = self.bind_records(bind_log(sqlx::query(SAVE), log));
        let query = bind_payments(query, &rows);
        let row = self.bind_rest(query).fetch_one(connection).await?;
        Ok(row.try_get::<i64, _>("moved")? == 1)
    }

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

fn bind_log<'q>(query: Query<'q>, log: &Move<'q>) -> Query<'q> {
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
        .bind(column(rows, |row| row.entry.binding.job.as_uuid()))
        .bind(column(rows, |row| row.entry.binding.chain.as_str()))
        .bind(column(rows, |row| row.entry.binding.wallet.to_string()))
        .bind(column(rows, |row| row.asset))
        .bind(column(rows, |row| row.destination.as_deref()))
        .bind(column(rows, |row| row.amount.as_deref()))
        .bind(column(rows, |row| row.call_hash))
        .bind(column(rows, |row| row.may_shrink))
        .bind(column(rows, |row| counted(row.entry.generation)))
        .bind(column(rows, |row| row.nonce))
        .bind(column(rows, |row| row.tron_id.as_deref()))
        .bind(column(rows, |row| row.expires_ms))
        .bind(column(rows, |row| row.entry.bid.ceiling.to_string()))
        .bind(column(rows, |row| row.entry.bid.tip.to_string()))
        .bind(column(rows, |row| signed(row.entry.bid.gas_limit)))
        .bind(column(rows, |row| row.state))
        .bind(column(rows, |row| row.live))
        .bind(column(rows, |row| row.bumps))
        .bind(column(rows, |row| row.first_paid_at))
}

struct PaymentRow<'a> {
    payment: &'a str,
    entry: &'a Entry,
    asset: Option<&'a str>,
    destination: Option<String>,
    amount: Option<String>,
    call_hash: Option<&'a [u8]>,
    may_shrink: bool,
    nonce: Option<i64>,
    tron_id: Option<Vec<u8>>,
    expires_ms: Option<i64>,
    state: &'static str,
    live: bool,
    bumps: i32,
    first_paid_at: Option<DateTime<Utc>>,
}

impl<'a> PaymentRow<'a> {
    fn of(payment: &'a PaymentKey, entry: &'a Entry, first_paid_at: Option<DateTime<Utc>>) -> Self {
        let terms = entry.terms.as_ref();
        let (nonce, tron_id, expires_ms) = match entry.slot {
            Slot::Nonce(nonce) => (Some(signed(nonce)), None, None),
            Slot::Transaction { id, expires_ms } => (None, Some(id.as_bytes().to_vec()), Some(expires_ms)),
        };
        let (state, live, bumps) = match entry.state {
            State::Paying { bumps } => ("paying", true, bumps),
            State::Closing { live, bumps } => ("closing", live, bumps),
        };
        Self {
            payment: payment.as_str(),
            entry,
            asset: terms.and_then(|terms| terms.asset.as_ref()).map(|asset| asset.as_str()),
            destination: terms.map(|terms| terms.destination.to_string()),
            amount: terms.map(|terms| terms.amount.to_string()),
            call_hash: terms.and_then(|terms| terms.call_hash.as_ref()).map(|hash| hash.as_slice()),
            may_shrink: terms.is_some_and(|terms| terms.may_shrink),
            nonce,
            tron_id,
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
