//! Asking for signatures, checking what came back, and storing it. Only stored bytes are ever sent.
//!
//! Where it could hurt, and what holds:
//! - The reply is lost: the attempt stays reserved, and the same request is made again; the signer returns the same bytes.
//! - The signer answers with something else (another destination, another nonce): the bytes are decoded and compared field
//!   by field with the attempt; what differs is never stored or sent, and the job is parked.
//! - The lease ran out meanwhile: nothing is stored, whoever holds the job now asks for the same bytes.
//! - Somebody sends what nobody watches: with the bytes goes the message that has them watched.

use std::collections::{HashMap, HashSet};

use chain::Plan;
use db::Lease;
use payment::{Binding, Price};
use proto::signer::v1::SignTransactionRequest;
use types::{AttemptId, TxHash};
use uuid::Uuid;

use super::WorkError;
use super::batch::{Bench, Ended, Work};
use crate::job::{Attempt, AttemptKind, Event, Job, Window, watch};
use crate::outbox::tell_in;
use crate::signer::{self, Signed};

/// The most that the signer takes in one call.
const MOST_AT_ONCE: usize = 256;

/// What one request led to.
enum Outcome {
    Bytes(Vec<u8>, TxHash),
    Ended(Event),
    /// Nothing may be done or written: the job is somebody else's.
    Fenced,
}

impl Bench {
    /// Has attempts signed and stores the bytes; what comes back may be sent.
    pub(super) async fn sign(&self, work: Vec<Work>) -> Result<(Vec<Work>, Vec<Ended>), WorkError> {
        let mut answers = Vec::with_capacity(work.len());
        let mut rest = work;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(self.config.sign_concurrency.clamp(1, MOST_AT_ONCE)));
            answers.extend(self.ask(rest).await);
            rest = later;
        }
        self.checkpoints.pass("execution.after_sign").await;
        let (mut signed, mut ended) = (Vec::new(), Vec::new());
        for (mut work, outcome) in answers {
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

    /// Asks for these signatures in one call.
    async fn ask(&self, work: Vec<Work>) -> Vec<(Work, Outcome)> {
        let (mut asked, mut outcomes, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for work in work {
            match self.request(&work) {
                Ok((request, plan)) => {
                    let (job, number) = (&work.item.job, work.attempt.number);
                    // The signer's part belongs to the trace of the request that asked for this payment.
                    let span = tracing::info_span!("execution.sign", job_id = %job.id, attempt = number);
                    telemetry::propagation::attach(&job.trace, &span);
                    requests.push((request, span));
                    asked.push((work, plan));
                }
                Err(reason) => outcomes.push((work, inexplicable(reason))),
            }
        }
        if asked.is_empty() {
            return outcomes;
        }
        let answers = self.signer.sign(requests).await;
        outcomes.extend(asked.into_iter().zip(answers).map(|((work, plan), answer)| {
            let outcome = self.judge(&work, &plan, answer);
            (work, outcome)
        }));
        outcomes
    }

    fn request(&self, work: &Work) -> Result<(SignTransactionRequest, Plan), String> {
        let (job, attempt) = (&work.item.job, &work.attempt);
        let epoch = work.item.lease.token.unsigned_abs();
        let request = signer::request(job, attempt, self.chain.settings.network_id, epoch)
            .map_err(|incomplete| incomplete.to_string())?;
        let plan = plan_of(job, attempt).ok_or("the attempt does not say what to sign")?;
        Ok((request, plan))
    }

    fn judge(&self, work: &Work, plan: &Plan, answer: Signed) -> Outcome {
        let attempt = &work.attempt;
        match answer {
            Signed::Bytes { raw, claimed_hash } => match self.chain.edge.check_signed(&raw, plan) {
                Ok(hash) if claimed_hash == Some(hash) => Outcome::Bytes(raw, hash),
                Ok(hash) => inexplicable(format!("the signer names another hash than {hash}")),
                Err(error) => inexplicable(format!("the signer's bytes are not what was asked for: {error}")),
            },
            Signed::NotNow { reason } => Outcome::Ended(not_now(&work.item.attempts, attempt, reason)),
            Signed::ApprovalsExpired { reason } => {
                Outcome::Ended(expired(&work.item.attempts, attempt, &reason))
            }
            Signed::NonceSpent { reason } => Outcome::Ended(spent(&work.item.attempts, attempt, reason)),
            Signed::Refused { reason } => Outcome::Ended(refusal(&work.item.attempts, attempt, reason)),
            // The signer knows of bytes for this payment that are not known here, and they may pay.
            Signed::Guarded { reason } if attempt.window.is_some() => inexplicable(reason),
            Signed::Guarded { reason } => Outcome::Ended(refusal(&work.item.attempts, attempt, reason)),
            Signed::Unknown { error } => {
                Outcome::Ended(Event::Blocked { reason: format!("not signed yet: {error}") })
            }
            Signed::Fenced => Outcome::Fenced,
        }
    }

    /// Stores bytes and hashes, and has them watched, in one fenced transaction. What is not in the answer was not stored and is
    /// not sent.
    async fn persist(&self, signed: Vec<Work>) -> Result<Vec<Work>, WorkError> {
        if signed.is_empty() {
            return Ok(signed);
        }
        let leases: Vec<Lease> = signed.iter().map(|work| work.item.lease.clone()).collect();
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, &leases).await?;
        let ours = || signed.iter().filter(|work| held.contains(&work.item.lease.job_id));
        let bytes = |work: &Work| work.attempt.raw.clone().unwrap_or_default();
        let hash =
            |work: &Work| work.attempt.tx_hash.map(|hash| hash.as_bytes().to_vec()).unwrap_or_default();
        let stored: Vec<(Uuid, Option<String>)> =
            sqlx::query_as(include_str!("../../queries/store_bytes.sql"))
                .bind(ours().map(|work| work.attempt.id.as_uuid()).collect::<Vec<_>>())
                .bind(ours().map(bytes).collect::<Vec<_>>())
                .bind(ours().map(hash).collect::<Vec<_>>())
                .fetch_all(&mut *tx)
                .await?;
        let kept: HashSet<Uuid> = stored.iter().map(|(id, _)| *id).collect();
        let (first, further): (Vec<&Work>, Vec<&Work>) = ours()
            .filter(|work| kept.contains(&work.attempt.id.as_uuid()))
            .partition(|work| work.item.attempts.is_empty());
        let further: Vec<(&Job, Option<u64>)> =
            further.into_iter().map(|work| (&work.item.job, work.attempt.nonce)).collect();
        let mut told = watch::watches_in(&mut tx, &further).await?;
        told.extend(first.into_iter().filter_map(|work| watch::first_watch(&work.item.job, &work.attempt)));
        tell_in(&mut tx, &told).await.map_err(crate::job::JobError::from)?;
        tx.commit().await?;
        self.checkpoints.pass("execution.after_persist").await;
        let mut by_id: HashMap<AttemptId, Work> =
            signed.into_iter().map(|work| (work.attempt.id, work)).collect();
        let stored = stored.into_iter().filter_map(|(id, given_up)| {
            let mut work = by_id.remove(&AttemptId::from_uuid(id))?;
            work.item.job.cancel_reason = given_up;
            Some(work)
        });
        Ok(stored.collect())
    }
}

fn inexplicable(reason: String) -> Outcome {
    Outcome::Ended(Event::Inexplicable { reason })
}

/// The transaction an attempt stands for.
pub(super) fn plan_of(job: &Job, attempt: &Attempt) -> Option<Plan> {
    let action = match attempt.kind {
        AttemptKind::Pay => job.pay()?,
        AttemptKind::Cancel => job.cancel()?,
    };
    let (sender, fee) = (attempt.address, attempt.fee?);
    let (binding, price) = match attempt.window {
        None => (Binding::Nonce { sender, nonce: attempt.nonce? }, fee.price()),
        Some(Window { reference, expiration_ms, made_ms }) => (
            Binding::Window {
                sender,
                window: payment::Window {
                    reference: chain::block_reference(&reference.hash),
                    expiration_ms,
                    made_ms,
                },
            },
            Price::FeeLimit { sun: fee.gas_limit },
        ),
    };
    Some(Plan { action, binding, price })
}

/// A limit over time must not hold up the wallet's other payments: the nonce goes on to somebody else, unless something was
/// signed at it before.
fn not_now(others: &[Attempt], refused: &Attempt, reason: String) -> Event {
    let pays = refused.kind == AttemptKind::Pay;
    if pays && is_first(others, refused) {
        Event::RefusedForNow { reason }
    } else {
        Event::Blocked { reason }
    }
}

/// Nothing is signed without approvals, so the nonce goes on to somebody else and the job waits for new ones. What was signed
/// before needs none.
fn expired(others: &[Attempt], refused: &Attempt, reason: &str) -> Event {
    let reason = format!("its approvals have expired and must be renewed: {reason}");
    let pays = refused.kind == AttemptKind::Pay;
    if pays && is_first(others, refused) {
        Event::ApprovalsExpired { reason }
    } else {
        Event::Blocked { reason }
    }
}

/// The signer knows a payment at this nonce that is not known here. If we know of bytes of our own at it, one of us is wrong.
fn spent(others: &[Attempt], refused: &Attempt, reason: String) -> Event {
    if is_first(others, refused) {
        Event::NonceSpent { reason }
    } else {
        Event::Inexplicable {
            reason: format!("bytes are stored for a nonce that is another payment's: {reason}"),
        }
    }
}

/// Whether nothing of this job was signed at the attempt's nonce.
fn is_first(others: &[Attempt], refused: &Attempt) -> bool {
    !others.iter().any(|other| other.nonce == refused.nonce && other.tx_hash.is_some())
}

/// A refused payment is given up; a refused cancellation leaves only the nonce to be handed on, if nothing of this job was
/// ever signed at it.
fn refusal(others: &[Attempt], refused: &Attempt, reason: String) -> Event {
    match refused.kind {
        AttemptKind::Pay if refused.window.is_some() => Event::RefusedUnsigned { reason },
        AttemptKind::Pay => Event::Refused { reason },
        AttemptKind::Cancel => {
            let reason = format!("the signer refuses to close the nonce: {reason}");
            if is_first(others, refused) {
                Event::NonceUnusable { reason }
            } else {
                Event::Inexplicable { reason }
            }
        }
    }
}
