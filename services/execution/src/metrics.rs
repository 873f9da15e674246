//! The names of execution's metrics, in one place.

use chrono::Utc;
use types::ChainName;

use crate::job::{Change, Job, State};
use crate::queue::JobQueue;

/// Shows the counters of a chain from when it is known: a counter that first appears with a 1 does not look like a rise, and
/// one that is missing looks like a process that counts nothing.
pub(crate) fn begin(chain: &ChainName) {
    for (queue, _) in JobQueue::worked() {
        let queue = queue.name();
        metrics::counter!("bursar_execution_jobs_sent_total", "queue" => queue, "chain" => chain.to_string())
            .increment(0);
        metrics::counter!("bursar_execution_tries_failed_total", "queue" => queue, "chain" => chain.to_string())
            .increment(0);
        for status in ["confirmed", "failed", "parked"] {
            metrics::counter!(
                "bursar_execution_jobs_finished_total", "queue" => queue, "chain" => chain.to_string(), "status" => status
            )
            .increment(0);
        }
    }
    for outcome in ["held", "lost"] {
        step(chain, "fence", outcome, 0);
    }
}

pub(crate) fn job_changed(job: &Job, change: &Change) {
    let queue = job.queue.name();
    let chain = job.chain.to_string();
    if change.count_try {
        metrics::counter!("bursar_execution_tries_failed_total", "queue" => queue, "chain" => chain.clone())
            .increment(1);
    }
    match &change.to {
        State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => {
            let status = change.to.name();
            metrics::counter!(
                "bursar_execution_jobs_finished_total", "queue" => queue, "chain" => chain.clone(), "status" => status
            )
            .increment(1);
        }
        State::Pending { .. } | State::Processing { .. } | State::Confirming { .. } => {}
    }
    if let (State::Confirmed { .. }, Some(sent)) = (&change.to, job.broadcast_at) {
        metrics::histogram!("bursar_execution_confirmation_seconds", "queue" => queue, "chain" => chain)
            .record(seconds_since(sent));
    }
}

pub(crate) fn job_sent(job: &Job) {
    let (queue, chain) = (job.queue.name(), job.chain.to_string());
    metrics::counter!("bursar_execution_jobs_sent_total", "queue" => queue, "chain" => chain.clone())
        .increment(1);
    metrics::histogram!("bursar_execution_processing_seconds", "queue" => queue, "chain" => chain)
        .record(seconds_since(job.created_at));
}

/// The signer has used a nonce of ours for a payment that is not known here.
pub(crate) fn nonce_spent(job: &Job) {
    let address = job.payer.as_ref().map(|payer| payer.address.to_string());
    tracing::error!(
        job_id = %job.id, chain = %job.chain, address, nonce = job.nonce,
        "the signer used this nonce for another payment; the lane goes on above it"
    );
    metrics::counter!("bursar_execution_nonces_spent_total", "chain" => job.chain.to_string()).increment(1);
}

/// Every node refused a transaction for good.
pub(crate) fn rejected(job: &Job, kind: &'static str) {
    metrics::counter!(
        "bursar_execution_rejected_transactions_total", "chain" => job.chain.to_string(), "kind" => kind
    )
    .increment(1);
}

/// Gas that a final transaction used.
pub(crate) fn gas_used(job: &Job, gas: u64) {
    metrics::histogram!("bursar_execution_gas_used", "queue" => job.queue.name(), "chain" => job.chain.to_string())
        .record(gas as f64);
}

/// The outcome of one step of the protocol.
pub(crate) fn step(chain: &ChainName, step: &'static str, outcome: &'static str, count: usize) {
    metrics::counter!(
        "bursar_execution_steps_total", "chain" => chain.to_string(), "step" => step, "outcome" => outcome
    )
    .increment(count as u64);
}

fn seconds_since(at: chrono::DateTime<Utc>) -> f64 {
    (Utc::now() - at).to_std().unwrap_or_default().as_secs_f64()
}
