//! SQL of attempts: the transactions signed for jobs.

use std::collections::BTreeMap;

use chain::BroadcastOutcome;
use payment::{Binding, GasFee, Price, Window};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, Row as _};
use types::{Address, AttemptId, ChainName, JobId, TxHash};
use uuid::Uuid;

use super::{proof_document, read_hash, read_proof};
use crate::job::{Attempt, Job, JobError};
use crate::row::{bad_column, bigint, count, opt_number, opt_text, text, unsigned};

/// Every attempt of these jobs, oldest first.
pub(crate) async fn of_jobs(
    db: impl PgExecutor<'_>,
    jobs: &[&Job],
) -> Result<BTreeMap<JobId, Vec<Attempt>>, JobError> {
    let by_id: BTreeMap<JobId, &Job> = jobs.iter().map(|job| (job.id, *job)).collect();
    let ids: Vec<Uuid> = by_id.keys().map(JobId::as_uuid).collect();
    let rows =
        sqlx::query(include_str!("../../../queries/select_attempts.sql")).bind(ids).fetch_all(db).await?;
    let mut by_job: BTreeMap<JobId, Vec<Attempt>> = BTreeMap::new();
    for row in &rows {
        let id = JobId::from_uuid(row.try_get("job_id")?);
        if let Some(job) = by_id.get(&id) {
            by_job.entry(id).or_default().push(read_attempt(row, job)?);
        }
    }
    Ok(by_job)
}

pub(crate) async fn of_job(db: impl PgExecutor<'_>, job: &Job) -> Result<Vec<Attempt>, JobError> {
    Ok(of_jobs(db, &[job]).await?.remove(&job.id).unwrap_or_default())
}

fn read_attempt(row: &PgRow, job: &Job) -> Result<Attempt, JobError> {
    let kind: &str = row.try_get("kind")?;
    let action = match kind {
        "cancel" => job.cancellation(),
        _ => job.action().filter(|action| action.name() == kind),
    };
    let action = action.ok_or_else(|| bad_column("kind", format!("{kind:?} is no action of this job")))?;
    let nonce = opt_number(row, "nonce")?;
    let reference_block = unsigned(row, "reference_block")?;
    let window = read_window(row)?;
    Ok(Attempt {
        id: AttemptId::from_uuid(row.try_get("id")?),
        job: job.id,
        number: count(row, "number")?,
        status: text(row, "status")?,
        binding: read_binding(action.sender(), nonce, window),
        price: read_price(row, window.is_some())?,
        action,
        nonce,
        reference_block,
        void_proof: read_proof(row)?,
        raw: row.try_get("raw_transaction")?,
        tx_hash: read_hash(row, "tx_hash")?,
        last_error: row.try_get("last_error")?,
        rejected: row.try_get("rejected")?,
        sends: count(row, "sends")?,
        created_at: row.try_get("created_at")?,
        broadcast_at: row.try_get("broadcast_at")?,
        gas_used: opt_text(row, "gas_used")?,
        gas_price: opt_text(row, "gas_price")?,
        block_number: opt_number(row, "block_number")?,
    })
}

fn read_binding(sender: Address, nonce: Option<u64>, window: Option<Window>) -> Option<Binding> {
    match (window, nonce) {
        (Some(window), _) => Some(Binding::Window { sender, window }),
        (None, Some(nonce)) => Some(Binding::Nonce { sender, nonce }),
        (None, None) => None,
    }
}

fn read_window(row: &PgRow) -> Result<Option<Window>, sqlx::Error> {
    let columns =
        (read_hash(row, "reference_hash")?, opt_number(row, "expiration_ms")?, opt_number(row, "made_ms")?);
    let (Some(hash), Some(expiration_ms), Some(made_ms)) = columns else { return Ok(None) };
    let reference = chain::block_reference(&hash);
    Ok(Some(Window { reference, expiration_ms, made_ms }))
}

/// A price as columns. A fee limit is written as that much gas at a price of one too, because the previous release reads only
/// those columns.
struct PriceColumns {
    kind: &'static str,
    gas_limit: i64,
    max_fee: String,
    max_tip: Option<String>,
}

impl PriceColumns {
    fn of(price: &Price) -> Self {
        let gas = |limit: u64, max_fee: u128, max_tip: Option<u128>| Self {
            kind: "gas",
            gas_limit: bigint(limit),
            max_fee: max_fee.to_string(),
            max_tip: max_tip.map(|tip| tip.to_string()),
        };
        match *price {
            Price::Gas { limit, fee: GasFee::Dynamic { max_fee, max_priority } } => {
                gas(limit, max_fee, Some(max_priority))
            }
            Price::Gas { limit, fee: GasFee::Legacy { gas_price } } => gas(limit, gas_price, None),
            Price::FeeLimit { sun } => Self { kind: "fee_limit", ..gas(sun, 1, None) },
        }
    }
}

fn read_price(row: &PgRow, has_window: bool) -> Result<Option<Price>, sqlx::Error> {
    let (Some(limit), Some(max_fee)) =
        (opt_number(row, "gas_limit")?, opt_text::<u128>(row, "max_fee_per_gas")?)
    else {
        return Ok(None);
    };
    // The previous release writes no kind; there a fee limit is what an attempt with a window has.
    let kind: Option<&str> = row.try_get("price_kind")?;
    let kind = kind.unwrap_or(if has_window { "fee_limit" } else { "gas" });
    let fee = match opt_text(row, "max_priority_fee_per_gas")? {
        Some(max_priority) => GasFee::Dynamic { max_fee, max_priority },
        None => GasFee::Legacy { gas_price: max_fee },
    };
    match kind {
        "gas" => Ok(Some(Price::Gas { limit, fee })),
        "fee_limit" => Ok(Some(Price::FeeLimit { sun: limit })),
        other => Err(bad_column("price_kind", format!("{other:?} is unknown"))),
    }
}

/// Stores reserved attempts of one chain. `reference`: the block that windows refer to, or at which nonces were unused; none
/// for a further attempt at a nonce, which takes that of the first.
pub(crate) async fn insert_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    attempts: &[&Attempt],
    reference: Option<(u64, Option<TxHash>)>,
) -> Result<(), JobError> {
    let windows: Vec<Option<Window>> = attempts
        .iter()
        .map(|attempt| match attempt.binding {
            Some(Binding::Window { window, .. }) => Some(window),
            Some(Binding::Nonce { .. }) | None => None,
        })
        .collect();
    let reference_hash = reference.and_then(|(_, hash)| hash).map(|hash| hash.as_bytes().to_vec());
    let prices: Vec<Option<PriceColumns>> =
        attempts.iter().map(|attempt| attempt.price.as_ref().map(PriceColumns::of)).collect();
    let mut proofs = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        proofs.push(proof_document(attempt.void_proof.as_ref())?);
    }
    let price = |of: fn(&PriceColumns) -> Option<String>| {
        prices.iter().map(|price| price.as_ref().and_then(of)).collect::<Vec<_>>()
    };
    sqlx::query(include_str!("../../../queries/insert_attempts.sql"))
        .bind(attempts.iter().map(|attempt| attempt.id.as_uuid()).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.job.as_uuid()).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| i32::try_from(attempt.number).unwrap_or(-1)).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.action.name()).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.sender().to_string()).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.nonce.map(bigint)).collect::<Vec<_>>())
        .bind(prices.iter().map(|price| price.as_ref().map(|price| price.gas_limit)).collect::<Vec<_>>())
        .bind(price(|price| Some(price.max_fee.clone())))
        .bind(price(|price| price.max_tip.clone()))
        .bind(proofs)
        .bind(chain.as_str())
        .bind(reference.map_or(0, |(number, _)| bigint(number)))
        .bind(windows.iter().map(|window| window.and(reference_hash.clone())).collect::<Vec<_>>())
        .bind(
            windows
                .iter()
                .map(|window| window.map(|window| bigint(window.expiration_ms)))
                .collect::<Vec<_>>(),
        )
        .bind(windows.iter().map(|window| window.map(|window| bigint(window.made_ms))).collect::<Vec<_>>())
        .bind(price(|price| Some(price.kind.to_owned())))
        .execute(tx)
        .await?;
    Ok(())
}

/// An attempt that was reserved and whose bytes were never stored gives way to a cancellation at the same nonce.
pub(crate) async fn void_reserved_in(tx: &mut PgConnection, job: JobId) -> Result<(), JobError> {
    sqlx::query(
        "UPDATE attempts SET status = 'void', last_error = 'given up before its bytes were stored'
         WHERE job_id = $1 AND status = 'reserved'",
    )
    .bind(job.as_uuid())
    .execute(tx)
    .await?;
    Ok(())
}

/// Stores signed bytes. Returns the attempts that were stored, each with whether its job was given up meanwhile.
pub(crate) async fn store_bytes_in(
    tx: &mut PgConnection,
    signed: &[&Attempt],
) -> Result<Vec<(AttemptId, bool)>, JobError> {
    let hash = |attempt: &&Attempt| attempt.tx_hash.map(|hash| hash.as_bytes().to_vec()).unwrap_or_default();
    let stored: Vec<(Uuid, bool)> = sqlx::query_as(include_str!("../../../queries/store_bytes.sql"))
        .bind(signed.iter().map(|attempt| attempt.id.as_uuid()).collect::<Vec<_>>())
        .bind(signed.iter().map(|attempt| attempt.raw.clone().unwrap_or_default()).collect::<Vec<_>>())
        .bind(signed.iter().map(hash).collect::<Vec<_>>())
        .fetch_all(tx)
        .await?;
    Ok(stored.into_iter().map(|(id, given_up)| (AttemptId::from_uuid(id), given_up)).collect())
}

/// What sending an attempt led to.
pub(crate) struct SendNote<'a> {
    pub attempt: AttemptId,
    pub outcome: Option<&'a BroadcastOutcome>,
    /// Whether all nodes refused for good; none if neither that nor the contrary is certain.
    pub rejected: Option<bool>,
}

/// Records that attempts were sent, and what the nodes answered.
pub(crate) async fn note_sends_in(tx: &mut PgConnection, sends: &[SendNote<'_>]) -> Result<(), sqlx::Error> {
    let in_pool = |send: &SendNote<'_>| send.outcome.is_some_and(BroadcastOutcome::in_pool);
    let error = |send: &SendNote<'_>| match send.outcome {
        Some(outcome) if outcome.in_pool() => None,
        Some(outcome) => Some(outcome.to_string()),
        None => Some("not sent".to_owned()),
    };
    sqlx::query(include_str!("../../../queries/note_sends.sql"))
        .bind(sends.iter().map(|send| send.attempt.as_uuid()).collect::<Vec<_>>())
        .bind(sends.iter().map(in_pool).collect::<Vec<_>>())
        .bind(sends.iter().map(error).collect::<Vec<_>>())
        .bind(sends.iter().map(|send| send.rejected).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Which stored bytes of a wallet are to be sent again.
pub(crate) struct ResendQuery<'a> {
    pub chain: &'a ChainName,
    pub address: &'a Address,
    /// The chain's next nonce.
    pub mined: u64,
    /// Time of the newest block, for windows.
    pub time_ms: u64,
    pub pause_ms: i64,
    pub limit: i64,
}

/// Stored bytes that are due to be sent again.
pub(crate) struct DueResend {
    pub attempt: AttemptId,
    pub job: JobId,
    pub raw: Vec<u8>,
    pub hash: TxHash,
    /// Whether its job says that it waits for money.
    pub blocked: bool,
}

/// The newest live transaction at each open nonce that no block holds, and whose time is not over.
pub(crate) async fn due_resends(
    db: impl PgExecutor<'_>,
    query: &ResendQuery<'_>,
) -> Result<Vec<DueResend>, sqlx::Error> {
    let rows = sqlx::query(include_str!("../../../queries/due_resends.sql"))
        .bind(query.chain.as_str())
        .bind(query.address.to_string())
        .bind(bigint(query.mined))
        .bind(query.pause_ms)
        .bind(query.limit)
        .bind(bigint(query.time_ms))
        .fetch_all(db)
        .await?;
    let due = rows.iter().map(|row| {
        Ok(DueResend {
            attempt: AttemptId::from_uuid(row.try_get("id")?),
            job: JobId::from_uuid(row.try_get("job_id")?),
            raw: row.try_get("raw_transaction")?,
            hash: read_hash(row, "tx_hash")?.ok_or_else(|| bad_column("tx_hash", "is missing"))?,
            blocked: row.try_get("blocked")?,
        })
    });
    due.collect()
}

/// The resend loop sends these bytes again at its next look.
pub(crate) async fn resend_now_in(tx: &mut PgConnection, job: JobId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE attempts SET last_sent_at = NULL WHERE job_id = $1 AND status IN ('signed', 'broadcast')",
    )
    .bind(job.as_uuid())
    .execute(tx)
    .await?;
    Ok(())
}
