//! Nonce lanes: the one authority over the nonces of a sender.
//!
//! Pure: execution loads a lane, takes, and saves, all in one transaction under the lane's row. Nothing here talks to a
//! node, keeps time or signs.
//!
//! A lane knows which nonces are handed out (`open`), the next fresh one (`next`) and below which number none is handed out
//! any more (`floor`). What is between the floor and `next` and in nobody's hands is a gap: it jams everything above.
//!
//! Where it could hurt, and what holds:
//! - A node counts too many transactions, by a lie or a fault. Believed, it would move the lane to a nonce that is never
//!   reached, and everything below would have to be filled and paid for. So only what enough nodes say raises `next` and what
//!   is kept as mined ([`Sight::agreed`]). The word of one node alone reaches up to `next` at most and only hides gaps, for
//!   as long as the node says it.
//! - A node counts too few. A nonce may then be handed out that is used already: the chain refuses it or something else is
//!   final there, and its payment gets another one upon proof. It costs time and never a second payment, because each
//!   payment holds one nonce at a time and never one that another holds.
//!
//! Invariants: a nonce is never handed out while it is open, nor below the floor; `next` never goes back.

use std::collections::BTreeSet;

/// What the chain says about a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// Nonces used in the latest state, as enough nodes say; where fewer answer, the fewest of them.
    pub mined: u64,
    /// The same with the pool of the most generous node counted in: one node's word.
    pub pending: u64,
    /// How far enough nodes go with their pools counted in. `None`: too few answered, and nothing is learnt for good.
    pub agreed: Option<u64>,
}

impl Sight {
    /// Below which no nonce of a lane is free. What is in a pool, ours or not, is no gap; that one node claims more than was
    /// ever handed out is of no use. `mined_seen` is what enough nodes have counted before.
    pub fn floor(&self, next: u64, mined_seen: u64) -> u64 {
        self.pending.min(next).max(mined_seen)
    }
}

/// Why no nonce is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LaneBlocked {
    #[error("the lane is halted")]
    Halted,
    #[error("nonce {nonce} is open already")]
    Taken { nonce: u64 },
    #[error("nonce {nonce} is used up")]
    UsedUp { nonce: u64 },
    #[error("the lane has no nonces left")]
    Exhausted,
}

/// One sender's lane on one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Every nonce below is used up, or in a pool.
    pub floor: u64,
    /// The lowest nonce never handed out.
    pub next: u64,
    /// In somebody's hands, from the floor on.
    pub open: BTreeSet<u64>,
    /// Set by people or by a foreign transaction at one of our nonces: nothing new is handed out.
    pub halted: bool,
}

impl Lane {
    /// Takes the next nonce: the lowest gap first, because everything above one is jammed.
    pub fn take(&mut self) -> Result<u64, LaneBlocked> {
        if self.halted {
            return Err(LaneBlocked::Halted);
        }
        let gap = (self.floor..self.next).find(|nonce| !self.open.contains(nonce));
        self.fill(gap.unwrap_or(self.next.max(self.floor)))
    }

    /// Takes this very nonce, for instance for a cancellation that closes a gap. Works on a halted lane: repair does not wait.
    pub fn fill(&mut self, nonce: u64) -> Result<u64, LaneBlocked> {
        if self.open.contains(&nonce) {
            return Err(LaneBlocked::Taken { nonce });
        }
        if nonce < self.floor {
            return Err(LaneBlocked::UsedUp { nonce });
        }
        // EIP-2681: the highest nonce can never be used.
        let after = nonce.checked_add(1).filter(|after| *after < u64::MAX).ok_or(LaneBlocked::Exhausted)?;
        self.open.insert(nonce);
        self.next = self.next.max(after);
        Ok(nonce)
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
