//! What confirmation is asked to watch: a job's expected effect, and every transaction that was signed for it at its nonce.
//!
//! Invariant: told in the transaction that stores the bytes, so nothing that anybody could send is unknown to confirmation
//! for longer than a message takes. What is mined before it is known would look like somebody else's.

use proto::confirmation::v1::{ExpectedEffect, PutWatchRequest, WatchedTransaction};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Attempt, AttemptKind, Job, JobError, Window, repo};
use crate::outbox::Told;

/// A watch for each job, over every transaction at the nonce beside it that could land.
pub(crate) async fn watches_in(
    tx: &mut PgConnection,
    jobs: &[(&Job, Option<u64>)],
) -> Result<Vec<Told>, JobError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = jobs.iter().map(|(job, _)| job.id.as_uuid()).collect();
    let attempts = repo::attempts(tx, &ids).await?;
    let told = jobs.iter().filter_map(|(job, nonce)| {
        let at_nonce = attempts.get(&job.id)?.iter().filter(|attempt| attempt.nonce == *nonce);
        told(job, at_nonce.filter_map(watched).collect())
    });
    Ok(told.collect())
}

/// The watch of a job of which this is the only attempt there ever was, so that none need be read.
pub(crate) fn first_watch(job: &Job, attempt: &Attempt) -> Option<Told> {
    told(job, vec![watched(attempt)?])
}

fn told(job: &Job, transactions: Vec<WatchedTransaction>) -> Option<Told> {
    Some(Told::watch(&request(job, transactions)?).traced(job.trace.clone()))
}

/// Nothing while it is not signed.
fn watched(attempt: &Attempt) -> Option<WatchedTransaction> {
    Some(WatchedTransaction {
        tx_hash: attempt.tx_hash?.to_string(),
        is_cancellation: attempt.kind == AttemptKind::Cancel,
        nonce: attempt.nonce.filter(|_| attempt.window.is_none()),
        expires_at: attempt.window.map(|window| expires_at(&window)),
        reference_block: attempt.reference_block,
        raw_transaction: attempt.raw.clone().unwrap_or_default(),
        effect: None,
    })
}

/// Block time, which confirmation compares with block time alone.
fn expires_at(window: &Window) -> prost_types::Timestamp {
    let ms = i64::try_from(window.expiration_ms).unwrap_or(i64::MAX);
    let nanos = i32::try_from(ms % 1000).unwrap_or(0) * 1_000_000;
    prost_types::Timestamp { seconds: ms / 1000, nanos }
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
            ..ExpectedEffect::default()
        }),
        transactions,
    })
}
