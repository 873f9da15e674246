//! Adding transactions to a watch: which round each belongs to, and what must be refused.
//!
//! No I/O. Invariants: a known hash never changes its meaning; a transaction at a known nonce joins the round of that nonce,
//! however late it arrives; another binding begins a new round only after the present one has ended.
//!
//! A round may end before every transaction signed in it is known here. A transaction that arrives late may then be the one
//! that was taken for a foreign one, and the proof of the end does not name it. So a transaction that arrives late at the
//! nonce of a round that ended without payment begins a new round with all transactions of that nonce.

use payment::{Closing, Effect};
use types::TxHash;

use super::domain::{self, Event, State, Watch, WatchedTx};

/// A transaction as the caller described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTransaction {
    pub hash: TxHash,
    pub effect: Effect,
    pub closing: Option<Closing>,
    pub reference_block: u64,
    /// Whether all of this was read from the signed bytes.
    pub proven: bool,
}

/// What adding a transaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Known,
    /// Joined the open round. It may already be in a block, so it must be looked up.
    ToOpenRound,
    /// Belongs to a round that has ended, and changes nothing.
    ToEndedRound,
    /// Belongs to the last round, which ended without payment: all transactions of its nonce are judged again in a new round.
    Reopened,
    ToNewRound,
}

/// Why a transaction cannot be watched under this job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    #[error("transaction {hash} is already watched with another {field}")]
    Differs { hash: TxHash, field: &'static str },
    #[error("transaction {hash} has nonce {given}, but the round at nonce {open} is still open")]
    OtherBinding { hash: TxHash, given: u64, open: u64 },
    #[error("transaction {hash} would pay a settled job again")]
    Settled { hash: TxHash },
}

impl Watch {
    pub fn add(&mut self, new: &NewTransaction) -> Result<Added, AddError> {
        if let Some(known) = self.transaction(&new.hash) {
            return same(known, new).map(|()| Added::Known);
        }
        let nonce = new.closing.and_then(domain::nonce);
        let at_nonce =
            |nonce: u64| self.transactions.iter().find(|tx| tx.nonce() == Some(nonce)).map(|tx| tx.round);
        let (round, added) = match (nonce.and_then(at_nonce), self.state) {
            (Some(round), State::Waiting | State::Included { .. }) if round == self.round => {
                (round, Added::ToOpenRound)
            }
            (Some(round), State::Ended(_)) if round == self.round && self.reopen(nonce) => {
                (self.round, Added::Reopened)
            }
            (Some(round), _) => (round, Added::ToEndedRound),
            (None, State::Waiting | State::Included { .. }) => match (self.nonce(), nonce) {
                (Some(open), Some(given)) => {
                    return Err(AddError::OtherBinding { hash: new.hash, given, open });
                }
                _ => (self.round, Added::ToOpenRound),
            },
            (None, State::Ended(_)) => {
                self.apply(Event::NewRound).map_err(|_| AddError::Settled { hash: new.hash })?;
                (self.round, Added::ToNewRound)
            }
        };
        self.transactions.push(WatchedTx {
            hash: new.hash,
            effect: new.effect,
            closing: new.closing,
            reference_block: new.reference_block,
            proven: new.proven,
            round,
        });
        Ok(added)
    }

    /// Begins a round with all transactions of this nonce, unless the last one ended with the payment or was contradicted.
    fn reopen(&mut self, nonce: Option<u64>) -> bool {
        if self.contradicted || self.apply(Event::NewRound).is_err() {
            return false;
        }
        let moved = self.transactions.iter_mut().filter(|tx| tx.nonce() == nonce);
        moved.for_each(|tx| tx.round = self.round);
        true
    }
}

fn same(known: &WatchedTx, new: &NewTransaction) -> Result<(), AddError> {
    let differs = |field| Err(AddError::Differs { hash: new.hash, field });
    if known.is_cancellation() != matches!(new.effect, Effect::Closes { .. }) {
        return differs("is_cancellation");
    }
    if known.effect != new.effect {
        return differs("effect");
    }
    if known.nonce() != new.closing.and_then(domain::nonce) {
        return differs("nonce");
    }
    if known.closing != new.closing {
        return differs("expires_at");
    }
    if known.reference_block != new.reference_block {
        return differs("reference_block");
    }
    Ok(())
}
