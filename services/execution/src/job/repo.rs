//! SQL that reads jobs and attempts into what they mean.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use payment::BlockRef;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, Row as _};
use types::{
    Address, AssetId, AttemptId, ChainName, Decimals, JobId, Priority, TxHash, WalletGroupId, WalletId,
    WithdrawalId,
};
use uuid::Uuid;

use super::{
    Attempt, AttemptKind, AttemptStatus, Fee, Job, JobError, JobQueue, Payer, State, VoidProof, Wanted,
    Window,
};
use crate::catalogue::repo::read_kind;
use crate::sql::{amount, bad_column, count, opt_text, text, unsigned};

const SELECT: &str = include_str!("../../queries/select_job.sql");

/// One statement for each way of asking: built once, so that the server's plan is found again.
macro_rules! select {
    ($name:ident, $tail:literal) => {
        static $name: LazyLock<String> = LazyLock::new(|| format!("{SELECT} {}", $tail));
    };
}

select!(BY_IDS, "WHERE j.id = ANY ($1) ORDER BY j.id");
select!(BY_WITHDRAWAL, "WHERE j.withdrawal_id = $1");
select!(BY_WITHDRAWALS, "WHERE j.withdrawal_id = ANY ($1)");
select!(LOCKED, "WHERE j.id = $1 FOR UPDATE OF j");
select!(
    OPEN_PAGE,
    "WHERE ($1::text IS NULL OR j.queue = $1)
       AND j.status = ANY ($2) AND j.finished_at IS NULL
       AND ($3::text IS NULL OR j.chain = $3)
       AND ($4::uuid IS NULL OR j.wallet_id = $4)
       AND ($5::uuid IS NULL OR j.id < $5)
     ORDER BY j.id DESC LIMIT $6"
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
    rows.iter().map(read_job).collect()
}

pub(crate) async fn by_withdrawal(
    db: impl PgExecutor<'_>,
    id: WithdrawalId,
) -> Result<Option<Job>, JobError> {
    let row =
        sqlx::query(AssertSqlSafe(BY_WITHDRAWAL.as_str())).bind(id.as_uuid()).fetch_optional(db).await?;
    row.as_ref().map(read_job).transpose()
}

pub(crate) async fn by_withdrawals(db: impl PgExecutor<'_>, ids: &[Uuid]) -> Result<Vec<Job>, JobError> {
    let rows = sqlx::query(AssertSqlSafe(BY_WITHDRAWALS.as_str())).bind(ids).fetch_all(db).await?;
    rows.iter().map(read_job).collect()
}

/// Locks these jobs, in the order of ids as everybody does, so that nobody waits in a circle.
pub(crate) async fn lock_all_in(tx: &mut PgConnection, ids: &[Uuid]) -> Result<(), JobError> {
    sqlx::query("SELECT FROM jobs WHERE id = ANY ($1) ORDER BY id FOR UPDATE").bind(ids).execute(tx).await?;
    Ok(())
}

/// The job, locked until the transaction ends. Every change of a job that is not made in bulk starts here.
pub(crate) async fn lock_in(tx: &mut PgConnection, id: JobId) -> Result<Job, JobError> {
    // Locked first and read afterwards: what is read beside the row itself is then as new as the row.
    let known = sqlx::query("SELECT FROM jobs WHERE id = $1 FOR UPDATE")
        .bind(id.as_uuid())
        .fetch_optional(&mut *tx)
        .await?;
    let missing = || JobError::NoJob(id.to_string());
    known.ok_or_else(missing)?;
    let row = sqlx::query(AssertSqlSafe(LOCKED.as_str())).bind(id.as_uuid()).fetch_optional(tx).await?;
    read_job(&row.ok_or_else(missing)?)
}

/// What a page of jobs is narrowed down by.
#[derive(Debug, Clone)]
pub(crate) struct PageKey<'a> {
    pub queue: Option<JobQueue>,
    pub statuses: &'a [&'static str],
    pub chain: Option<&'a ChainName>,
    pub wallet: Option<WalletId>,
    pub before: Option<JobId>,
}

pub(crate) async fn page(
    db: impl PgExecutor<'_>,
    key: &PageKey<'_>,
    limit: u32,
) -> Result<Vec<Job>, JobError> {
    // Jobs that have not ended are few, and have an index of their own.
    let open = !key.statuses.is_empty()
        && key.statuses.iter().all(|status| !["confirmed", "failed"].contains(status));
    let sql = if open { OPEN_PAGE.as_str() } else { PAGE.as_str() };
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(key.queue.map(JobQueue::as_str))
        .bind(key.statuses)
        .bind(key.chain.map(ChainName::as_str))
        .bind(key.wallet.map(|wallet| wallet.as_uuid()))
        .bind(key.before.map(|before| before.as_uuid()))
        .bind(i64::from(limit))
        .fetch_all(db)
        .await?;
    rows.iter().map(read_job).collect()
}

const ATTEMPT: &str = "SELECT t.id, t.job_id, t.number, t.kind AS attempt_kind, t.status, t.address, t.nonce, t.gas_limit,
    t.max_fee_per_gas::text, t.max_priority_fee_per_gas::text, t.void_proof, t.raw_transaction, t.tx_hash, t.last_error,
    t.rejected, t.reference_block, t.reference_hash, t.expiration_ms, t.made_ms, t.sends, t.created_at, t.broadcast_at, t.gas_used::text, t.gas_price::text, t.block_number, c.kind
    FROM attempts AS t JOIN chains AS c ON c.name = t.chain WHERE t.job_id = ANY ($1) ORDER BY t.job_id, t.number";

/// Every attempt of these jobs, oldest first.
pub(crate) async fn attempts(
    db: impl PgExecutor<'_>,
    jobs: &[Uuid],
) -> Result<BTreeMap<JobId, Vec<Attempt>>, JobError> {
    let rows = sqlx::query(ATTEMPT).bind(jobs).fetch_all(db).await?;
    let mut by_job: BTreeMap<JobId, Vec<Attempt>> = BTreeMap::new();
    for row in &rows {
        let attempt = read_attempt(row)?;
        by_job.entry(attempt.job).or_default().push(attempt);
    }
    Ok(by_job)
}

/// Makes jobs due that wait for something outside of them, on one chain. Bounded: the rest follows by their own schedule.
pub(crate) async fn wake_blocked_in(tx: &mut PgConnection, chain: &ChainName) -> Result<u64, db::QueueError> {
    let rows = sqlx::query(
        "SELECT id, queue, filler, rank FROM jobs
         WHERE chain = $1 AND status = 'pending' AND finished_at IS NULL AND blocked_reason IS NOT NULL
         ORDER BY id LIMIT 1000",
    )
    .bind(chain.as_str())
    .fetch_all(&mut *tx)
    .await?;
    let mut woken = 0;
    for queue in JobQueue::ALL {
        let mut jobs = Vec::new();
        for row in &rows {
            // As in `Job::line`: fillers are the withdrawal worker's.
            let line = match row.try_get("filler")? {
                true => JobQueue::Withdrawal.as_str(),
                false => row.try_get::<&str, _>("queue")?,
            };
            if line == queue.as_str() {
                let priority =
                    Priority::from_rank(row.try_get("rank")?).map_err(|error| bad_column("rank", error))?;
                let job_id = row.try_get("id")?;
                jobs.push(db::queue::NewJob { job_id, priority, due: db::Due::Now });
            }
        }
        woken += jobs.len() as u64;
        queue.on(chain).push_many_in(tx, &jobs).await?;
    }
    Ok(woken)
}

fn address(row: &PgRow, column: &str) -> Result<Address, sqlx::Error> {
    let format = read_kind(row)?.address_format();
    Address::parse(format, row.try_get(column)?).map_err(|error| bad_column(column, error))
}

pub(super) fn hash(row: &PgRow, column: &str) -> Result<Option<TxHash>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    let hash = bytes.map(|bytes| <[u8; 32]>::try_from(bytes).map(TxHash)).transpose();
    hash.map_err(|_| bad_column(column, "not 32 bytes"))
}

fn document<T: serde::de::DeserializeOwned>(row: &PgRow, column: &str) -> Result<T, JobError> {
    let value: serde_json::Value = row.try_get(column)?;
    Ok(serde_json::from_value(value)?)
}

fn opt_document<T: serde::de::DeserializeOwned>(row: &PgRow, column: &str) -> Result<Option<T>, JobError> {
    let value: Option<serde_json::Value> = row.try_get(column)?;
    Ok(value.map(serde_json::from_value).transpose()?)
}

fn read_state(row: &PgRow) -> Result<State, sqlx::Error> {
    let error = || -> Result<String, sqlx::Error> { row.try_get("error") };
    match row.try_get("status")? {
        "pending" => Ok(State::Pending { blocked: row.try_get("blocked_reason")? }),
        "processing" => Ok(State::Processing),
        "confirming" => Ok(State::Confirming),
        "confirmed" => hash(row, "tx_hash")?
            .map(|tx_hash| State::Confirmed { tx_hash })
            .ok_or_else(|| bad_column("tx_hash", "a confirmed job has one")),
        "failed" => Ok(State::Failed { reason: error()? }),
        "parked" => Ok(State::Parked { reason: error()? }),
        other => Err(bad_column("status", format!("{other:?} is no status"))),
    }
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

fn read_wanted(row: &PgRow) -> Result<Option<Wanted>, sqlx::Error> {
    let text: Option<&str> = row.try_get("wanted")?;
    match text {
        None => Ok(None),
        Some("bump") => Ok(Some(Wanted::Bump)),
        Some("cancel") => Ok(Some(Wanted::Cancel)),
        Some(other) => Err(bad_column("wanted", format!("{other:?} is unknown"))),
    }
}

fn read_job(row: &PgRow) -> Result<Job, JobError> {
    let withdrawal: Option<Uuid> = row.try_get("withdrawal_id")?;
    let decimals: i16 = row.try_get("decimals")?;
    let decimals = u8::try_from(decimals).map_err(|error| bad_column("decimals", error))?;
    let contract: Option<&str> = row.try_get("contract_address")?;
    let nonce: Option<i64> = row.try_get("nonce")?;
    let queue: &str = row.try_get("queue")?;
    Ok(Job {
        id: JobId::from_uuid(row.try_get("id")?),
        queue: JobQueue::parse(queue).ok_or_else(|| bad_column("queue", "unknown"))?,
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
        state: read_state(row)?,
        tries: count(row, "tries")?,
        max_tries: count(row, "max_tries")?,
        waits: count(row, "waits")?,
        error: row.try_get("error")?,
        blocked: row.try_get("blocked_reason")?,
        wanted: read_wanted(row)?,
        cancel_reason: row.try_get("cancel_reason")?,
        retreating: row.try_get("retreating")?,
        rejected: row.try_get("rejected")?,
        tx_hash: hash(row, "tx_hash")?,
        requested_by: row.try_get("requested_by")?,
        on_behalf_of: row.try_get("on_behalf_of")?,
        approvals: document(row, "approvals")?,
        void_proof: opt_document(row, "void_proof")?,
        reserved: row.try_get("reserved")?,
        fee_paid: amount(row, "fee_paid_raw")?,
        imported: row.try_get("imported")?,
        filler: row.try_get("filler")?,
        trace: document(row, "trace")?,
        nonce: nonce.map(u64::try_from).transpose().map_err(|error| bad_column("nonce", error))?,
        ever_signed: row.try_get("ever_signed")?,
        contradicted: row.try_get("contradicted")?,
        due_at: row.try_get::<Option<DateTime<Utc>>, _>("due_at")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        broadcast_at: row.try_get("broadcast_at")?,
        finished_at: row.try_get("finished_at")?,
    })
}

fn read_attempt(row: &PgRow) -> Result<Attempt, JobError> {
    let kind: &str = row.try_get("attempt_kind")?;
    let status: &str = row.try_get("status")?;
    let number = |column: &'static str| -> Result<Option<u64>, sqlx::Error> {
        let value: Option<i64> = row.try_get(column)?;
        value.map(|_| unsigned(row, column)).transpose()
    };
    let fee = match (number("gas_limit")?, opt_text::<u128>(row, "max_fee_per_gas")?) {
        (Some(gas_limit), Some(max_fee_per_gas)) => Some(Fee {
            gas_limit,
            max_fee_per_gas,
            max_priority_fee_per_gas: opt_text(row, "max_priority_fee_per_gas")?,
        }),
        (None, _) | (_, None) => None,
    };
    let reference_block = unsigned(row, "reference_block")?;
    let window = match (hash(row, "reference_hash")?, number("expiration_ms")?, number("made_ms")?) {
        (Some(hash), Some(expiration_ms), Some(made_ms)) => {
            let reference = BlockRef { number: reference_block, hash };
            Some(Window { reference, expiration_ms, made_ms })
        }
        (None, ..) | (_, None, _) | (_, _, None) => None,
    };
    Ok(Attempt {
        id: AttemptId::from_uuid(row.try_get("id")?),
        job: JobId::from_uuid(row.try_get("job_id")?),
        number: count(row, "number")?,
        kind: AttemptKind::parse(kind).ok_or_else(|| bad_column("kind", "unknown"))?,
        status: AttemptStatus::parse(status).ok_or_else(|| bad_column("status", "unknown"))?,
        address: address(row, "address")?,
        nonce: number("nonce")?,
        window,
        reference_block,
        fee,
        void_proof: opt_document::<VoidProof>(row, "void_proof")?,
        raw: row.try_get("raw_transaction")?,
        tx_hash: hash(row, "tx_hash")?,
        last_error: row.try_get("last_error")?,
        rejected: row.try_get("rejected")?,
        sends: count(row, "sends")?,
        created_at: row.try_get("created_at")?,
        broadcast_at: row.try_get("broadcast_at")?,
        gas_used: opt_text(row, "gas_used")?,
        gas_price: opt_text(row, "gas_price")?,
        block_number: number("block_number")?,
    })
}
