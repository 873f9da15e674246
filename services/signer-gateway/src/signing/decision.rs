//! Decides the requests of a batch one after another. Each is decided by the same function as a single request, against facts to
//! which the requests before it were added, so that it is judged as if they had been written. Signs what is granted. No I/O.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use types::RawAmount;

use super::SigningError;
use super::app::SignedTransaction;
use super::detail::{self, quoted};
use super::facts::{Facts, Grant, PreparedRequest, SigningRecord};
use super::judge::{Ruling, judge};
use super::ledger::SigningResult;
use super::repo::{BatchWrites, NewRecord, NewSlot};
use crate::audit::{AuditEntry, Decision, Draft, Head};
use crate::guard::{Slot, StepKind};

/// What a batch has decided so far: its changes to the facts, the rows to write and the log entries to append.
pub(super) struct BatchDecision {
    facts: Facts,
    pub(super) head: Head,
    pub(super) writes: BatchWrites,
    pub(super) entries: Vec<AuditEntry>,
}

impl BatchDecision {
    pub(super) fn new(facts: Facts, head: Head, requests: usize) -> Self {
        Self { facts, head, writes: BatchWrites::default(), entries: Vec::with_capacity(requests) }
    }

    /// Decides one request against the facts, and adds its outcome to them.
    pub(super) fn decide(&mut self, prepared: &PreparedRequest) -> SigningResult {
        match judge(&self.facts, prepared).ruling {
            Ruling::Refuse(refusal) => {
                let detail = format!(",\"explanation\":{}", quoted(&refusal.detail));
                self.note(prepared, Decision::Refused, refusal.reason, &detail);
                Err(SigningError::Refused(refusal))
            }
            Ruling::Replay(record) => {
                self.raise_fence(prepared);
                let detail = format!(",\"tx_hash\":\"{}\"", record.tx_hash);
                self.note(prepared, Decision::Allowed, "idempotency.replayed", &detail);
                Ok(SignedTransaction::of(&record, true))
            }
            Ruling::Sign(grant) => self.sign(prepared, &grant),
        }
    }

    fn sign(&mut self, prepared: &PreparedRequest, grant: &Grant) -> SigningResult {
        let signed = prepared.unsigned.sign(&prepared.key)?;
        let record = Arc::new(SigningRecord {
            canonical: prepared.texts.canonical.clone(),
            from: prepared.request.from(),
            raw: signed.raw,
            tx_hash: signed.tx_hash,
        });
        let raw_sha256 = hex::encode(Sha256::digest(&record.raw));
        let approvers: Vec<String> = prepared
            .assessment
            .quorum
            .iter()
            .flat_map(|quorum| quorum.approvals.iter().map(|approval| quoted(&approval.approver)))
            .collect();
        let detail = format!(
            ",\"tx_hash\":\"{}\",\"raw_sha256\":\"{raw_sha256}\",\"approvers\":[{}]{}",
            record.tx_hash,
            approvers.join(","),
            prepared.request.void.as_ref().map(detail::attestation).unwrap_or_default()
        );
        let sequence = self.note(prepared, Decision::Allowed, grant.step.kind.into_str(), &detail);
        self.raise_fence(prepared);
        self.collect(prepared, grant, &record, sequence);
        self.facts.remember(prepared, grant, Arc::clone(&record));
        let same = grant.step.kind == StepKind::Same;
        Ok(SignedTransaction::of(&record, same))
    }

    fn collect(
        &mut self,
        prepared: &PreparedRequest,
        grant: &Grant,
        record: &Arc<SigningRecord>,
        audit_sequence: u64,
    ) {
        let next = &grant.step.next;
        let chain = &prepared.request.chain;
        self.writes.records.push(NewRecord {
            key: prepared.request.idempotency_key.clone(),
            payment: prepared.payment.clone(),
            generation: next.generation,
            pays: !prepared.request.cancels(),
            from: prepared.texts.from.clone(),
            record: Arc::clone(record),
            audit_sequence,
        });
        if let (Slot::Nonce(nonce), true) = (next.slot, self.is_new_slot(prepared)) {
            self.writes.slots.push(NewSlot {
                chain: chain.clone(),
                wallet: prepared.texts.from.clone(),
                nonce,
                payment: prepared.payment.clone(),
                generation: next.generation,
            });
        }
        for (counter, amount) in &grant.charges {
            let key = (chain.clone(), counter.clone());
            let used = self.writes.usage.entry(key).or_insert(RawAmount::ZERO);
            *used = used.checked_add(*amount).unwrap_or(RawAmount::MAX);
        }
        self.writes.payments.insert(prepared.payment.clone(), (next.clone(), grant.first_paid_at));
    }

    /// A nonce nobody has used yet; the table's key says the same.
    fn is_new_slot(&self, prepared: &PreparedRequest) -> bool {
        prepared.nonce().is_some_and(|nonce| !self.facts.owners.contains_key(&nonce))
    }

    fn raise_fence(&mut self, prepared: &PreparedRequest) {
        let (job, epoch) = (prepared.request.job, prepared.request.lease_epoch);
        // Unchanged fences are not written again.
        if self.facts.fences.get(&job) != Some(&epoch) {
            self.facts.raise_fence(job, epoch);
            self.writes.fences.insert(job, epoch);
        }
    }

    /// Appends an audit entry. `more` continues the JSON object that every signing decision has.
    fn note(&mut self, prepared: &PreparedRequest, decision: Decision, reason: &str, more: &str) -> u64 {
        let detail = detail::of(&prepared.request, &prepared.texts.canonical, more);
        let caller = prepared.caller.name().to_owned();
        let draft = Draft { caller, action: "sign", decision, reason: reason.to_owned(), detail };
        let entry = self.head.append(self.facts.now, draft);
        let sequence = entry.sequence;
        self.entries.push(entry);
        sequence
    }
}
