//! Blocks, their ids and parent links, and the state after each.
//!
//! This is the branch that won. The solid height never falls, and no solid block is undone. The network decides which transactions
//! enter a block.
//!
//! Invariant: block `n` is at index `n`, names the id of block `n - 1`, and `index` holds exactly the
//! transactions of these blocks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prost::Message;

use crate::crypto::{Address, Producer, sha256};
use crate::ledger::World;
use crate::ledger::execute::Outcome;
use crate::wire::{BlockHeaderRaw, BlockId, SignedTx, TransactionResult, TxId, block_id};

/// Producers of one round; with 19 of them a block is solid on mainnet.
pub const PRODUCERS: u8 = 27;
const BLOCK_VERSION: i32 = 34;
/// States further below the solid block are dropped, because each is a whole copy. A node that lags further shows the oldest one.
const KEPT_STATES: u64 = 64;

#[derive(Debug)]
pub struct Included {
    pub tx: Arc<SignedTx>,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub struct Block {
    pub id: BlockId,
    pub number: u64,
    pub timestamp_ms: i64,
    pub parent: BlockId,
    pub tx_root: [u8; 32],
    pub witness: Address,
    pub witness_signature: Vec<u8>,
    pub version: i32,
    pub transactions: Vec<Included>,
}

#[derive(Debug)]
pub struct Chain {
    blocks: Vec<Arc<Block>>,
    states: BTreeMap<(u64, BlockId), Arc<World>>,
    index: HashMap<TxId, u64>,
    producers: Vec<Producer>,
    solid: u64,
    solid_lag: u64,
    slot_ms: i64,
    /// Shifts the turn of the producers, so that the blocks of a fork differ from those that they replace.
    turn: u64,
}

impl Chain {
    pub fn new(genesis_ms: i64, slot_ms: i64, solid_lag: u64, world: World) -> Self {
        let mut chain = Self {
            blocks: Vec::new(),
            states: BTreeMap::new(),
            index: HashMap::new(),
            producers: (0..PRODUCERS).map(Producer::numbered).collect(),
            solid: 0,
            solid_lag,
            slot_ms,
            turn: 0,
        };
        chain.append(genesis_ms, Vec::new(), Arc::new(world));
        chain
    }

    pub fn head(&self) -> &Arc<Block> {
        self.blocks.last().expect("the genesis block is appended by new and never undone")
    }

    pub fn solid(&self) -> u64 {
        self.solid
    }

    pub fn solid_lag(&self) -> u64 {
        self.solid_lag
    }

    pub fn block(&self, number: u64) -> Option<&Arc<Block>> {
        self.blocks.get(usize::try_from(number).ok()?)
    }

    pub fn blocks(&self) -> &[Arc<Block>] {
        &self.blocks
    }

    pub fn producers(&self) -> &[Producer] {
        &self.producers
    }

    pub fn height_of(&self, id: &TxId) -> Option<u64> {
        self.index.get(id).copied()
    }

    /// The state after a block, or the oldest state for blocks that are older than that.
    pub fn state(&self, block: &Block) -> Arc<World> {
        let exact = self.states.get(&(block.number, block.id));
        let oldest = || self.states.values().next();
        exact.or_else(oldest).cloned().unwrap_or_default()
    }

    /// Makes the same change in every state, so that no fork undoes it.
    pub fn amend(&mut self, change: impl Fn(&mut World)) {
        let mut last: Option<(Arc<World>, Arc<World>)> = None;
        for state in self.states.values_mut() {
            // Empty blocks share one state; copying it once per block would waste memory.
            if let Some((old, new)) = &last
                && Arc::ptr_eq(old, state)
            {
                *state = Arc::clone(new);
                continue;
            }
            let mut world = (**state).clone();
            change(&mut world);
            let new = Arc::new(world);
            last = Some((std::mem::replace(state, Arc::clone(&new)), new));
        }
    }

    /// Appends the next block.
    pub fn append(&mut self, timestamp_ms: i64, transactions: Vec<Included>, state: Arc<World>) {
        let (number, parent) = match self.blocks.last() {
            Some(head) => (head.number + 1, head.id),
            None => (0, [0; 32]),
        };
        let slot = timestamp_ms.max(0).unsigned_abs() / self.slot_ms.max(1).unsigned_abs();
        let turn = (slot + self.turn) % u64::from(PRODUCERS);
        let producer = &self.producers[usize::try_from(turn).unwrap_or_default()];
        let tx_root = merkle_root(&transactions);
        let header = BlockHeaderRaw {
            timestamp: timestamp_ms,
            tx_trie_root: tx_root.to_vec(),
            parent_hash: parent.to_vec(),
            number: i64::try_from(number).unwrap_or(i64::MAX),
            witness_id: 0,
            witness_address: producer.address.as_bytes().to_vec(),
            version: BLOCK_VERSION,
        };
        let bytes = header.encode_to_vec();
        let block = Block {
            id: block_id(header.number, &bytes),
            number,
            timestamp_ms,
            parent,
            tx_root,
            witness: producer.address,
            witness_signature: producer.sign(sha256(&bytes)),
            version: BLOCK_VERSION,
            transactions,
        };
        for included in &block.transactions {
            self.index.insert(included.tx.id, number);
        }
        self.states.insert((number, block.id), state);
        self.blocks.push(Arc::new(block));
        self.solid = self.solid.max(number.saturating_sub(self.solid_lag));
        let oldest = number.saturating_sub(self.solid_lag.saturating_add(KEPT_STATES));
        self.states = self.states.split_off(&(oldest, [0; 32]));
    }

    /// Undoes the newest `depth` blocks. `None` if a solid one is among them.
    pub fn undo(&mut self, depth: u64) -> Option<Vec<Arc<Block>>> {
        let height = self.head().number.checked_sub(depth).filter(|left| *left >= self.solid)?;
        let undone = self.blocks.split_off(usize::try_from(height + 1).ok()?);
        for included in undone.iter().flat_map(|block| &block.transactions) {
            self.index.remove(&included.tx.id);
        }
        self.turn += 1;
        Some(undone)
    }
}

/// Pairs are hashed together, and an odd one moves up unchanged. The root of no transactions is zeros.
fn merkle_root(transactions: &[Included]) -> [u8; 32] {
    let mut level: Vec<[u8; 32]> = transactions
        .iter()
        .map(|included| {
            let contract_ret = included.outcome.ending as i32;
            let ret = TransactionResult { contract_ret, ..TransactionResult::default() };
            sha256(&included.tx.with_results(vec![ret]))
        })
        .collect();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => sha256(&[left.as_slice(), right].concat()),
                odd => odd[0],
            })
            .collect();
    }
    level.first().copied().unwrap_or_default()
}
