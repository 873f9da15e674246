//! The recent heads of one chain, linked by parent hash, and what a reorg undid.
//!
//! Pure: blocks are fed in, answers come out. Reading blocks from nodes is `follow`'s work.
//!
//! Invariants: stored heads are contiguous in number and each one's parent is the one before it; a block that was
//! reported as appended and is no longer canonical is reported as undone exactly once; and the ring never holds more
//! than its capacity. A fork below everything remembered is `Lost`, never guessed at.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use types::TxHash;

/// A block as far as its place in the chain goes. Hashes of blocks have the shape of transaction hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    pub number: u64,
    pub hash: TxHash,
    pub parent: TxHash,
    /// The block's own time, in milliseconds since 1970. Never this machine's clock.
    pub timestamp_ms: u64,
}

/// Blocks that are no longer canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reorg {
    /// The last block both branches share.
    pub fork: Head,
    /// What was undone, newest first.
    pub undone: Vec<Head>,
}

/// What feeding a block did, or what has to be read first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fed {
    /// It is the new tip.
    Appended,
    /// It is already in the ring.
    Known,
    /// It is the new tip in place of others.
    Replaced(Reorg),
    /// Blocks between the tip and it are missing; feed them first, from this number upwards.
    Ahead { read_from: u64 },
    /// Its parent is not the block remembered at that height; feed the canonical block of this number first.
    Orphan { read: u64 },
    /// It differs from, or lies below, everything remembered. The reorg is deeper than the ring: halt and alert.
    Lost { lowest: Head },
}

/// Recent heads, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadRing {
    capacity: usize,
    heads: VecDeque<Head>,
}

impl HeadRing {
    /// `capacity` must exceed the depth at which a verdict is given; otherwise a reorg that matters is `Lost`.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2);
        Self { capacity, heads: VecDeque::with_capacity(capacity) }
    }

    /// Restores a ring from heads stored oldest first. Whatever does not link to the newest is left out, so that a
    /// damaged store shortens the memory instead of corrupting it.
    pub fn restore(capacity: usize, stored: impl IntoIterator<Item = Head>) -> Self {
        let mut ring = Self::new(capacity);
        for head in stored {
            if !ring.heads.is_empty() && !ring.extends(&head) {
                ring.heads.clear();
            }
            ring.push(head);
        }
        ring
    }

    pub fn tip(&self) -> Option<&Head> {
        self.heads.back()
    }

    pub fn lowest(&self) -> Option<&Head> {
        self.heads.front()
    }

    pub fn get(&self, number: u64) -> Option<&Head> {
        let first = self.heads.front()?.number;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        self.heads.get(index)
    }

    /// Whether this very block is remembered as canonical. `None` when that height is not remembered at all.
    pub fn is_canonical(&self, number: u64, hash: &TxHash) -> Option<bool> {
        self.get(number).map(|head| head.hash == *hash)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Head> {
        self.heads.iter()
    }

    pub fn len(&self) -> usize {
        self.heads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Feeds a block that a node calls canonical at its height.
    ///
    /// Feed a block at or below the tip only when the node's own head has reached the tip: a lagging node on a dead
    /// branch would otherwise undo blocks for nothing (harmless, but noisy).
    pub fn feed(&mut self, head: Head) -> Fed {
        let (Some(tip), Some(lowest)) = (self.heads.back().copied(), self.heads.front().copied()) else {
            self.push(head);
            return Fed::Appended;
        };
        if self.get(head.number) == Some(&head) {
            return Fed::Known;
        }
        if head.number > tip.number.saturating_add(1) {
            return Fed::Ahead { read_from: tip.number + 1 };
        }
        if self.extends(&head) {
            self.push(head);
            return Fed::Appended;
        }
        if head.number <= lowest.number {
            return Fed::Lost { lowest };
        }
        // The number is within the ring or just above it, so there is a block at the height of its parent.
        match self.get(head.number - 1).copied() {
            Some(fork) if fork.hash == head.parent => {
                let undone = self.drop_above(fork.number);
                self.push(head);
                Fed::Replaced(Reorg { fork, undone })
            }
            Some(parent) if parent.number == lowest.number => Fed::Lost { lowest },
            Some(_) | None => Fed::Orphan { read: head.number - 1 },
        }
    }

    fn extends(&self, head: &Head) -> bool {
        self.heads
            .back()
            .is_some_and(|tip| head.number.checked_sub(1) == Some(tip.number) && head.parent == tip.hash)
    }

    fn push(&mut self, head: Head) {
        if self.heads.len() == self.capacity {
            self.heads.pop_front();
        }
        self.heads.push_back(head);
    }

    fn drop_above(&mut self, number: u64) -> Vec<Head> {
        let mut undone = Vec::new();
        while let Some(tip) = self.heads.pop_back() {
            if tip.number <= number {
                self.heads.push_back(tip);
                break;
            }
            undone.push(tip);
        }
        undone
    }
}

#[cfg(test)]
#[path = "heads_tests.rs"]
mod tests;
