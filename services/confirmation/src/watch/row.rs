//! Stored watches: rows to domain, with every invariant checked again.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use payment::{AssetRef, BlockRef, Transfer};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use telemetry::propagation::TraceContext;
use types::{Address, AddressFormat, JobId, RawAmount, TxHash, WithdrawalId};

use super::domain::{Ending, State, Watch, WatchedTx};
use super::error::{WatchError, corrupt};

/// A watch with what only storage knows of it.
#[derive(Debug, Clone)]
pub struct Stored {
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

/// Puts watches and their transactions together. Rows of transactions come in order of position.
pub fn stored(watches: &[PgRow], transactions: &[PgRow]) -> Result<Vec<Stored>, WatchError> {
    let mut by_job: HashMap<JobId, Vec<WatchedTx>> = HashMap::with_capacity(watches.len());
    for row in transactions {
        by_job.entry(JobId::from_uuid(row.try_get("job_id")?)).or_default().push(transaction(row)?);
    }
    watches.iter().map(|row| watch(row, &mut by_job)).collect()
}

fn transaction(row: &PgRow) -> Result<WatchedTx, WatchError> {
    Ok(WatchedTx {
        hash: TxHash(row.try_get("hash")?),
        is_cancellation: row.try_get("is_cancellation")?,
        nonce: row.try_get::<Option<i64>, _>("nonce")?.map(unsigned).transpose()?,
        expires_at: row.try_get("expires_at")?,
        reference_block: unsigned(row.try_get("reference_block")?)?,
        proven: row.try_get("proven")?,
        round: round(row.try_get("round")?)?,
    })
}

fn watch(row: &PgRow, transactions: &mut HashMap<JobId, Vec<WatchedTx>>) -> Result<Stored, WatchError> {
    let job = JobId::from_uuid(row.try_get("job_id")?);
    let trace: serde_json::Value = row.try_get("trace")?;
    let watch = Watch {
        job,
        withdrawal: row.try_get::<Option<uuid::Uuid>, _>("withdrawal_id")?.map(WithdrawalId::from_uuid),
        chain: row.try_get::<String, _>("chain")?.parse().map_err(|error| corrupt("watch", error))?,
        effect: effect(row)?,
        transactions: transactions.remove(&job).unwrap_or_default(),
        round: round(row.try_get("round")?)?,
        state: state(row)?,
        contradicted: row.try_get::<Option<DateTime<Utc>>, _>("contradicted_at")?.is_some(),
        since_block: unsigned(row.try_get("since_block")?)?,
    };
    Ok(Stored {
        watch,
        version: row.try_get("version")?,
        delayed_reason: row.try_get("delayed_reason")?,
        trace: serde_json::from_value(trace).map_err(|error| corrupt("trace context", error))?,
        waited: TimeDelta::milliseconds(row.try_get("waited_ms")?),
        created_at: row.try_get("created_at")?,
        finished_at: row.try_get("finished_at")?,
    })
}

pub fn effect(row: &PgRow) -> Result<Transfer, WatchError> {
    let format: AddressFormat =
        row.try_get::<&str, _>("kind")?.parse().map_err(|error| corrupt("chain kind", error))?;
    let address = |text: &str| Address::parse(format, text).map_err(|error| corrupt("address", error));
    let contract: Option<&str> = row.try_get("contract_address")?;
    let amount: RawAmount =
        row.try_get::<String, _>("amount_raw")?.parse().map_err(|error| corrupt("amount", error))?;
    Ok(Transfer {
        asset: contract.map(address).transpose()?.map_or(AssetRef::Native, AssetRef::Token),
        from: address(row.try_get("from_address")?)?,
        to: address(row.try_get("to_address")?)?,
        amount,
    })
}

fn state(row: &PgRow) -> Result<State, WatchError> {
    let tx: Option<TxHash> = row.try_get::<Option<[u8; 32]>, _>("tx_hash")?.map(TxHash);
    let number: Option<u64> = row.try_get::<Option<i64>, _>("block_number")?.map(unsigned).transpose()?;
    let hash: Option<TxHash> = row.try_get::<Option<[u8; 32]>, _>("block_hash")?.map(TxHash);
    let block = number.zip(hash).map(|(number, hash)| BlockRef { number, hash });
    let status: &str = row.try_get("status")?;
    let moved: Option<bool> = row.try_get("value_moved")?;
    Ok(match (status, tx, block, moved) {
        ("waiting", None, None, None) => State::Waiting,
        ("included", Some(tx), Some(block), None) => State::Included { tx, block },
        ("settled", Some(tx), Some(block), None) => State::Ended(Ending::Settled { tx, block }),
        ("reverted", Some(tx), Some(block), Some(value_moved)) => {
            State::Ended(Ending::Reverted { tx, block, value_moved })
        }
        ("void", foreign, Some(block), None) => State::Ended(Ending::Void { foreign, block }),
        ("cancelled", Some(tx), Some(block), None) => State::Ended(Ending::Cancelled { tx, block }),
        (other, ..) => return Err(corrupt("watch status", other)),
    })
}

fn unsigned(value: i64) -> Result<u64, WatchError> {
    u64::try_from(value).map_err(|error| corrupt("number", error))
}

fn round(value: i32) -> Result<u32, WatchError> {
    u32::try_from(value).map_err(|error| corrupt("round", error))
}
