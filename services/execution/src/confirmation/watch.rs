//! What confirmation shall watch: every transaction that was signed for a job under its binding, each with the effect it
//! must show.
//!
//! Invariant: the message is written in the transaction that stores the bytes, so nothing that anybody could send is unknown to
//! confirmation for longer than a message takes. What is mined before it is known would look like somebody else's.

use chrono::DateTime;
use payment::{Binding, WatchedTransaction};
use proto::confirmation::v1 as pb;
use proto::payment::{write_effect, write_watched};
use sqlx::PgConnection;

use crate::job::repo::attempts;
use crate::job::{Attempt, Job, JobError};
use crate::outbox::JobMessage;

/// A watch for each job, over every signed transaction at the nonce beside it.
pub(crate) async fn messages_in(
    tx: &mut PgConnection,
    jobs: &[(&Job, Option<u64>)],
) -> Result<Vec<JobMessage>, JobError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<&Job> = jobs.iter().map(|(job, _)| *job).collect();
    let attempts = attempts::of_jobs(tx, &all).await?;
    let messages = jobs.iter().filter_map(|(job, nonce)| {
        let at_nonce = attempts.get(&job.id)?.iter().filter(|attempt| attempt.nonce == *nonce);
        message(job, at_nonce.filter_map(watched).collect())
    });
    Ok(messages.collect())
}

/// The watch of a job of which this is the only attempt there ever was, so that none need be read.
pub(crate) fn first_message(job: &Job, attempt: &Attempt) -> Option<JobMessage> {
    message(job, vec![watched(attempt)?])
}

/// None while it is not signed.
fn watched(attempt: &Attempt) -> Option<WatchedTransaction> {
    let expires_at = match attempt.binding {
        Some(Binding::Window { window, .. }) => {
            DateTime::from_timestamp_millis(i64::try_from(window.expiration_ms).unwrap_or(i64::MAX))
        }
        Some(Binding::Nonce { .. }) | None => None,
    };
    Some(WatchedTransaction {
        hash: attempt.tx_hash?,
        effect: attempt.action.effect(),
        nonce: attempt.chain_nonce(),
        expires_at,
        reference_block: attempt.reference_block,
        raw: attempt.raw.clone().unwrap_or_default(),
    })
}

fn message(job: &Job, transactions: Vec<WatchedTransaction>) -> Option<JobMessage> {
    let effect = job.action()?.effect();
    let message = JobMessage::watch(&pb::PutWatchRequest {
        job_id: job.id.to_string(),
        withdrawal_id: job.withdrawal.map(|id| id.to_string()).unwrap_or_default(),
        chain: job.chain.to_string(),
        effect: Some(write_effect(&effect)),
        transactions: transactions.iter().map(|transaction| write_watched(transaction, &effect)).collect(),
    });
    // An import belongs to the trace of its call.
    Some(if job.imported { message } else { message.in_trace(job.trace.clone()) })
}
