//! Nonce lanes: the one authority over the nonces of a sender.
//!
//! There is no I/O here: execution loads a lane, takes a nonce and saves the lane, all in one transaction under the row of the lane.
//!
//! A lane knows which nonces are in use by attempts (`open`), the next fresh one (`next`), and the number below which none is given
//! out any more (`floor`). A nonce between the floor and `next` that is not open is a gap: nothing above it can be mined.
//!
//! What can go wrong, and why no payment is made twice:
//! - A node counts too many transactions, by a lie or a fault. If it were believed, the lane would move to a nonce that is never
//!   reached, and everything below would have to be filled and paid for. So only a count that enough nodes report raises `next`
//!   and what is stored as mined ([`NonceCounts::agreed`]). The count of one node alone reaches up to `next` at most and only hides
//!   gaps, for as long as the node reports it.
//! - A node counts too few. The lane may then give out a nonce that is used already: the chain refuses it, or another transaction
//!   is final there, and the payment gets another nonce after proof. This costs time and never a second payment, because each
//!   payment has one nonce at a time and never one that another has.
//!
//! Invariants: a nonce is never given out while it is open, nor below the floor; `next` never goes back.

use std::collections::BTreeSet;

/// How many transactions of a sender the nodes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonceCounts {
    /// Nonces used in the latest state, as counted by a quorum; with fewer answers, the lowest count.
    pub mined: u64,
    /// The highest count of one node with its pool included.
    pub pending: u64,
    /// The count with pools that a quorum reaches. `None` if too few nodes answered; nothing may then be stored.
    pub agreed: Option<u64>,
}

impl NonceCounts {
    /// No nonce of a lane below this number is free. A nonce in a pool is no gap, whoever sent it. A count of one node above
    /// `next` is ignored. `mined_seen` is what a quorum has counted before.
    pub fn floor(&self, next: u64, mined_seen: u64) -> u64 {
        self.pending.min(next).max(mined_seen)
    }
}

/// Why no nonce is given out.
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
    /// The lowest nonce that was never given out.
    pub next: u64,
    /// In use by an attempt, from the floor on.
    pub open: BTreeSet<u64>,
    /// Set by an operator or by a foreign transaction at one of our nonces: nothing new is given out.
    pub halted: bool,
}

impl Lane {
    /// Takes the next nonce: the lowest gap first, because nothing above a gap can be mined.
    pub fn take(&mut self) -> Result<u64, LaneBlocked> {
        if self.halted {
            return Err(LaneBlocked::Halted);
        }
        let gap = (self.floor..self.next).find(|nonce| !self.open.contains(nonce));
        self.fill(gap.unwrap_or(self.next.max(self.floor)))
    }

    /// Takes this nonce, for instance for a cancellation that closes a gap. It also works on a halted lane, so that it can be
    /// repaired.
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
mod tests;
