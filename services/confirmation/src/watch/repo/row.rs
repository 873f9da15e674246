//! Rows of watches and their transactions to domain values, with every invariant checked again.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use payment::{AssetRef, Closing, Effect, Transfer};
use serde::Serialize as _;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use telemetry::propagation::TraceContext;
use types::{Address, AddressFormat, JobId, RawAmount, WithdrawalId};

use crate::columns;
use crate::error::Error;
use crate::watch::domain::{Ending, State, Status, Watch, WatchedTx};

/// A watch with what only the database knows of it.
#[derive(Debug, Clone)]
pub struct StoredWatch {
    pub watch: Watch,
    pub version: i64,
    pub delayed_reason: String,
    /// The trace of the request that began it.
    pub trace: TraceContext,
    /// How long the newest transaction has been waiting, by the database's clock.
    pub waited: TimeDelta,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Joins watches and their transactions. The rows of transactions come in order of position.
pub(super) fn stored(watches: &[PgRow], transactions: &[PgRow]) -> Result<Vec<StoredWatch>, Error> {
    let mut by_job: HashMap<JobId, Vec<&PgRow>> = HashMap::with_capacity(watches.len());
    for row in transactions {
        by_job.entry(columns::job(row)?).or_default().push(row);
    }
    watches.iter().map(|row| watch(row, &mut by_job)).collect()
}

fn transaction(row: &PgRow, of_watch: &Effect) -> Result<WatchedTx, Error> {
    let nonce = columns::optional_number(row, "nonce")?;
    let expires_at: Option<DateTime<Utc>> = row.try_get("expires_at")?;
    let expiration_ms = expires_at.map(|at| columns::unsigned(at.timestamp_millis())).transpose()?;
    Ok(WatchedTx {
        hash: columns::hash(row, "hash")?,
        effect: transaction_effect(row, of_watch)?,
        closing: closing(of_watch.sender(), nonce, expiration_ms),
        reference_block: columns::number(row, "reference_block")?,
        proven: row.try_get("proven")?,
        round: round(row)?,
    })
}

fn closing(sender: Address, nonce: Option<u64>, expiration_ms: Option<u64>) -> Option<Closing> {
    match nonce {
        Some(nonce) => Some(Closing::Nonce { sender, nonce }),
        None => expiration_ms.map(|expiration_ms| Closing::Window { expiration_ms }),
    }
}

fn watch(row: &PgRow, transactions: &mut HashMap<JobId, Vec<&PgRow>>) -> Result<StoredWatch, Error> {
    let job = columns::job(row)?;
    let effect = watch_effect(row)?;
    let transactions = transactions.remove(&job).unwrap_or_default();
    let trace: serde_json::Value = row.try_get("trace")?;
    let watch = Watch {
        job,
        withdrawal: row.try_get::<Option<uuid::Uuid>, _>("withdrawal_id")?.map(WithdrawalId::from_uuid),
        chain: row.try_get::<String, _>("chain")?.parse().map_err(|error| Error::corrupt("watch", error))?,
        effect,
        transactions: transactions
            .into_iter()
            .map(|row| transaction(row, &effect))
            .collect::<Result<_, _>>()?,
        round: round(row)?,
        state: state(row)?,
        contradicted: row.try_get::<Option<DateTime<Utc>>, _>("contradicted_at")?.is_some(),
        since_block: columns::number(row, "since_block")?,
    };
    Ok(StoredWatch {
        watch,
        version: row.try_get("version")?,
        delayed_reason: row.try_get("delayed_reason")?,
        trace: serde_json::from_value(trace).map_err(|error| Error::corrupt("trace context", error))?,
        waited: TimeDelta::milliseconds(row.try_get("waited_ms")?),
        created_at: row.try_get("created_at")?,
        finished_at: row.try_get("finished_at")?,
    })
}

/// What a watch is for. Its columns describe a transfer; any other effect is stored beside them.
pub(super) fn watch_effect(row: &PgRow) -> Result<Effect, Error> {
    if let Some(effect) = row.try_get("watch_effect")? {
        return parse_effect(effect);
    }
    let format: AddressFormat =
        row.try_get::<&str, _>("kind")?.parse().map_err(|error| Error::corrupt("chain kind", error))?;
    let address = |text: &str| Address::parse(format, text).map_err(|error| Error::corrupt("address", error));
    let contract: Option<&str> = row.try_get("contract_address")?;
    let amount: RawAmount =
        row.try_get::<String, _>("amount_raw")?.parse().map_err(|error| Error::corrupt("amount", error))?;
    Ok(Effect::Moves(Transfer {
        asset: AssetRef::of_contract(contract.map(address).transpose()?),
        from: address(row.try_get("from_address")?)?,
        to: address(row.try_get("to_address")?)?,
        amount,
    }))
}

/// What a transaction must show: its own effect, or that of its watch.
pub(super) fn transaction_effect(row: &PgRow, of_watch: &Effect) -> Result<Effect, Error> {
    if row.try_get("is_cancellation")? {
        return Ok(Effect::Closes { sender: of_watch.sender() });
    }
    row.try_get::<Option<_>, _>("effect")?.map_or(Ok(*of_watch), parse_effect)
}

fn parse_effect(effect: serde_json::Value) -> Result<Effect, Error> {
    serde_json::from_value(effect).map_err(|error| Error::corrupt("effect", error))
}

pub(super) fn effect_json(effect: &Effect) -> Result<serde_json::Value, Error> {
    effect.serialize(serde_json::value::Serializer).map_err(|error| Error::corrupt("effect", error))
}

fn state(row: &PgRow) -> Result<State, Error> {
    let status: &str = row.try_get("status")?;
    let status: Status = status.parse().map_err(|_| Error::corrupt("watch status", status))?;
    let tx = columns::optional_hash(row, "tx_hash")?;
    let block = columns::optional_block(row, "block")?;
    let value_moved: Option<bool> = row.try_get("value_moved")?;
    Ok(match (status, tx, block, value_moved) {
        (Status::Waiting, None, None, None) => State::Waiting,
        (Status::Included, Some(tx), Some(block), None) => State::Included { tx, block },
        (Status::Settled, Some(tx), Some(block), None) => State::Ended(Ending::Settled { tx, block }),
        (Status::Reverted, Some(tx), Some(block), Some(value_moved)) => {
            State::Ended(Ending::Reverted { tx, block, value_moved })
        }
        (Status::Void, foreign, Some(block), None) => State::Ended(Ending::Void { foreign, block }),
        (Status::Cancelled, Some(tx), Some(block), None) => State::Ended(Ending::Cancelled { tx, block }),
        (status, ..) => return Err(Error::corrupt("watch status", status)),
    })
}

fn round(row: &PgRow) -> Result<u32, Error> {
    u32::try_from(row.try_get::<i32, _>("round")?).map_err(|error| Error::corrupt("round", error))
}
