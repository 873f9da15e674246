//! Nonce lanes: the one authority over the nonces of a sender.
//!
//! Pure: execution loads a lane, takes or decides, and saves, all in one transaction under the lane's row. Nothing
//! here talks to a node, keeps time or signs.
//!
//! A lane knows which nonces it handed out and are not final yet (`open`), the next fresh one (`next`) and below which
//! number every nonce is used up for ever (`floor`). The chain says what it has mined. From the two follows everything
//! else: gaps that would jam what is above them, transactions of somebody else who holds the key, and a head of the
//! line that waits too long.
//!
//! Invariants: a nonce is never handed out while it is open, nor below the floor; the floor and `next` never go back;
//! every nonce from the chain's next up to the highest open one is open or named as a gap to fill; and a stale view of
//! the chain (a lagging node) can cost a refused transaction, never a second payment.

use std::collections::BTreeMap;
use std::time::Duration;

/// What has become of a nonce that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Taken by an attempt; its bytes are not stored yet. The signer may have been asked already.
    Reserved { held: Duration },
    /// Signed bytes are stored, and sent or about to be.
    Sent {
        /// Since it was last sent or bumped.
        waiting: Duration,
        /// Its fee cannot be raised any more.
        at_cap: bool,
    },
    /// One of our transactions is in a block at this nonce, not final yet.
    Mined,
}

/// What the chain says about the sender. Reads may lag: see the module's last invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainView {
    /// Nonces used in the latest state: the next one to be mined.
    pub mined: u64,
    /// The same with the pool counted in.
    pub pending: u64,
}

/// When a lane acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneRules {
    /// How many nonces may be open at once.
    pub max_open: usize,
    /// A reservation without bytes for so long was left behind by somebody who died.
    pub resume_after: Duration,
    /// Bytes that the pool does not count for so long are sent again.
    pub resend_after: Duration,
    /// A head of the line that waits so long gets a higher fee.
    pub bump_after: Duration,
    /// The most that one look at the lane asks for.
    pub max_decisions: usize,
}

impl Default for LaneRules {
    fn default() -> Self {
        Self {
            max_open: 256,
            resume_after: Duration::from_secs(30),
            resend_after: Duration::from_secs(15),
            bump_after: Duration::from_secs(60),
            max_decisions: 256,
        }
    }
}

/// Something a lane needs done. Each is safe to do twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Somebody else used the nonces from `from` to below `to`, which we never handed out. Raise `next` (see
    /// [`Lane::skip`]), and tell people: the key is used elsewhere.
    Foreign { from: u64, to: u64 },
    /// The chain has used this open nonce: find out by whom. Ours: [`Lane::mined`]; final, either way:
    /// [`Lane::close`]. Somebody else's and final: halt, tell people, and only then may its job take another nonce.
    Resolve { nonce: u64 },
    /// Nobody holds this nonce, and what is above it cannot be mined: take it ([`Lane::fill`]) and occupy it with a
    /// cancellation.
    Fill { nonce: u64 },
    /// Finish the attempt that reserved this nonce; never another one.
    Resume { nonce: u64 },
    /// Send the same bytes again.
    Resend { nonce: u64 },
    /// A new attempt at this nonce with a higher fee.
    Bump { nonce: u64 },
    /// It should be bumped but its fee is at the cap. Tell people; the lane waits behind it.
    Capped { nonce: u64 },
}

/// Why no nonce is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LaneBlocked {
    #[error("the lane is halted")]
    Halted,
    #[error("{open} nonces are open, at most {max} may be")]
    Full { open: usize, max: usize },
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
    /// Every nonce below is used up by a final transaction.
    pub floor: u64,
    /// The lowest nonce never handed out.
    pub next: u64,
    /// Handed out and not closed. Entries below the floor are final on chain and wait for their verdict.
    pub open: BTreeMap<u64, Slot>,
    /// Set by people or by a foreign transaction at one of our nonces: nothing new is handed out.
    pub halted: bool,
}

impl Lane {
    /// A lane for a sender whose nonces below `mined` are used.
    pub fn new(mined: u64) -> Self {
        Self { floor: 0, next: mined, open: BTreeMap::new(), halted: false }
    }

    /// Takes the next nonce: the lowest gap first, because everything above one is jammed.
    pub fn take(&mut self, chain: &ChainView, rules: &LaneRules) -> Result<u64, LaneBlocked> {
        if self.halted {
            return Err(LaneBlocked::Halted);
        }
        if self.open.len() >= rules.max_open {
            return Err(LaneBlocked::Full { open: self.open.len(), max: rules.max_open });
        }
        let nonce = self.gaps(chain).next().unwrap_or_else(|| self.next.max(self.base(chain)));
        self.occupy(nonce)
    }

    /// Takes this very nonce for a cancellation that closes a gap. Works on a halted or full lane: repair does not
    /// wait.
    pub fn fill(&mut self, nonce: u64) -> Result<u64, LaneBlocked> {
        self.occupy(nonce)
    }

    fn occupy(&mut self, nonce: u64) -> Result<u64, LaneBlocked> {
        if self.open.contains_key(&nonce) {
            return Err(LaneBlocked::Taken { nonce });
        }
        if nonce < self.floor {
            return Err(LaneBlocked::UsedUp { nonce });
        }
        // EIP-2681: the highest nonce can never be used.
        let after = nonce.checked_add(1).filter(|after| *after < u64::MAX).ok_or(LaneBlocked::Exhausted)?;
        self.open.insert(nonce, Slot::Reserved { held: Duration::ZERO });
        self.next = self.next.max(after);
        Ok(nonce)
    }

    /// Gives back a nonce for which no signature was ever asked. Only then: whatever was signed can still land.
    pub fn release(&mut self, nonce: u64) -> bool {
        match self.open.get(&nonce) {
            Some(Slot::Reserved { .. }) => self.open.remove(&nonce).is_some(),
            Some(Slot::Sent { .. } | Slot::Mined) | None => false,
        }
    }

    pub fn sent(&mut self, nonce: u64, at_cap: bool) {
        if let Some(slot) = self.open.get_mut(&nonce) {
            *slot = Slot::Sent { waiting: Duration::ZERO, at_cap };
        }
    }

    /// One of our transactions is in a block at this nonce.
    pub fn mined(&mut self, nonce: u64) {
        if let Some(slot) = self.open.get_mut(&nonce) {
            *slot = Slot::Mined;
        }
    }

    /// A transaction is final at this nonce, so every lower one is used up as well.
    pub fn close(&mut self, nonce: u64) {
        self.open.remove(&nonce);
        self.floor = self.floor.max(nonce.saturating_add(1));
        self.next = self.next.max(self.floor);
    }

    /// Goes on above nonces that somebody else used.
    pub fn skip(&mut self, to: u64) {
        self.next = self.next.max(to);
    }

    /// What the lane needs done now, most urgent first.
    pub fn decide(&self, chain: &ChainView, rules: &LaneRules) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if chain.mined > self.next {
            decisions.push(Decision::Foreign { from: self.next, to: chain.mined });
        }
        let base = self.base(chain);
        let used = self.open.range(..base).filter(|(_, slot)| !matches!(slot, Slot::Mined));
        decisions.extend(used.map(|(nonce, _)| Decision::Resolve { nonce: *nonce }));
        if let Some((highest, _)) = self.open.last_key_value() {
            let gaps = self.gaps(chain).take_while(|gap| gap < highest);
            decisions.extend(gaps.map(|nonce| Decision::Fill { nonce }).take(rules.max_decisions));
        }
        decisions.extend(
            self.open.range(base..).filter_map(|(nonce, slot)| self.look(*nonce, slot, chain, rules)),
        );
        decisions.truncate(rules.max_decisions);
        decisions
    }

    /// What one open nonce that the chain has not used yet needs.
    fn look(&self, nonce: u64, slot: &Slot, chain: &ChainView, rules: &LaneRules) -> Option<Decision> {
        match *slot {
            Slot::Reserved { held } => (held >= rules.resume_after).then_some(Decision::Resume { nonce }),
            Slot::Sent { waiting, at_cap } => {
                // Only the head of the line waits for its own price; the others wait for the head.
                if nonce == self.base(chain) && waiting >= rules.bump_after {
                    return Some(if at_cap { Decision::Capped { nonce } } else { Decision::Bump { nonce } });
                }
                let missing = nonce >= chain.pending && waiting >= rules.resend_after;
                missing.then_some(Decision::Resend { nonce })
            }
            // It was mined and the chain took it back: the bytes have to go out again.
            Slot::Mined => (nonce >= chain.pending).then_some(Decision::Resend { nonce }),
        }
    }

    /// The next nonce the chain will mine, as far as is known.
    fn base(&self, chain: &ChainView) -> u64 {
        chain.mined.max(self.floor)
    }

    /// Nonces that were handed out or skipped once and that nobody holds now, lowest first.
    fn gaps(&self, chain: &ChainView) -> impl Iterator<Item = u64> {
        (self.base(chain)..self.next).filter(|nonce| !self.open.contains_key(nonce))
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
