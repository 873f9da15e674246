//! Requesting signatures, checking the signed bytes, and storing them. Only stored bytes are ever sent.
//!
//! - The reply is lost: the attempt stays reserved, and the same request is made again; the signer returns the same bytes.
//! - The signer returns something else (another destination, another nonce): the bytes are decoded and compared field by field
//!   with the attempt; what differs is never stored or sent, and the job is parked.
//! - The lease expired meanwhile: nothing is stored, and whoever holds the job now requests the same bytes.
//! - Bytes are sent and nobody watches: the message that has them watched is stored with them.

use std::collections::{HashMap, HashSet};

use chain::Plan;
use db::Lease;
use proto::signer::v1::SignTransactionRequest;
use types::{AttemptId, TxHash};

use super::context::{Ended, Work, WorkContext};
use crate::confirmation::watch;
use crate::job::repo::attempts;
use crate::job::{Attempt, Job, JobError, WorkEvent};
use crate::outbox::enqueue_in;
use crate::signer::{self, SignOutcome};
use crate::worker::WorkError;

/// The most that the signer takes in one call.
const MOST_AT_ONCE: usize = 256;

/// What one request led to.
enum Outcome {
    Bytes(Vec<u8>, TxHash),
    Ended(WorkEvent),
    /// Nothing may be done or written: the job belongs to another worker.
    Fenced,
}

impl WorkContext {
    /// Has attempts signed and stores the bytes; what is returned may be sent.
    pub(super) async fn sign(&self, work: Vec<Work>) -> Result<(Vec<Work>, Vec<Ended>), WorkError> {
        let mut outcomes = Vec::with_capacity(work.len());
        let mut rest = work;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(self.config.sign_concurrency.clamp(1, MOST_AT_ONCE)));
            outcomes.extend(self.request_all(rest).await);
            rest = later;
        }
        self.checkpoints.pass("execution.after_sign").await;
        let (mut signed, mut ended) = (Vec::new(), Vec::new());
        for (mut work, outcome) in outcomes {
            match outcome {
                Outcome::Bytes(raw, hash) => {
                    work.attempt.raw = Some(raw);
                    work.attempt.tx_hash = Some(hash);
                    signed.push(work);
                }
                Outcome::Ended(event) => ended.push((work.item, event)),
                Outcome::Fenced => {
                    tracing::warn!(job_id = %work.item.job.id, "the signer knows a newer lease")
                }
            }
        }
        crate::metrics::step(&self.chain.settings.name, "sign", "signed", signed.len());
        crate::metrics::step(&self.chain.settings.name, "sign", "not_signed", ended.len());
        Ok((self.persist(signed).await?, ended))
    }

    /// Requests these signatures in one call.
    async fn request_all(&self, work: Vec<Work>) -> Vec<(Work, Outcome)> {
        let (mut requested, mut outcomes, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for work in work {
            match self.request(&work) {
                Ok((request, plan)) => {
                    let (job, number) = (&work.item.job, work.attempt.number);
                    // The signer's part belongs to the trace of the request for this payment.
                    let span = tracing::info_span!("execution.sign", job_id = %job.id, attempt = number);
                    telemetry::propagation::attach(&job.trace, &span);
                    requests.push((request, span));
                    requested.push((work, plan));
                }
                Err(reason) => outcomes.push((work, inexplicable(reason))),
            }
        }
        if requested.is_empty() {
            return outcomes;
        }
        let signed = self.signer.sign(requests).await;
        outcomes.extend(requested.into_iter().zip(signed).map(|((work, plan), signed)| {
            let outcome = self.judge(&work, &plan, signed);
            (work, outcome)
        }));
        outcomes
    }

    fn request(&self, work: &Work) -> Result<(SignTransactionRequest, Plan), String> {
        let (job, attempt) = (&work.item.job, &work.attempt);
        let epoch = work.item.lease.token.unsigned_abs();
        let request = signer::request(job, attempt, self.chain.settings.network_id, epoch)
            .map_err(|incomplete| incomplete.to_string())?;
        Ok((request, plan_of(attempt).ok_or("the attempt does not say what to sign")?))
    }

    fn judge(&self, work: &Work, plan: &Plan, signed: SignOutcome) -> Outcome {
        let attempt = &work.attempt;
        match signed {
            SignOutcome::Bytes { raw, claimed_hash } => match self.chain.edge.check_signed(&raw, plan) {
                Ok(hash) if claimed_hash == Some(hash) => Outcome::Bytes(raw, hash),
                Ok(hash) => inexplicable(format!("the signer names another hash than {hash}")),
                Err(error) => inexplicable(format!("the signer's bytes are not what was requested: {error}")),
            },
            SignOutcome::NotNow { reason } => Outcome::Ended(not_now(&work.item.attempts, attempt, reason)),
            SignOutcome::ApprovalsExpired { reason } => {
                Outcome::Ended(expired(&work.item.attempts, attempt, &reason))
            }
            SignOutcome::NonceSpent { reason } => Outcome::Ended(spent(&work.item.attempts, attempt, reason)),
            SignOutcome::Refused { reason } => Outcome::Ended(refusal(&work.item.attempts, attempt, reason)),
            // The signer knows of bytes for this payment that are not known here, and they may pay.
            SignOutcome::Guarded { reason } if attempt.has_window() => inexplicable(reason),
            SignOutcome::Guarded { reason } => Outcome::Ended(refusal(&work.item.attempts, attempt, reason)),
            SignOutcome::Unknown { error } => {
                Outcome::Ended(WorkEvent::Blocked { reason: format!("not signed yet: {error}") })
            }
            SignOutcome::Fenced => Outcome::Fenced,
        }
    }

    /// Stores bytes and hashes, and has them watched, in one fenced transaction. What is not returned was not stored and is not
    /// sent.
    async fn persist(&self, signed: Vec<Work>) -> Result<Vec<Work>, WorkError> {
        if signed.is_empty() {
            return Ok(signed);
        }
        let leases: Vec<Lease> = signed.iter().map(|work| work.item.lease.clone()).collect();
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, &leases).await?;
        let ours: Vec<&Work> = signed.iter().filter(|work| held.contains(&work.item.lease.job_id)).collect();
        let to_store: Vec<&Attempt> = ours.iter().map(|work| &work.attempt).collect();
        let stored = attempts::store_bytes_in(&mut tx, &to_store).await?;
        let kept: HashSet<AttemptId> = stored.iter().map(|(id, _)| *id).collect();
        let (first, further): (Vec<&Work>, Vec<&Work>) = ours
            .into_iter()
            .filter(|work| kept.contains(&work.attempt.id))
            .partition(|work| work.item.attempts.is_empty());
        let further: Vec<(&Job, Option<u64>)> =
            further.into_iter().map(|work| (&work.item.job, work.attempt.nonce)).collect();
        let mut messages = watch::messages_in(&mut tx, &further).await?;
        let first = first.into_iter();
        messages.extend(first.filter_map(|work| watch::first_message(&work.item.job, &work.attempt)));
        enqueue_in(&mut tx, &messages).await.map_err(JobError::from)?;
        tx.commit().await?;
        self.checkpoints.pass("execution.after_persist").await;
        let mut by_id: HashMap<AttemptId, Work> =
            signed.into_iter().map(|work| (work.attempt.id, work)).collect();
        let stored = stored.into_iter().filter_map(|(id, given_up)| {
            let work = by_id.remove(&id)?;
            Some(Work { given_up, ..work })
        });
        Ok(stored.collect())
    }
}

fn inexplicable(reason: String) -> Outcome {
    Outcome::Ended(WorkEvent::Inexplicable { reason })
}

/// The transaction that an attempt stands for.
fn plan_of(attempt: &Attempt) -> Option<Plan> {
    Some(Plan { action: attempt.action.clone(), binding: attempt.binding?, price: attempt.price? })
}

/// A limit over time must not hold up the wallet's other payments: the nonce goes on to another job, unless something was
/// signed at it before.
fn not_now(others: &[Attempt], refused: &Attempt, reason: String) -> WorkEvent {
    if !refused.action.is_cancellation() && is_first(others, refused) {
        WorkEvent::RefusedForNow { reason }
    } else {
        WorkEvent::Blocked { reason }
    }
}

/// Nothing is signed without approvals, so the nonce goes on to another job and this one waits for new ones. What was signed
/// before needs none.
fn expired(others: &[Attempt], refused: &Attempt, reason: &str) -> WorkEvent {
    let reason = format!("its approvals have expired and must be renewed: {reason}");
    if !refused.action.is_cancellation() && is_first(others, refused) {
        WorkEvent::ApprovalsExpired { reason }
    } else {
        WorkEvent::Blocked { reason }
    }
}

/// The signer knows a payment at this nonce that is not known here. If bytes of our own are stored for it, one of us is wrong.
fn spent(others: &[Attempt], refused: &Attempt, reason: String) -> WorkEvent {
    if is_first(others, refused) {
        WorkEvent::NonceSpent { reason }
    } else {
        WorkEvent::Inexplicable {
            reason: format!("bytes are stored for a nonce that is another payment's: {reason}"),
        }
    }
}

/// Whether nothing of this job was signed at the attempt's nonce.
fn is_first(others: &[Attempt], refused: &Attempt) -> bool {
    !others.iter().any(|other| other.nonce == refused.nonce && other.tx_hash.is_some())
}

/// A refused payment is given up; a refused cancellation leaves the nonce to another job, if nothing of this job was ever
/// signed at it.
fn refusal(others: &[Attempt], refused: &Attempt, reason: String) -> WorkEvent {
    if !refused.action.is_cancellation() {
        return if refused.has_window() {
            WorkEvent::RefusedUnsigned { reason }
        } else {
            WorkEvent::Refused { reason }
        };
    }
    let reason = format!("the signer refuses to close the nonce: {reason}");
    if is_first(others, refused) {
        WorkEvent::NonceUnusable { reason }
    } else {
        WorkEvent::Inexplicable { reason }
    }
}
