//! Rows of watches and their transactions to domain values, with every invariant checked again.

use std::collections::HashMap;

use chain::{AssetRef, Transfer};
use chrono::{DateTime, TimeDelta, Utc};
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
    let mut by_job: HashMap<JobId, Vec<WatchedTx>> = HashMap::with_capacity(watches.len());
    for row in transactions {
        by_job.entry(columns::job(row)?).or_default().push(transaction(row)?);
    }
    watches.iter().map(|row| watch(row, &mut by_job)).collect()
}

fn transaction(row: &PgRow) -> Result<WatchedTx, Error> {
    Ok(WatchedTx {
        hash: columns::hash(row, "hash")?,
        is_cancellation: row.try_get("is_cancellation")?,
        nonce: columns::optional_number(row, "nonce")?,
        expires_at: row.try_get("expires_at")?,
        reference_block: columns::number(row, "reference_block")?,
        proven: row.try_get("proven")?,
        round: round(row)?,
    })
}

fn watch(row: &PgRow, transactions: &mut HashMap<JobId, Vec<WatchedTx>>) -> Result<StoredWatch, Error> {
    let job = columns::job(row)?;
    let trace: serde_json::Value = row.try_get("trace")?;
    let watch = Watch {
        job,
        withdrawal: row.try_get::<Option<uuid::Uuid>, _>("withdrawal_id")?.map(WithdrawalId::from_uuid),
        chain: row.try_get::<String, _>("chain")?.parse().map_err(|error| Error::corrupt("watch", error))?,
        effect: effect(row)?,
        transactions: transactions.remove(&job).unwrap_or_default(),
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

pub(super) fn effect(row: &PgRow) -> Result<Transfer, Error> {
    let format: AddressFormat =
        row.try_get::<&str, _>("kind")?.parse().map_err(|error| Error::corrupt("chain kind", error))?;
    let address = |text: &str| Address::parse(format, text).map_err(|error| Error::corrupt("address", error));
    let contract: Option<&str> = row.try_get("contract_address")?;
    let amount: RawAmount =
        row.try_get::<String, _>("amount_raw")?.parse().map_err(|error| Error::corrupt("amount", error))?;
    Ok(Transfer {
        asset: contract.map(address).transpose()?.map_or(AssetRef::Native, AssetRef::Token),
        from: address(row.try_get("from_address")?)?,
        to: address(row.try_get("to_address")?)?,
        amount,
    })
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
