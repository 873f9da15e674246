//! What the ledger remembers about the requests of one batch, loaded under the head's lock. Owns how a granted request
//! changes that memory, so that later requests of the same batch see it. No I/O.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use types::{Address, ChainName, JobId, RawAmount, TxHash};

use crate::builder::{Parameters, Unsigned};
use crate::guard::{Entry, PaymentKey, SlotOwner, Step};
use crate::keys::WalletKey;
use crate::policy::{Asker, Assessment};

use super::request::{SigningRequest, Texts};

pub(crate) const ALL_CHAINS: &str = "*";

/// A request that was parsed, built and assessed, and waits for its judgement.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) asker: Asker,
    pub(crate) request: SigningRequest,
    pub(crate) payment: PaymentKey,
    pub(crate) texts: Texts,
    pub(crate) assessment: Assessment,
    pub(crate) unsigned: Unsigned,
    pub(crate) key: WalletKey,
}

impl Prepared {
    /// The nonce it would use, with its wallet.
    pub(crate) fn nonce(&self) -> Option<NonceKey> {
        match &self.request.parameters {
            Parameters::Evm(evm) => Some((self.request.chain.clone(), self.request.from, evm.nonce)),
            Parameters::Tron(_) => None,
        }
    }
}

/// A signature given before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) canonical: String,
    pub(crate) from: Address,
    pub(crate) raw: Vec<u8>,
    pub(crate) tx_hash: TxHash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) entry: Entry,
    pub(crate) first_paid_at: Option<DateTime<Utc>>,
    pub(crate) signed: Vec<TxHash>,
}

/// A registered operation wallet, as far as a sweep to it is judged.
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
    pub(crate) records: HashMap<String, Arc<Record>>,
    pub(crate) payments: HashMap<PaymentKey, Remembered>,
    pub(crate) owners: HashMap<NonceKey, SlotOwner>,
    pub(crate) fences: HashMap<JobId, u64>,
    pub(crate) registered: HashMap<(ChainName, Address), Registered>,
    pub(crate) usage: HashMap<CounterKey, RawAmount>,
}

/// What a granted request adds to the memory and to the tables.
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

    /// The caller holds the job: older epochs are refused from now on.
    pub(crate) fn raise_fence(&mut self, job: JobId, epoch: u64) {
        let seen = self.fences.entry(job).or_insert(epoch);
        *seen = (*seen).max(epoch);
    }

    pub(crate) fn remember(&mut self, prepared: &Prepared, grant: &Grant, record: Arc<Record>) {
        let entry = grant.step.next.clone();
        if let Some(nonce) = prepared.nonce() {
            let owner = SlotOwner { payment: prepared.payment.clone(), generation: entry.generation };
            self.owners.entry(nonce).or_insert(owner);
        }
        for (counter, amount) in &grant.charges {
            let key = (prepared.request.chain.clone(), counter.clone());
            let used = self.usage.entry(key).or_insert(RawAmount::ZERO);
            *used = used.checked_add(*amount).unwrap_or(RawAmount::MAX);
        }
        let before = self.payments.remove(&prepared.payment);
        let same_slot = before.as_ref().is_some_and(|before| before.entry.generation == entry.generation);
        let mut signed = before.filter(|_| same_slot).map(|before| before.signed).unwrap_or_default();
        if !prepared.request.cancels() && !signed.contains(&record.tx_hash) {
            signed.push(record.tx_hash);
        }
        let remembered = Remembered { entry, first_paid_at: grant.first_paid_at, signed };
        self.payments.insert(prepared.payment.clone(), remembered);
        self.records.insert(prepared.request.idempotency_key.clone(), record);
    }
}
