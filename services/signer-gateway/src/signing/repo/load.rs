//! Loads the facts of a batch: one statement, one snapshot. Never locks and never writes.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use types::{Address, RawAmount, TxHash};
use uuid::Uuid;

use super::signed;
use crate::audit::{Hash, Head};
use crate::guard::{Bid, GuardedPayment, Parties, PaymentKey, Slot, SlotOwner, State, Terms};
use crate::signing::SigningError;
use crate::signing::facts::{CounterKey, Facts, KnownPayment, PreparedRequest, Registered, SigningRecord};
use crate::signing::judge::FEE_COUNTER;

/// Loads what the database holds about `batch`, and the head of the log at which that was true.
pub(in crate::signing) async fn load_in(
    connection: &mut PgConnection,
    batch: &[&PreparedRequest],
) -> Result<(Facts, Head), SigningError> {
    let wanted = wanted_counters(batch);
    let rows = sqlx::query(include_str!("../../../queries/ledger_load.sql"))
        .bind(batch.iter().map(|item| item.request.idempotency_key.as_str()).collect::<Vec<_>>())
        .bind(batch.iter().map(|item| item.payment.as_str()).collect::<Vec<_>>())
        .bind(batch.iter().map(|item| item.request.job.as_uuid()).collect::<Vec<Uuid>>())
        .bind(batch.iter().map(|item| item.request.chain.as_str()).collect::<Vec<_>>())
        .bind(batch.iter().map(|item| item.texts.from.as_str()).collect::<Vec<_>>())
        .bind(batch.iter().map(|item| item.nonce().map(|key| signed(key.2))).collect::<Vec<_>>())
        .bind(batch.iter().map(|item| item.texts.to.as_deref()).collect::<Vec<_>>())
        .bind(wanted.keys().map(|key| key.0.as_str()).collect::<Vec<_>>())
        .bind(wanted.keys().map(|key| key.1.as_str()).collect::<Vec<_>>())
        .bind(wanted.values().copied().collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(SigningError::Ledger)?;
    let first = rows.first().ok_or(SigningError::Corrupt("audit_head"))?;
    let head = Head {
        sequence: unsigned(get(first, "head_sequence")?, "head_sequence")?,
        hash: Hash(fixed(get(first, "head_hash")?, "head_hash")?),
    };
    let mut facts = Facts::at(get(first, "head_at")?);
    facts.frozen.extend(get::<Vec<String>>(first, "frozen")?);
    take_usage(&mut facts, first)?;
    for row in &rows {
        let place: i64 = get(row, "place")?;
        let item = usize::try_from(place - 1)
            .ok()
            .and_then(|index| batch.get(index))
            .ok_or(SigningError::Corrupt("place"))?;
        take_row(&mut facts, item, row)?;
    }
    Ok((facts, head))
}

/// The counters a batch may charge, with the length of their windows in seconds.
fn wanted_counters(batch: &[&PreparedRequest]) -> HashMap<CounterKey, i64> {
    let mut wanted = HashMap::new();
    for item in batch {
        let chain = &item.request.chain;
        if let Some(charge) = &item.assessment.charge {
            wanted.insert((chain.clone(), charge.counter.clone()), signed(charge.limit.window.as_secs()));
        }
        if let Some(limit) = item.assessment.fee_limit {
            wanted.insert((chain.clone(), FEE_COUNTER.to_owned()), signed(limit.window.as_secs()));
        }
    }
    wanted
}

fn take_usage(facts: &mut Facts, row: &PgRow) -> Result<(), SigningError> {
    let chains: Vec<String> = get(row, "used_chains")?;
    let counters: Vec<String> = get(row, "used_counters")?;
    let amounts: Vec<String> = get(row, "used_amounts")?;
    for ((chain, counter), amount) in chains.iter().zip(counters).zip(amounts) {
        // A sum beyond 256 bits is over every limit; reading it as the largest amount refuses, as it should.
        let used = amount.parse().unwrap_or(RawAmount::MAX);
        facts.usage.insert((parsed(chain, "chain")?, counter), used);
    }
    Ok(())
}

fn take_row(facts: &mut Facts, item: &PreparedRequest, row: &PgRow) -> Result<(), SigningError> {
    if let Some(record) = record_of(row)? {
        facts.records.insert(item.request.idempotency_key.clone(), Arc::new(record));
    }
    if let Some(known) = known_payment_of(row)? {
        facts.payments.insert(item.payment.clone(), known);
    }
    if let Some(payment) = get::<Option<String>>(row, "slot_payment")? {
        let generation = count(get(row, "slot_generation")?, "slot_generation")?;
        let owner = SlotOwner { payment: PaymentKey::stored(payment), generation };
        if let Some(nonce) = item.nonce() {
            facts.owners.insert(nonce, owner);
        }
    }
    if let Some(epoch) = get::<Option<i64>>(row, "fence_epoch")? {
        facts.fences.insert(item.request.job, unsigned(epoch, "fence_epoch")?);
    }
    if let (Some(registered), Some(transfer)) = (registered_of(row)?, item.request.transfer()) {
        facts.registered.insert((item.request.chain.clone(), transfer.to), registered);
    }
    Ok(())
}

fn registered_of(row: &PgRow) -> Result<Option<Registered>, SigningError> {
    if !get::<bool>(row, "destination_registered")? {
        return Ok(None);
    }
    Ok(Some(match get::<Option<Uuid>>(row, "destination_group")? {
        None => Registered::ColdStorage,
        Some(_) => Registered::Group,
    }))
}

fn record_of(row: &PgRow) -> Result<Option<SigningRecord>, SigningError> {
    let Some(request) = get::<Option<String>>(row, "record_request")? else {
        return Ok(None);
    };
    Ok(Some(SigningRecord {
        canonical: request,
        from: parsed(&get::<String>(row, "record_from")?, "from_address")?,
        raw: get(row, "record_raw")?,
        tx_hash: TxHash::from(fixed(get(row, "record_tx_hash")?, "tx_hash")?),
    }))
}

fn known_payment_of(row: &PgRow) -> Result<Option<KnownPayment>, SigningError> {
    if get::<Option<String>>(row, "payment")?.is_none() {
        return Ok(None);
    }
    let guarded = GuardedPayment {
        parties: Parties {
            chain: parsed(&get::<String>(row, "chain")?, "chain")?,
            wallet: parsed(&get::<String>(row, "wallet")?, "wallet")?,
            job: get::<Uuid>(row, "job_id")?.into(),
        },
        terms: terms_of(row)?,
        generation: count(get(row, "generation")?, "generation")?,
        slot: slot_of(row)?,
        bid: Bid {
            ceiling: parsed(&get::<String>(row, "ceiling")?, "ceiling")?,
            tip: parsed(&get::<String>(row, "tip")?, "tip")?,
            gas_limit: unsigned(get(row, "gas_limit")?, "gas_limit")?,
        },
        state: state_of(row)?,
    };
    let hashes: Vec<Vec<u8>> = get(row, "signed")?;
    let signed = hashes.into_iter().map(|hash| Ok(TxHash::from(fixed(hash, "tx_hash")?)));
    let signed = signed.collect::<Result<Vec<_>, SigningError>>()?;
    Ok(Some(KnownPayment { guarded, first_paid_at: get(row, "first_paid_at")?, signed }))
}

fn terms_of(row: &PgRow) -> Result<Option<Terms>, SigningError> {
    let Some(destination) = get::<Option<String>>(row, "destination")? else {
        return Ok(None);
    };
    let asset: Option<String> = get(row, "asset")?;
    let call_hash: Option<Vec<u8>> = get(row, "call_hash")?;
    Ok(Some(Terms {
        asset: asset.map(|text| parsed(&text, "asset")).transpose()?,
        destination: parsed::<Address>(&destination, "destination")?,
        amount: parsed(&get::<String>(row, "amount")?, "amount")?,
        call_hash: call_hash.map(|hash| fixed(hash, "call_hash")).transpose()?,
        may_shrink: get(row, "may_shrink")?,
    }))
}

fn slot_of(row: &PgRow) -> Result<Slot, SigningError> {
    match (get::<Option<i64>>(row, "nonce")?, get::<Option<Vec<u8>>>(row, "tron_id")?) {
        (Some(nonce), None) => Ok(Slot::Nonce(unsigned(nonce, "nonce")?)),
        (None, Some(id)) => {
            let id = TxHash::from(fixed(id, "tron_id")?);
            Ok(Slot::Transaction { id, expires_ms: get(row, "expires_ms")? })
        }
        (Some(_), Some(_)) | (None, None) => Err(SigningError::Corrupt("slot")),
    }
}

fn state_of(row: &PgRow) -> Result<State, SigningError> {
    let bumps = count(get(row, "bumps")?, "bumps")?;
    match get::<String>(row, "state")?.as_str() {
        "paying" => Ok(State::Paying { bumps }),
        "closing" => Ok(State::Closing { live: get(row, "live")?, bumps }),
        _ => Err(SigningError::Corrupt("state")),
    }
}

fn get<'r, T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>>(
    row: &'r PgRow,
    column: &str,
) -> Result<T, SigningError> {
    row.try_get(column).map_err(SigningError::Ledger)
}

fn parsed<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, SigningError> {
    text.parse().map_err(|_| SigningError::Corrupt(what))
}

fn fixed(bytes: Vec<u8>, what: &'static str) -> Result<[u8; 32], SigningError> {
    bytes.try_into().map_err(|_| SigningError::Corrupt(what))
}

fn count(number: i32, what: &'static str) -> Result<u32, SigningError> {
    u32::try_from(number).map_err(|_| SigningError::Corrupt(what))
}

fn unsigned(number: i64, what: &'static str) -> Result<u64, SigningError> {
    u64::try_from(number).map_err(|_| SigningError::Corrupt(what))
}
