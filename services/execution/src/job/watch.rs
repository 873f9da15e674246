//! What confirmation is asked to watch: a job's expected effect, and every transaction that was signed for it at its nonce.
//!
//! Invariant: told in the transaction that stores the bytes, so nothing that anybody could send is unknown to confirmation
//! for longer than a message takes. What is mined before it is known would look like somebody else's.

use std::collections::HashMap;

use proto::confirmation::v1::{ExpectedEffect, PutWatchRequest, WatchedTransaction};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::{Attempt, AttemptKind, AttemptStatus, Job, JobError, Window, repo};
use crate::outbox::Told;

/// A watch for each job, over every transaction at the nonce beside it that could land.
pub(crate) async fn watches_in(
    tx: &mut PgConnection,
    jobs: &[(&Job, Option<u64>)],
) -> Result<Vec<Told>, JobError> {
    let ids: Vec<Uuid> = jobs.iter().map(|(job, _)| job.id.as_uuid()).collect();
    let attempts = repo::attempts(&mut *tx, &ids).await?;
    let references = references_in(tx, &ids).await?;
    let told = jobs.iter().filter_map(|(job, nonce)| {
        let at_nonce = attempts.get(&job.id)?.iter().filter(|attempt| attempt.nonce == *nonce);
        let transactions = at_nonce.filter_map(|attempt| watched(attempt, &references)).collect();
        Some(Told::watch(&request(job, transactions)?).traced(job.trace.clone()))
    });
    Ok(told.collect())
}

fn watched(attempt: &Attempt, references: &HashMap<Uuid, u64>) -> Option<WatchedTransaction> {
    if attempt.status == AttemptStatus::Reserved {
        return None;
    }
    Some(WatchedTransaction {
        tx_hash: attempt.tx_hash?.to_string(),
        is_cancellation: attempt.kind == AttemptKind::Cancel,
        nonce: attempt.nonce.filter(|_| attempt.window.is_none()),
        expires_at: attempt.window.map(|window| expires_at(&window)),
        reference_block: references.get(&attempt.id.as_uuid()).copied().unwrap_or(0),
        raw_transaction: attempt.raw.clone().unwrap_or_default(),
    })
}

/// Block time, which confirmation compares with block time alone.
fn expires_at(window: &Window) -> prost_types::Timestamp {
    let ms = i64::try_from(window.expiration_ms).unwrap_or(i64::MAX);
    let nanos = i32::try_from(ms % 1000).unwrap_or(0) * 1_000_000;
    prost_types::Timestamp { seconds: ms / 1000, nanos }
}

async fn references_in(tx: &mut PgConnection, jobs: &[Uuid]) -> Result<HashMap<Uuid, u64>, JobError> {
    let rows = sqlx::query("SELECT id, reference_block FROM attempts WHERE job_id = ANY ($1)")
        .bind(jobs)
        .fetch_all(tx)
        .await?;
    let read = rows.iter().map(|row| Ok((row.try_get("id")?, crate::sql::unsigned(row, "reference_block")?)));
    read.collect::<Result<_, sqlx::Error>>().map_err(JobError::from)
}

/// The request for a job and transactions of it; `None` while no wallet pays it.
pub(crate) fn request(job: &Job, transactions: Vec<WatchedTransaction>) -> Option<PutWatchRequest> {
    let payer = job.payer.as_ref()?;
    Some(PutWatchRequest {
        job_id: job.id.to_string(),
        withdrawal_id: job.withdrawal.map(|id| id.to_string()).unwrap_or_default(),
        chain: job.chain.to_string(),
        effect: Some(ExpectedEffect {
            from_address: payer.address.to_string(),
            to_address: job.to.to_string(),
            amount_raw: job.amount.to_string(),
            contract_address: job.contract.map(|contract| contract.to_string()).unwrap_or_default(),
        }),
        transactions,
    })
}
