//! Asking for signatures, checking what came back, and storing it. Only stored bytes are ever sent.
//!
//! Where it could hurt, and what holds:
//! - The reply is lost: the attempt stays reserved, and the same request is made again; the signer returns the same bytes.
//! - The signer answers with something else (another destination, another nonce): the bytes are decoded and compared field
//!   by field with the attempt; what differs is never stored or sent, and the job is parked.
//! - The lease ran out meanwhile: nothing is stored, whoever holds the job now asks for the same bytes.

use std::collections::HashMap;

use chain::{Binding, Plan};
use db::Lease;
use futures::StreamExt as _;
use tracing::Instrument as _;
use types::{AttemptId, TxHash};
use uuid::Uuid;

use super::WorkError;
use super::batch::{Bench, Ended, Work};
use crate::job::{Attempt, AttemptKind, Event, Job};
use crate::signer::{self, Signed};

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
        let answers = futures::stream::iter(work)
            .map(|work| async move {
                let outcome = self.sign_one(&work).await;
                (work, outcome)
            })
            .buffered(self.config.sign_concurrency.max(1))
            .collect::<Vec<_>>()
            .await;
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

    async fn sign_one(&self, work: &Work) -> Outcome {
        let (job, attempt) = (&work.item.job, &work.attempt);
        let inexplicable = |reason: String| Outcome::Ended(Event::Inexplicable { reason });
        let epoch = work.item.lease.token.unsigned_abs();
        let request = match signer::request(job, attempt, self.chain.settings.network_id, epoch) {
            Ok(request) => request,
            Err(incomplete) => return inexplicable(incomplete.to_string()),
        };
        let Some(plan) = plan_of(job, attempt) else {
            return inexplicable("the attempt does not say what to sign".to_owned());
        };
        // The signer's part belongs to the trace of the request that asked for this payment.
        let span = tracing::info_span!("execution.sign", job_id = %job.id, attempt = attempt.number);
        telemetry::propagation::attach(&job.trace, &span);
        match self.signer.sign(request).instrument(span).await {
            Signed::Bytes { raw, claimed_hash } => match self.chain.edge.check_signed(&raw, &plan) {
                Ok(hash) if claimed_hash == Some(hash) => Outcome::Bytes(raw, hash),
                Ok(hash) => inexplicable(format!("the signer names another hash than {hash}")),
                Err(error) => inexplicable(format!("the signer's bytes are not what was asked for: {error}")),
            },
            Signed::NotNow { reason } => Outcome::Ended(not_now(&work.item.attempts, attempt, reason)),
            Signed::Refused { reason } => Outcome::Ended(refusal(&work.item.attempts, attempt, reason)),
            Signed::Unknown { error } => {
                Outcome::Ended(Event::Blocked { reason: format!("not signed yet: {error}") })
            }
            Signed::Fenced => Outcome::Fenced,
        }
    }

    /// Stores bytes and hashes in one fenced transaction. What is not in the answer was not stored and is not sent.
    async fn persist(&self, signed: Vec<Work>) -> Result<Vec<Work>, WorkError> {
        if signed.is_empty() {
            return Ok(signed);
        }
        let leases: Vec<Lease> = signed.iter().map(|work| work.item.lease.clone()).collect();
        let mut tx = self.pool.begin().await?;
        let held = self.held_in(&mut tx, &leases).await?;
        let ours = || signed.iter().filter(|work| held.contains(&work.item.lease.job_id));
        let bytes = |work: &Work| work.attempt.raw.clone().unwrap_or_default();
        let hash =
            |work: &Work| work.attempt.tx_hash.map(|hash| hash.as_bytes().to_vec()).unwrap_or_default();
        let stored: Vec<Uuid> = sqlx::query_scalar(include_str!("../../queries/store_bytes.sql"))
            .bind(ours().map(|work| work.attempt.id.as_uuid()).collect::<Vec<_>>())
            .bind(ours().map(bytes).collect::<Vec<_>>())
            .bind(ours().map(hash).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
        tx.commit().await?;
        self.checkpoints.pass("execution.after_persist").await;
        let mut by_id: HashMap<AttemptId, Work> =
            signed.into_iter().map(|work| (work.attempt.id, work)).collect();
        Ok(stored.into_iter().filter_map(|id| by_id.remove(&AttemptId::from_uuid(id))).collect())
    }
}

/// The transaction an attempt stands for.
pub(super) fn plan_of(job: &Job, attempt: &Attempt) -> Option<Plan> {
    let action = match attempt.kind {
        AttemptKind::Pay => job.pay()?,
        AttemptKind::Cancel => job.cancel()?,
    };
    let binding = Binding::Nonce { sender: attempt.address, nonce: attempt.nonce? };
    Some(Plan { action, binding, price: attempt.fee?.price() })
}

/// A limit over time must not hold up the wallet's other payments: the nonce goes on to somebody else, unless something was
/// signed at it before.
fn not_now(others: &[Attempt], refused: &Attempt, reason: String) -> Event {
    let first = !others.iter().any(|other| other.nonce == refused.nonce && other.tx_hash.is_some());
    let pays = refused.kind == AttemptKind::Pay;
    if first && pays { Event::RefusedForNow { reason } } else { Event::Blocked { reason } }
}

/// A refused payment is given up; a refused cancellation leaves only the nonce to be handed on, if nothing of this job was
/// ever signed at it.
fn refusal(others: &[Attempt], refused: &Attempt, reason: String) -> Event {
    match refused.kind {
        AttemptKind::Pay => Event::Refused { reason },
        AttemptKind::Cancel => {
            let signed = others.iter().any(|other| other.nonce == refused.nonce && other.tx_hash.is_some());
            let reason = format!("the signer refuses to close the nonce: {reason}");
            if signed { Event::Inexplicable { reason } } else { Event::NonceUnusable { reason } }
        }
    }
}
