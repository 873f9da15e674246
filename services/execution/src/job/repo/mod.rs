//! SQL of jobs and attempts.

pub(crate) mod attempts;
pub(crate) mod changes;
pub(crate) mod inserts;
pub(crate) mod statistics;

use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use payment::VoidProof;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, Row as _};
use types::{AssetId, ChainName, Decimals, JobId, Priority, TxHash, WalletGroupId, WalletId, WithdrawalId};
use uuid::Uuid;

use super::{AfterClosing, Closing, Exit, Exposure, Job, JobError, JobFilter, Newest, Payer, State, Status};
use crate::queue::JobQueue;
use crate::row::{amount, bad_column, count, opt_number, text};
use crate::wallet::repo::address;

const SELECT: &str = include_str!("../../../queries/select_job.sql");

/// One statement for each way of selecting, built once so that the server finds its plan again.
macro_rules! select {
    ($name:ident, $tail:literal) => {
        static $name: LazyLock<String> = LazyLock::new(|| format!("{SELECT} {}", $tail));
    };
}

select!(BY_IDS, "WHERE j.id = ANY ($1) ORDER BY j.id");
select!(BY_WITHDRAWAL, "WHERE j.withdrawal_id = $1");
select!(BY_WITHDRAWALS, "WHERE j.withdrawal_id = ANY ($1)");
select!(LOCKED, "WHERE j.id = $1 FOR UPDATE OF j");
// `OFFSET 0` keeps the planner from walking back through the history of all jobs for the few that have not ended.
select!(
    OPEN_PAGE,
    "WHERE j.id IN (
         SELECT open.id FROM (
             SELECT o.id FROM jobs AS o
             WHERE o.finished_at IS NULL AND o.status = ANY ($2)
               AND ($1::text IS NULL OR o.queue = $1)
               AND ($3::text IS NULL OR o.chain = $3)
               AND ($4::uuid IS NULL OR o.wallet_id = $4)
               AND ($5::uuid IS NULL OR o.id < $5)
             OFFSET 0
         ) AS open ORDER BY open.id DESC LIMIT $6
     )
     ORDER BY j.id DESC"
);
select!(
    PAGE,
    "WHERE ($1::text IS NULL OR j.queue = $1)
       AND (cardinality($2::text[]) = 0 OR j.status = ANY ($2))
       AND ($3::text IS NULL OR j.chain = $3)
       AND ($4::uuid IS NULL OR j.wallet_id = $4)
       AND ($5::uuid IS NULL OR j.id < $5)
     ORDER BY j.id DESC LIMIT $6"
);

pub(crate) async fn by_ids(db: impl PgExecutor<'_>, ids: &[Uuid]) -> Result<Vec<Job>, JobError> {
    let rows = sqlx::query(AssertSqlSafe(BY_IDS.as_str())).bind(ids).fetch_all(db).await?;
    rows.iter().map(Job::try_from).collect()
}

pub(crate) async fn by_withdrawal(
    db: impl PgExecutor<'_>,
    id: WithdrawalId,
) -> Result<Option<Job>, JobError> {
    let row =
        sqlx::query(AssertSqlSafe(BY_WITHDRAWAL.as_str())).bind(id.as_uuid()).fetch_optional(db).await?;
    row.as_ref().map(Job::try_from).transpose()
}

pub(crate) async fn by_withdrawals(db: impl PgExecutor<'_>, ids: &[Uuid]) -> Result<Vec<Job>, JobError> {
    let rows = sqlx::query(AssertSqlSafe(BY_WITHDRAWALS.as_str())).bind(ids).fetch_all(db).await?;
    rows.iter().map(Job::try_from).collect()
}

/// Locks these jobs in the order of ids, as everybody does, so that no two transactions wait for each other.
pub(crate) async fn lock_all_in(tx: &mut PgConnection, ids: &[Uuid]) -> Result<(), JobError> {
    sqlx::query("SELECT FROM jobs WHERE id = ANY ($1) ORDER BY id FOR UPDATE").bind(ids).execute(tx).await?;
    Ok(())
}

/// The job, locked until the transaction ends. Every change of a job that is not made in bulk starts here.
pub(crate) async fn lock_in(tx: &mut PgConnection, id: JobId) -> Result<Job, JobError> {
    // The row is locked first and read afterwards, so that what is read from other tables is as new as the row.
    let known = sqlx::query("SELECT FROM jobs WHERE id = $1 FOR UPDATE")
        .bind(id.as_uuid())
        .fetch_optional(&mut *tx)
        .await?;
    let missing = || JobError::NoJob(id.to_string());
    known.ok_or_else(missing)?;
    let row = sqlx::query(AssertSqlSafe(LOCKED.as_str())).bind(id.as_uuid()).fetch_optional(tx).await?;
    Job::try_from(&row.ok_or_else(missing)?)
}

pub(crate) async fn page(
    db: impl PgExecutor<'_>,
    filter: &JobFilter,
    limit: u32,
) -> Result<Vec<Job>, JobError> {
    // Jobs that have not ended are few, and have an index of their own.
    let open = !filter.statuses.is_empty() && !filter.statuses.iter().any(|status| status.is_final());
    let sql = if open { OPEN_PAGE.as_str() } else { PAGE.as_str() };
    let statuses: Vec<&'static str> = filter.statuses.iter().map(Into::into).collect();
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(filter.queue.map(JobQueue::name))
        .bind(statuses)
        .bind(filter.chain.as_ref().map(ChainName::as_str))
        .bind(filter.wallet.map(|wallet| wallet.as_uuid()))
        .bind(filter.before.map(|before| before.as_uuid()))
        .bind(i64::from(limit))
        .fetch_all(db)
        .await?;
    rows.iter().map(Job::try_from).collect()
}

/// Makes jobs of one chain due that are blocked. Bounded: the rest follows by their own schedule.
pub(crate) async fn wake_blocked_in(tx: &mut PgConnection, chain: &ChainName) -> Result<u64, db::QueueError> {
    let rows = sqlx::query(
        "SELECT id, queue, filler, rank FROM jobs
         WHERE chain = $1 AND status = 'pending' AND finished_at IS NULL AND blocked_reason IS NOT NULL
         ORDER BY id LIMIT 1000",
    )
    .bind(chain.as_str())
    .fetch_all(&mut *tx)
    .await?;
    for queue in JobQueue::all() {
        let mut jobs = Vec::new();
        for row in &rows {
            // As in `Job::worked_in`.
            let worked_in = match row.try_get("filler")? {
                true => JobQueue::WITHDRAWAL.name(),
                false => row.try_get::<&str, _>("queue")?,
            };
            if worked_in == queue.name() {
                let priority =
                    Priority::from_rank(row.try_get("rank")?).map_err(|error| bad_column("rank", error))?;
                let job_id = row.try_get("id")?;
                jobs.push(db::queue::NewJob { job_id, priority, due: db::Due::Now });
            }
        }
        queue.on(chain).push_many_in(tx, &jobs).await?;
    }
    Ok(rows.len() as u64)
}

/// A void proof as stored: the signature in hex.
#[derive(Serialize, Deserialize)]
struct StoredProof {
    tx_hashes: Vec<TxHash>,
    signature: String,
    attested_at: DateTime<Utc>,
}

pub(crate) fn proof_document(proof: Option<&VoidProof>) -> Result<Option<serde_json::Value>, JobError> {
    let stored = proof.map(|proof| StoredProof {
        tx_hashes: proof.tx_hashes.clone(),
        signature: hex::encode(&proof.signature),
        attested_at: proof.attested_at,
    });
    Ok(stored.map(serde_json::to_value).transpose()?)
}

fn read_proof(row: &PgRow) -> Result<Option<VoidProof>, JobError> {
    let value: Option<serde_json::Value> = row.try_get("void_proof")?;
    let Some(value) = value else { return Ok(None) };
    let stored: StoredProof = serde_json::from_value(value)?;
    let signature = hex::decode(&stored.signature).map_err(|error| bad_column("void_proof", error))?;
    Ok(Some(VoidProof { tx_hashes: stored.tx_hashes, signature, attested_at: stored.attested_at }))
}

pub(crate) fn read_hash(row: &PgRow, column: &str) -> Result<Option<TxHash>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    let hash = bytes.map(|bytes| <[u8; 32]>::try_from(bytes).map(TxHash::from)).transpose();
    hash.map_err(|_| bad_column(column, "not 32 bytes"))
}

fn document<T: serde::de::DeserializeOwned>(row: &PgRow, column: &str) -> Result<T, JobError> {
    let value: serde_json::Value = row.try_get(column)?;
    Ok(serde_json::from_value(value)?)
}

/// The one place where columns become a state; `changes::Columns` is the way back.
fn read_state(row: &PgRow, held: bool, proven: bool) -> Result<State, sqlx::Error> {
    let undone: bool = row.try_get("contradicted")?;
    let signed: bool = row.try_get("ever_signed")?;
    let exposure = match (held, signed && !proven) {
        (true, _) => Exposure::Held,
        (false, true) => Exposure::Unproven,
        (false, false) => Exposure::Clear,
    };
    let reason: Option<String> = row.try_get("cancel_reason")?;
    let retry: bool = row.try_get("retreating")?;
    let then = match (undone, retry) {
        (true, _) => AfterClosing::Park,
        (false, true) => AfterClosing::Retry,
        (false, false) => AfterClosing::Fail,
    };
    let closing = match (&reason, undone) {
        (Some(reason), _) => Some(Closing { reason: reason.clone(), then }),
        // No transition leads here. Should a row say so all the same, it must not go on paying.
        (None, true) => Some(Closing { reason: "something final about it was undone".to_owned(), then }),
        (None, false) => None,
    };
    let error = || -> Result<String, sqlx::Error> { row.try_get("error") };
    Ok(match text::<Status>(row, "status")? {
        Status::Pending => State::Pending { blocked: row.try_get("blocked_reason")?, exposure, closing },
        Status::Processing => State::Processing { exposure, closing },
        Status::Confirming => {
            let newest = match (held, row.try_get("rejected")?) {
                (false, _) => Newest::Imported,
                (true, true) => Newest::Rejected,
                (true, false) => Newest::Live,
            };
            let wanted: Option<&str> = row.try_get("wanted")?;
            State::Confirming { newest, closing, requested: wanted.is_some() }
        }
        Status::Confirmed => {
            let hash = read_hash(row, "tx_hash")?;
            let tx_hash = hash.ok_or_else(|| bad_column("tx_hash", "a confirmed job has one"))?;
            State::Confirmed { tx_hash }
        }
        Status::Failed if held => return Err(bad_column("status", "a failed job holds no nonce")),
        Status::Failed => State::Failed { reason: error()? },
        Status::Parked => {
            let exit = match (exposure, undone) {
                (Exposure::Held, _) => Exit::Close { reason, then },
                (Exposure::Clear | Exposure::Unproven, true) => Exit::Undone,
                (Exposure::Clear, false) => Exit::Decide,
                (Exposure::Unproven, false) => Exit::Unproven,
            };
            State::Parked { reason: error()?, exit }
        }
    })
}

fn read_payer(row: &PgRow) -> Result<Option<Payer>, sqlx::Error> {
    let wallet: Option<Uuid> = row.try_get("wallet_id")?;
    let Some(wallet) = wallet else { return Ok(None) };
    let index: i32 = row.try_get("derivation_index")?;
    Ok(Some(Payer {
        wallet: WalletId::from_uuid(wallet),
        address: address(row, "address")?,
        group: WalletGroupId::from_uuid(row.try_get("wallet_group_id")?),
        index: u32::try_from(index).map_err(|error| bad_column("derivation_index", error))?,
    }))
}

impl TryFrom<&PgRow> for Job {
    type Error = JobError;

    fn try_from(row: &PgRow) -> Result<Self, JobError> {
        let withdrawal: Option<Uuid> = row.try_get("withdrawal_id")?;
        let decimals: i16 = row.try_get("decimals")?;
        let decimals = u8::try_from(decimals).map_err(|error| bad_column("decimals", error))?;
        let contract: Option<&str> = row.try_get("contract_address")?;
        let (nonce, void_proof) = (opt_number(row, "nonce")?, read_proof(row)?);
        Ok(Self {
            id: JobId::from_uuid(row.try_get("id")?),
            queue: text(row, "queue")?,
            withdrawal: withdrawal.map(WithdrawalId::from_uuid),
            chain: text(row, "chain")?,
            asset: AssetId::from_uuid(row.try_get("asset_id")?),
            symbol: text(row, "symbol")?,
            decimals: Decimals::new(decimals).map_err(|error| bad_column("decimals", error))?,
            contract: contract.map(|_| address(row, "contract_address")).transpose()?,
            asset_enabled: row.try_get("asset_enabled")?,
            payer: read_payer(row)?,
            to: address(row, "to_address")?,
            amount: amount(row, "amount_raw")?,
            priority: Priority::from_rank(row.try_get("rank")?).map_err(|error| bad_column("rank", error))?,
            state: read_state(row, nonce.is_some(), void_proof.is_some())?,
            tries: count(row, "tries")?,
            max_tries: count(row, "max_tries")?,
            waits: count(row, "waits")?,
            error: row.try_get("error")?,
            blocked: row.try_get("blocked_reason")?,
            tx_hash: read_hash(row, "tx_hash")?,
            requested_by: row.try_get("requested_by")?,
            on_behalf_of: row.try_get("on_behalf_of")?,
            approvals: document(row, "approvals")?,
            void_proof,
            reserved: row.try_get("reserved")?,
            fee_paid: amount(row, "fee_paid_raw")?,
            imported: row.try_get("imported")?,
            filler: row.try_get("filler")?,
            trace: document(row, "trace")?,
            nonce,
            ever_signed: row.try_get("ever_signed")?,
            due_at: row.try_get("due_at")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
            broadcast_at: row.try_get("broadcast_at")?,
            finished_at: row.try_get("finished_at")?,
        })
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
