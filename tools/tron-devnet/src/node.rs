//! One node: its view of the chain, its pool and its settings.
//!
//! The view never goes back by itself: a node that begins to lag stays where it is until the chain is far enough ahead.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::chain::{Block, Chain, Included};
use crate::fault::Faults;
use crate::ledger::World;
use crate::wire::{SignedTx, TxId};

/// What an operator sets on a node; absent fields of a change stay as they are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeChange {
    pub node: usize,
    /// Blocks behind the network.
    pub lag: Option<u64>,
    /// A lite node: history calls answer with plain text.
    pub lite: Option<bool>,
    /// Blocks deeper than this below the head are not found; 0 keeps all.
    pub history_blocks: Option<u64>,
    pub busy: Option<bool>,
    pub connected: Option<bool>,
    /// Neither relays nor receives transactions.
    pub isolated: Option<bool>,
    pub estimate_energy: Option<bool>,
    /// Answers DUP for what a client sent within the hour, even if it was refused or dropped.
    pub seen_cache: Option<bool>,
    /// False: leaves the losing branch that a fork left it on.
    pub branch: Option<bool>,
}

#[derive(Debug)]
pub struct Pooled {
    pub tx: Arc<SignedTx>,
    pub since_ms: i64,
}

/// The end of a losing branch that a node still follows.
#[derive(Debug)]
struct Branch {
    blocks: Vec<Arc<Block>>,
    solid: u64,
}

#[derive(Debug, Default)]
pub struct Node {
    pub lag: u64,
    pub lite: bool,
    pub history_blocks: u64,
    pub busy: bool,
    pub disconnected: bool,
    pub isolated: bool,
    pub estimate_energy: bool,
    pub seen_cache: bool,
    pub pool: Vec<Pooled>,
    pub seen: HashMap<TxId, i64>,
    pub faults: Faults,
    /// The head's state with the pool applied; rebuilt after the head or the pool changed.
    pub pending: Option<World>,
    floor: u64,
    branch: Option<Branch>,
}

impl Node {
    pub fn change(&mut self, change: &NodeChange, chain: &Chain) {
        if let Some(lag) = change.lag {
            self.floor = self.view(chain).head().number;
            self.lag = lag;
        }
        if change.branch == Some(false) {
            self.branch = None;
        }
        set(&mut self.lite, change.lite);
        set(&mut self.history_blocks, change.history_blocks);
        set(&mut self.busy, change.busy);
        set(&mut self.disconnected, change.connected.map(|connected| !connected));
        set(&mut self.isolated, change.isolated);
        set(&mut self.estimate_energy, change.estimate_energy);
        set(&mut self.seen_cache, change.seen_cache);
        self.pending = None;
    }

    /// Stays on blocks that the network has undone.
    pub fn stay_on(&mut self, blocks: Vec<Arc<Block>>, solid: u64) {
        if !blocks.is_empty() {
            self.branch = Some(Branch { blocks, solid });
        }
    }

    pub fn is_on_losing_branch(&self) -> bool {
        self.branch.is_some()
    }

    pub fn view<'a>(&'a self, chain: &'a Chain) -> View<'a> {
        View { node: self, chain }
    }

    pub fn pooled(&self, id: &TxId) -> Option<&Pooled> {
        self.pool.iter().find(|pooled| pooled.tx.id == *id)
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// The chain as one node sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    node: &'a Node,
    chain: &'a Chain,
}

impl<'a> View<'a> {
    pub fn head(&self) -> &'a Arc<Block> {
        if let Some(block) = self.node.branch.as_ref().and_then(|branch| branch.blocks.last()) {
            return block;
        }
        let newest = self.chain.head();
        let height = newest.number.saturating_sub(self.node.lag).max(self.node.floor);
        self.chain.block(height).unwrap_or(newest)
    }

    pub fn solid(&self) -> &'a Arc<Block> {
        let number = match &self.node.branch {
            Some(branch) => branch.solid,
            None => self.head().number.saturating_sub(self.chain.solid_lag()).min(self.chain.solid()),
        };
        // A lagging node may be behind the solid height of the network by more than the lag of solidity.
        self.chain.block(number).unwrap_or_else(|| self.head())
    }

    /// The newest block of the view or of its solid part.
    pub fn newest(&self, solid: bool) -> &'a Arc<Block> {
        if solid { self.solid() } else { self.head() }
    }

    /// Includes blocks that the node does not show because its history is limited.
    pub fn any_block(&self, number: u64) -> Option<&'a Arc<Block>> {
        if number > self.head().number {
            return None;
        }
        let off = self
            .node
            .branch
            .as_ref()
            .and_then(|branch| branch.blocks.iter().find(|block| block.number == number));
        off.or_else(|| self.chain.block(number))
    }

    pub fn block(&self, number: u64, solid: bool) -> Option<&'a Arc<Block>> {
        let newest = self.newest(solid).number;
        let kept = self.node.history_blocks;
        // The first block says which network this is; a node never forgets it.
        let forgotten = kept != 0 && number != 0 && number + kept < self.head().number;
        if number > newest || forgotten { None } else { self.any_block(number) }
    }

    pub fn block_by_id(&self, id: &[u8], solid: bool) -> Option<&'a Arc<Block>> {
        let number = u64::from_be_bytes(*id.first_chunk::<8>()?);
        self.block(number, solid).filter(|block| block.id == id)
    }

    /// The block of a transaction, if this node still shows it.
    pub fn find(&self, id: &TxId, solid: bool) -> Option<(&'a Arc<Block>, &'a Included)> {
        let (number, _) = self.locate(id)?;
        let block = self.block(number, solid)?;
        block.transactions.iter().find(|included| included.tx.id == *id).map(|found| (block, found))
    }

    /// Whether the chain of this node holds a transaction.
    pub fn holds(&self, id: &TxId) -> bool {
        self.locate(id).is_some()
    }

    fn locate(&self, id: &TxId) -> Option<(u64, &'a Included)> {
        let in_block =
            |block: &'a Arc<Block>| block.transactions.iter().find(|included| included.tx.id == *id);
        let on_branch = self.node.branch.iter().flat_map(|branch| &branch.blocks);
        if let Some(found) = on_branch.filter_map(|block| Some((block.number, in_block(block)?))).next() {
            return Some(found);
        }
        let number = self.chain.height_of(id)?;
        Some((number, in_block(self.any_block(number)?)?))
    }

    pub fn state(&self, solid: bool) -> Arc<World> {
        self.chain.state(self.newest(solid))
    }

    /// Whether the reference of a transaction names a block of this chain within the window.
    pub fn knows_reference(&self, bytes: &[u8], hash: &[u8]) -> bool {
        let Ok(low) = <[u8; 2]>::try_from(bytes) else { return false };
        let low = u64::from(u16::from_be_bytes(low));
        let head = self.head().number;
        let candidate = (head & !0xffff) | low;
        let number = if candidate <= head { Some(candidate) } else { candidate.checked_sub(0x1_0000) };
        number.and_then(|number| self.any_block(number)).is_some_and(|block| block.id[8..16] == *hash)
    }
}
