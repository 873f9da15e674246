//! What a batch decided, as rows. Each table gets one statement however many requests the batch has.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use types::{ChainName, JobId, RawAmount, TxHash};
use uuid::Uuid;

use super::repo::signed;
use crate::guard::{Entry, PaymentKey, Slot, State};

const RECORDS: &str = include_str!("../../queries/ledger_records.sql");
const PAYMENTS: &str = include_str!("../../queries/ledger_payments.sql");
const SLOTS: &str = "INSERT INTO slots (chain, wallet, nonce, payment, generation) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[])";
const FENCES: &str = "INSERT INTO fences (job_id, epoch) SELECT * FROM unnest($1::uuid[], $2::bigint[]) \
     ON CONFLICT (job_id) DO UPDATE SET epoch = greatest(fences.epoch, excluded.epoch)";
const USAGE: &str = "INSERT INTO limit_usage (chain, counter, minute, amount) \
     SELECT item.chain, item.counter, date_trunc('minute', $4::timestamptz), item.amount::numeric \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS item (chain, counter, amount) \
     ON CONFLICT (chain, counter, minute) DO UPDATE SET amount = limit_usage.amount + excluded.amount";

/// A signature to be stored.
#[derive(Debug)]
pub(super) struct NewRecord {
    pub(super) key: String,
    pub(super) payment: PaymentKey,
    pub(super) generation: u32,
    pub(super) pays: bool,
    pub(super) request: String,
    pub(super) from: String,
    pub(super) raw: Vec<u8>,
    pub(super) tx_hash: TxHash,
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

impl Writes {
    /// Writes all of it.
    pub(super) async fn save_in(
        self,
        connection: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> Result<(), sqlx::Error> {
        self.save_records(&mut *connection, now).await?;
        self.save_payments(&mut *connection, now).await?;
        self.save_slots(&mut *connection).await?;
        self.save_fences(&mut *connection).await?;
        self.save_usage(connection, now).await
    }

    async fn save_records(
        &self,
        connection: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> Result<(), sqlx::Error> {
        let records = &self.records;
        if records.is_empty() {
            return Ok(());
        }
        sqlx::query(RECORDS)
            .bind(records.iter().map(|record| record.key.as_str()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.payment.as_str()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| counted(record.generation)).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.pays).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.request.as_str()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.from.as_str()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.raw.as_slice()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.tx_hash.as_bytes().as_slice()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| signed(record.audit_sequence)).collect::<Vec<_>>())
            .bind(now)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn save_payments(
        &self,
        connection: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> Result<(), sqlx::Error> {
        if self.payments.is_empty() {
            return Ok(());
        }
        let rows: Vec<PaymentRow<'_>> = self
            .payments
            .iter()
            .map(|(payment, (entry, first_paid_at))| PaymentRow::of(payment, entry, *first_paid_at))
            .collect();
        let done = sqlx::query(PAYMENTS)
            .bind(rows.iter().map(|row| row.payment).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.entry.binding.job.as_uuid()).collect::<Vec<Uuid>>())
            .bind(rows.iter().map(|row| row.entry.binding.chain.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.entry.binding.wallet.to_string()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.asset).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.destination.as_deref()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.amount.as_deref()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.call_hash).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.may_shrink).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| counted(row.entry.generation)).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.nonce).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.tron_id.as_deref()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.expires_ms).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.entry.bid.ceiling.to_string()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.entry.bid.tip.to_string()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| signed(row.entry.bid.gas_limit)).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.state).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.live).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.bumps).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.first_paid_at).collect::<Vec<_>>())
            .bind(now)
            .execute(connection)
            .await?;
        if done.rows_affected() != u64::try_from(rows.len()).unwrap_or(u64::MAX) {
            // The statement leaves rows alone whose chain, wallet or job would change; nothing may be committed then.
            return Err(sqlx::Error::Protocol(
                "a payment is bound to another chain, wallet or job".to_owned(),
            ));
        }
        Ok(())
    }

    async fn save_slots(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let slots = &self.slots;
        if slots.is_empty() {
            return Ok(());
        }
        sqlx::query(SLOTS)
            .bind(slots.iter().map(|slot| slot.chain.as_str()).collect::<Vec<_>>())
            .bind(slots.iter().map(|slot| slot.wallet.as_str()).collect::<Vec<_>>())
            .bind(slots.iter().map(|slot| signed(slot.nonce)).collect::<Vec<_>>())
            .bind(slots.iter().map(|slot| slot.payment.as_str()).collect::<Vec<_>>())
            .bind(slots.iter().map(|slot| counted(slot.generation)).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn save_fences(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.fences.is_empty() {
            return Ok(());
        }
        sqlx::query(FENCES)
            .bind(self.fences.keys().map(JobId::as_uuid).collect::<Vec<Uuid>>())
            .bind(self.fences.values().map(|epoch| signed(*epoch)).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn save_usage(&self, connection: &mut PgConnection, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
        if self.usage.is_empty() {
            return Ok(());
        }
        sqlx::query(USAGE)
            .bind(self.usage.keys().map(|key| key.0.as_str()).collect::<Vec<_>>())
            .bind(self.usage.keys().map(|key| key.1.as_str()).collect::<Vec<_>>())
            .bind(self.usage.values().map(RawAmount::to_string).collect::<Vec<_>>())
            .bind(now)
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// One row of the guard's table.
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
