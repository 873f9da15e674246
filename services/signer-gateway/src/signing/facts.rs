//! What the database holds about the requests of one batch. Owns how a granted request changes that, so that later requests of
//! the same batch are judged as if they had been loaded after it was written. No I/O.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use payment::Binding;
use types::{Address, ChainName, JobId, RawAmount, TxHash};

use super::request::{RequestTexts, SigningRequest};
use crate::builder::Unsigned;
use crate::freeze::ALL_CHAINS;
use crate::guard::{GuardedPayment, PaymentKey, SlotOwner, Step};
use crate::keys::WalletKey;
use crate::policy::{Assessment, SigningCaller};

/// A request that was parsed, built and assessed, and waits for its judgement.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) caller: SigningCaller,
    pub(crate) request: SigningRequest,
    pub(crate) payment: PaymentKey,
    pub(crate) texts: RequestTexts,
    pub(crate) assessment: Assessment,
    pub(crate) unsigned: Unsigned,
    pub(crate) key: WalletKey,
}

impl PreparedRequest {
    /// The nonce it would use, with its wallet.
    pub(crate) fn nonce(&self) -> Option<NonceKey> {
        match self.request.parameters.binding {
            Binding::Nonce { nonce, .. } => Some((self.request.chain.clone(), self.request.from(), nonce)),
            Binding::Window { .. } => None,
        }
    }
}

/// A signature given before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SigningRecord {
    pub(crate) canonical: String,
    pub(crate) from: Address,
    pub(crate) raw: Vec<u8>,
    pub(crate) tx_hash: TxHash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownPayment {
    pub(crate) guarded: GuardedPayment,
    pub(crate) first_paid_at: Option<DateTime<Utc>>,
    pub(crate) signed: Vec<TxHash>,
}

/// How the destination of a sweep is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registered {
    ColdStorage,
    Group,
}

pub(crate) type NonceKey = (ChainName, Address, u64);
pub(crate) type CounterKey = (ChainName, String);

/// The memory of one batch.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) now: DateTime<Utc>,
    pub(crate) frozen: HashSet<String>,
    pub(crate) records: HashMap<String, Arc<SigningRecord>>,
    pub(crate) payments: HashMap<PaymentKey, KnownPayment>,
    pub(crate) owners: HashMap<NonceKey, SlotOwner>,
    pub(crate) fences: HashMap<JobId, u64>,
    pub(crate) registered: HashMap<(ChainName, Address), Registered>,
    pub(crate) usage: HashMap<CounterKey, RawAmount>,
}

/// What a granted request adds to the facts and to the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) step: Step,
    pub(crate) first_paid_at: Option<DateTime<Utc>>,
    /// Amounts to count, by counter.
    pub(crate) charges: Vec<(String, RawAmount)>,
}

impl Facts {
    pub(crate) fn at(now: DateTime<Utc>) -> Self {
        Self {
            now,
            frozen: HashSet::new(),
            records: HashMap::new(),
            payments: HashMap::new(),
            owners: HashMap::new(),
            fences: HashMap::new(),
            registered: HashMap::new(),
            usage: HashMap::new(),
        }
    }

    pub(crate) fn is_frozen(&self, chain: &ChainName) -> bool {
        self.frozen.contains(ALL_CHAINS) || self.frozen.contains(chain.as_str())
    }

    /// Older epochs of the job are refused from now on.
    pub(crate) fn raise_fence(&mut self, job: JobId, epoch: u64) {
        let seen = self.fences.entry(job).or_insert(epoch);
        *seen = (*seen).max(epoch);
    }

    pub(crate) fn remember(&mut self, prepared: &PreparedRequest, grant: &Grant, record: Arc<SigningRecord>) {
        let guarded = grant.step.next.clone();
        if let Some(nonce) = prepared.nonce() {
            let owner = SlotOwner { payment: prepared.payment.clone(), generation: guarded.generation };
            self.owners.entry(nonce).or_insert(owner);
        }
        for (counter, amount) in &grant.charges {
            let key = (prepared.request.chain.clone(), counter.clone());
            let used = self.usage.entry(key).or_insert(RawAmount::ZERO);
            *used = used.checked_add(*amount).unwrap_or(RawAmount::MAX);
        }
        let before = self.payments.remove(&prepared.payment);
        let same_slot = before.as_ref().is_some_and(|before| before.guarded.generation == guarded.generation);
        let mut signed = before.filter(|_| same_slot).map(|before| before.signed).unwrap_or_default();
        if !prepared.request.cancels() && !signed.contains(&record.tx_hash) {
            signed.push(record.tx_hash);
        }
        let known = KnownPayment { guarded, first_paid_at: grant.first_paid_at, signed };
        self.payments.insert(prepared.payment.clone(), known);
        self.records.insert(prepared.request.idempotency_key.clone(), record);
    }
}
