//! The recent heads of one chain, linked by parent hash, and what a reorg undid.
//!
//! The ring does no I/O; [`follow`] reads blocks from nodes and inserts them.
//!
//! Invariants: heads are contiguous in number and the parent of each is the one before it; a block that was reported as appended and
//! is no longer canonical is reported as undone exactly once; and the ring never holds more than its capacity. A fork below
//! everything in the ring is reported as `Lost`.

pub mod follow;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use types::TxHash;

/// The place of a block in the chain. Hashes of blocks have the type of transaction hashes.
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
    /// The last block that both branches share.
    pub fork: Head,
    /// Newest first.
    pub undone: Vec<Head>,
}

/// What inserting a block did, or which block has to be inserted first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingUpdate {
    /// It is the new tip.
    Appended,
    Known,
    /// It is the new tip and replaces others.
    Replaced(Reorg),
    /// Blocks between the tip and it are missing; insert them first, from this number upwards.
    Ahead {
        read_from: u64,
    },
    /// Its parent is not the block in the ring at that height; insert the canonical block of this number first.
    Orphan {
        read: u64,
    },
    /// It differs from, or is below, everything in the ring. The reorg is deeper than the ring: halt and alert.
    Lost {
        lowest: Head,
    },
}

/// Recent heads, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadRing {
    capacity: usize,
    heads: VecDeque<Head>,
}

impl HeadRing {
    /// `capacity` must be larger than the depth at which a verdict is given; otherwise a reorg that matters is `Lost`.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2);
        Self { capacity, heads: VecDeque::with_capacity(capacity) }
    }

    /// Restores a ring from stored heads, oldest first. Heads that are not linked to the newest are left out, so that damaged
    /// storage makes the ring shorter and not wrong.
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

    /// Whether this block is canonical. `None` if that height is not in the ring.
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

    /// Inserts a block that a node calls canonical at its height.
    ///
    /// A block at or below the tip should only be inserted if the head of the node has reached the tip. A lagging node on a
    /// dead branch would otherwise undo blocks for nothing, which is harmless but noisy.
    pub fn insert(&mut self, head: Head) -> RingUpdate {
        let (Some(tip), Some(lowest)) = (self.heads.back().copied(), self.heads.front().copied()) else {
            self.push(head);
            return RingUpdate::Appended;
        };
        if self.get(head.number) == Some(&head) {
            return RingUpdate::Known;
        }
        if head.number > tip.number.saturating_add(1) {
            return RingUpdate::Ahead { read_from: tip.number + 1 };
        }
        if self.extends(&head) {
            self.push(head);
            return RingUpdate::Appended;
        }
        if head.number <= lowest.number {
            return RingUpdate::Lost { lowest };
        }
        // The number is within the ring or just above it, so there is a block at the height of its parent.
        match self.get(head.number - 1).copied() {
            Some(fork) if fork.hash == head.parent => {
                let undone = self.drop_above(fork.number);
                self.push(head);
                RingUpdate::Replaced(Reorg { fork, undone })
            }
            Some(parent) if parent.number == lowest.number => RingUpdate::Lost { lowest },
            Some(_) | None => RingUpdate::Orphan { read: head.number - 1 },
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
mod tests;
