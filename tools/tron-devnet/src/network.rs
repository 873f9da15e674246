//! The network: nodes over one chain, its clock (the wall clock, or one that only admin calls move), block production with missed slots,
//! and forks above the solid block.
//!
//! Invariant: every transaction enters a block through `produce`, which executes it on the state of the parent, so that the oracle
//! counts what really moved on the branch that won.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use crate::chain::{Chain, Included};
use crate::crypto::Address;
use crate::journal::{Journal, JournalEntry};
use crate::ledger::execute::{ExecutionContext, execute};
use crate::ledger::{Prices, World};
use crate::node::{Node, Pooled};
use crate::order::Order;
use crate::wire::{SignedTx, TxId};

/// A node drops a transaction after this time in its pool; a producer may still mine it.
const POOL_TIMEOUT_MS: i64 = 60_000;
const MOST_PER_BLOCK: usize = 2_000;
/// The most slots whose blocks are produced late when the machine was slow.
const MOST_AT_ONCE: i64 = 100;

#[derive(Clone, Debug)]
pub struct Setup {
    pub nodes: usize,
    pub slot_ms: i64,
    pub solid_lag: u64,
    /// Blocks come only by admin calls, and so does time.
    pub manual: bool,
    /// The time of the first block. Without it, the head is at the present time.
    pub genesis_ms: Option<i64>,
    pub world: World,
}

#[derive(Debug)]
pub struct Network {
    pub chain: Chain,
    pub nodes: Vec<Node>,
    pub prices: Prices,
    /// What producers know of, in order of arrival.
    pub pool: Vec<Arc<SignedTx>>,
    /// False: blocks are produced, but none takes a transaction.
    pub include: bool,
    pub manual: bool,
    pub slot_ms: i64,
    clock_ms: i64,
    missing: u64,
    genesis_ms: i64,
    journal: Option<Journal>,
}

/// An order to replace the newest blocks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    pub depth: u64,
    /// Whether the winning branch takes the undone transactions at once (else they wait in the pool).
    #[serde(default)]
    pub include: bool,
    /// Undone transactions that nobody keeps.
    #[serde(default)]
    pub drop: Vec<String>,
    /// Nodes that stay on the losing branch.
    #[serde(default)]
    pub keep_on: Vec<usize>,
}

pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Network {
    pub fn new(setup: Setup) -> Self {
        let slot_ms = setup.slot_ms.max(1);
        // Enough blocks that a solid one other than genesis exists from the start.
        let first_blocks = i64::try_from(setup.solid_lag).unwrap_or(i64::MAX / 2).saturating_add(2);
        let genesis_ms = setup
            .genesis_ms
            .unwrap_or_else(|| wall_ms() / slot_ms * slot_ms - first_blocks.saturating_mul(slot_ms));
        let mut network = Self {
            chain: Chain::new(genesis_ms, slot_ms, setup.solid_lag, setup.world),
            nodes: (0..setup.nodes.max(1)).map(|_| Node::default()).collect(),
            prices: Prices::default(),
            pool: Vec::new(),
            include: true,
            manual: setup.manual,
            slot_ms,
            clock_ms: genesis_ms,
            missing: 0,
            genesis_ms,
            journal: None,
        };
        for _ in 0..first_blocks {
            network.produce_next();
        }
        network
    }

    /// The time that is written into new transactions.
    pub fn time_ms(&self) -> i64 {
        if self.manual { self.clock_ms } else { wall_ms() }
    }

    /// Lets slots pass without a block: at once in manual mode, otherwise the next ones.
    pub fn miss(&mut self, slots: u64) {
        if self.manual {
            let slots = i64::try_from(slots).unwrap_or(i64::MAX);
            self.clock_ms = self.clock_ms.saturating_add(slots.saturating_mul(self.slot_ms));
        } else {
            self.missing = self.missing.saturating_add(slots);
        }
    }

    /// Begins to write a journal.
    pub(crate) fn start_journal(&mut self, mut journal: Journal) -> anyhow::Result<()> {
        let (genesis_ms, slot_ms, solid_lag) = (self.genesis_ms, self.slot_ms, self.chain.solid_lag());
        journal.write(&JournalEntry::Genesis { genesis_ms, slot_ms, solid_lag })?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Continues after a restart; the slots in between were missed.
    pub(crate) fn resume(&mut self, journal: Journal) {
        self.journal = Some(journal);
        self.clock_ms = self.clock_ms.max(self.chain.head().timestamp_ms);
        if !self.manual {
            let slots = (wall_ms() - self.clock_ms).max(0) / self.slot_ms;
            self.clock_ms += slots * self.slot_ms;
        }
    }

    fn record(&mut self, entry: &JournalEntry) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.write(entry)
        {
            tracing::error!(%error, "the journal cannot be written");
        }
    }

    pub fn order(&mut self, order: Order) -> Result<serde_json::Value, String> {
        let answer = order.apply(self)?;
        self.record(&JournalEntry::Order(order));
        Ok(answer)
    }

    /// Produces what is due at `now_ms`. After a long pause of the machine most slots count as missed.
    pub fn tick(&mut self, now_ms: i64) {
        let due = (now_ms - self.clock_ms) / self.slot_ms - MOST_AT_ONCE;
        if !self.manual && due > 0 {
            self.clock_ms += due * self.slot_ms;
        }
        while !self.manual && self.clock_ms + self.slot_ms <= now_ms {
            if self.missing > 0 {
                self.missing -= 1;
                self.clock_ms += self.slot_ms;
            } else {
                self.produce_next();
            }
        }
    }

    /// Produces a block in the next slot.
    pub fn produce_next(&mut self) {
        self.clock_ms += self.slot_ms;
        self.produce(self.clock_ms);
    }

    fn produce(&mut self, timestamp_ms: i64) {
        self.build(timestamp_ms);
        if self.journal.is_some() {
            let block = Arc::clone(self.chain.head());
            let bytes = block.transactions.iter().map(|included| hex::encode(included.tx.bytes())).collect();
            self.record(&JournalEntry::Block(timestamp_ms, bytes));
        }
    }

    /// Builds a block again from its transactions.
    pub(crate) fn rebuild(&mut self, timestamp_ms: i64, offered: Vec<Arc<SignedTx>>) {
        self.pool = offered;
        self.build(timestamp_ms);
        self.clock_ms = self.clock_ms.max(timestamp_ms);
    }

    fn build(&mut self, timestamp_ms: i64) {
        let parent = Arc::clone(self.chain.head());
        let mut state = self.chain.state(&parent);
        let mut transactions = Vec::new();
        let mut taken = HashSet::new();
        if self.include {
            let offered = std::mem::take(&mut self.pool);
            for tx in offered {
                if transactions.len() == MOST_PER_BLOCK {
                    self.pool.push(tx);
                    continue;
                }
                // Against the parent's time, not the block's: after missed slots a transaction may sit in
                // a block that is later than its expiration.
                let alive = tx.raw.expiration > parent.timestamp_ms
                    && self.chain.height_of(&tx.id).is_none()
                    && !taken.contains(&tx.id)
                    && self.is_referenced(&tx);
                let moment = ExecutionContext { prices: &self.prices, now_ms: timestamp_ms };
                // What is no longer valid is dropped without an error, as on the real network.
                if alive && let Ok(outcome) = execute(Arc::make_mut(&mut state), &tx, moment) {
                    taken.insert(tx.id);
                    transactions.push(Included { tx, outcome });
                }
            }
        }
        self.chain.append(timestamp_ms, transactions, state);
        self.refresh_pools();
    }

    /// The check of the reference by producers, on the branch that won.
    fn is_referenced(&self, tx: &SignedTx) -> bool {
        Node::default().view(&self.chain).knows_reference(&tx.raw.ref_block_bytes, &tx.raw.ref_block_hash)
    }

    /// After a new head each node drops from its pool what is on its chain, what expired and what waited too long.
    fn refresh_pools(&mut self) {
        for node in &mut self.nodes {
            node.pending = None;
            if node.pool.is_empty() {
                continue;
            }
            let mut pool = std::mem::take(&mut node.pool);
            let view = node.view(&self.chain);
            let head_ms = view.head().timestamp_ms;
            pool.retain(|pooled| {
                !view.holds(&pooled.tx.id)
                    && pooled.tx.raw.expiration > head_ms
                    && head_ms - pooled.since_ms < POOL_TIMEOUT_MS
            });
            node.pool = pool;
        }
    }

    /// Replaces the newest blocks by a branch that is one block longer. Solid blocks cannot be replaced.
    pub fn fork(&mut self, order: &Fork) -> Result<(), String> {
        if order.depth == 0 {
            return Err("depth must be at least 1".to_owned());
        }
        let solid = self.chain.solid();
        let Some(undone) = self.chain.undo(order.depth) else {
            return Err(format!("block {solid} is solid: a fork of {} blocks would undo it", order.depth));
        };
        self.record(&JournalEntry::Undone(order.depth));
        let dropped = |id: &TxId| order.drop.iter().any(|text| *text == hex::encode(id));
        for node in &order.keep_on {
            if let Some(node) = self.nodes.get_mut(*node) {
                node.stay_on(undone.clone(), solid);
            }
        }
        let later = std::mem::take(&mut self.pool);
        let again = undone.iter().flat_map(|block| &block.transactions).map(|found| Arc::clone(&found.tx));
        self.pool = again.chain(later).filter(|tx| !dropped(&tx.id)).collect();
        for node in &mut self.nodes {
            node.pool.retain(|pooled| !dropped(&pooled.tx.id));
        }
        let include = std::mem::replace(&mut self.include, order.include);
        let mut timestamp_ms = self.chain.head().timestamp_ms;
        for _ in 0..=order.depth {
            timestamp_ms += self.slot_ms;
            self.produce(timestamp_ms);
        }
        self.include = include;
        self.clock_ms = self.clock_ms.max(timestamp_ms);
        self.return_to_pools();
        Ok(())
    }

    /// Nodes that follow the winning branch hold the undone transactions as pending again.
    fn return_to_pools(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| !node.is_on_losing_branch() && !node.isolated) {
            let view = node.view(&self.chain);
            let since_ms = view.head().timestamp_ms;
            let missing: Vec<Pooled> = self
                .pool
                .iter()
                .filter(|tx| !view.holds(&tx.id) && node.pooled(&tx.id).is_none())
                .map(|tx| Pooled { tx: Arc::clone(tx), since_ms })
                .collect();
            node.pool.extend(missing);
        }
    }

    /// Removes a transaction from the pool of one node, or from every pool including that of the producers.
    pub fn drop_pending(&mut self, id: &TxId, only: Option<usize>) {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if only.is_none_or(|only| only == number) {
                node.pool.retain(|pooled| pooled.tx.id != *id);
                node.pending = None;
            }
        }
        if only.is_none() {
            self.pool.retain(|tx| tx.id != *id);
        }
    }

    /// Makes the same change in every state.
    pub fn amend(&mut self, change: impl Fn(&mut World)) {
        self.chain.amend(change);
        for node in &mut self.nodes {
            node.pending = None;
        }
    }

    pub fn fund(&mut self, to: Address, sun: i64) {
        let now_ms = self.chain.head().timestamp_ms;
        self.amend(|world| world.credit(to, sun, now_ms));
    }
}
