//! A watch: what a job is expected to do on chain, every transaction signed for it, and where that stands.
//!
//! Owns the states and what each event makes of them. No I/O, no clock, no doubt: an event is evidence that was already
//! agreed upon, and what is only absent is no event.
//!
//! ```text
//!            Seen                Final
//! Waiting ---------> Included ---------> Ended(Settled | Reverted | Cancelled)
//!    ^  ^               |                  |
//!    |  +---------------+ Undone           | NewRound, never after Settled
//!    |  |                                  |
//!    |  +--- Closed ---> Ended(Void)       |
//!    +-------------------------------------+
//! ```
//!
//! Invariants: a round ends once; nothing ends without `Final` or `Closed`; a settled watch never gets another round;
//! whatever contradicts an end is reported once and changes no state by itself.

use chrono::{DateTime, TimeDelta, Utc};
use payment::{BlockRef, Closing, Cost, EffectCheck, NoEffect, Transfer};
use types::{ChainName, JobId, TxHash, WithdrawalId};

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Settled {
        tx: TxHash,
        block: BlockRef,
    },
    /// Final without the effect; `value_moved` when something moved or that cannot be excluded.
    Reverted {
        tx: TxHash,
        block: BlockRef,
        value_moved: bool,
    },
    /// Nothing signed in this round can land. `block` is the final block that proves it.
    Void {
        foreign: Option<TxHash>,
        block: BlockRef,
    },
    Cancelled {
        tx: TxHash,
        block: BlockRef,
    },
}

impl Ending {
    /// Ours that is final, and its block.
    pub fn landed(&self) -> Option<(TxHash, BlockRef)> {
        match self {
            Self::Settled { tx, block }
            | Self::Reverted { tx, block, .. }
            | Self::Cancelled { tx, block } => Some((*tx, *block)),
            Self::Void { .. } => None,
        }
    }

    /// The block without which this end would not hold.
    pub fn evidence(&self) -> BlockRef {
        match self {
            Self::Settled { block, .. }
            | Self::Reverted { block, .. }
            | Self::Void { block, .. }
            | Self::Cancelled { block, .. } => *block,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No transaction of the round is known to be in a canonical block.
    Waiting,
    /// In a canonical block that is not final.
    Included {
        tx: TxHash,
        block: BlockRef,
    },
    Ended(Ending),
}

/// What a final transaction of the job did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Paid,
    Failed {
        reason: String,
        value_moved: bool,
    },
    /// It was the job's own cancellation, which moves nothing; whether it succeeded does not matter, it closed the binding.
    Cancelled,
}

impl Outcome {
    /// Reads an effect. `None` when the node's answer does not allow a judgement: that delays, it decides nothing.
    pub fn of(effect: &EffectCheck, is_cancellation: bool) -> Option<Self> {
        let failed =
            |reason: &str, value_moved| Some(Self::Failed { reason: reason.to_owned(), value_moved });
        match effect {
            // Here the effect is that of sending nothing to oneself.
            EffectCheck::Happened | EffectCheck::Reverted if is_cancellation => Some(Self::Cancelled),
            EffectCheck::NoEffect { why: NoEffect::NoTransferLog | NoEffect::OtherTransaction }
            | EffectCheck::WrongAmount { .. }
                if is_cancellation =>
            {
                failed("the transaction was said to be a cancellation and is something else", true)
            }
            EffectCheck::Happened => Some(Self::Paid),
            EffectCheck::Reverted => failed("the transaction was included and reverted", false),
            // The receipt says success. A token that moves balances without announcing it looks exactly like this, so
            // "nothing moved" would be a guess, and a wrong guess pays twice.
            EffectCheck::NoEffect { why: NoEffect::NoTransferLog } => failed(
                "the transaction succeeded without the token's Transfer log; whether anything moved is not known",
                true,
            ),
            EffectCheck::NoEffect { why: NoEffect::OtherTransaction } => {
                failed("the transaction has another sender, receiver or contract than expected", true)
            }
            EffectCheck::NoEffect { why: NoEffect::NoStatus | NoEffect::NoTransaction } => None,
            EffectCheck::WrongAmount { moved } => Some(Self::Failed {
                reason: format!("the receiver got {moved} instead of the amount"),
                value_moved: true,
            }),
        }
    }
}

/// Evidence about a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A transaction of the job is in a canonical block.
    Seen { tx: TxHash, block: BlockRef },
    /// A block is no longer canonical.
    Undone { block: BlockRef },
    /// The nodes agree that a transaction of the job is in a final block, and on what it did.
    Final { tx: TxHash, block: BlockRef, cost: Cost, outcome: Outcome },
    /// The nodes agree that nothing of this round can land: as of the final block `block`.
    Closed { foreign: Option<TxHash>, block: BlockRef, reason: String },
    /// Not included for longer than the chain's limit.
    Overdue { newest: TxHash, waited: TimeDelta },
    /// The nodes agree that the block this end rests on is not canonical.
    Overturned { reason: String },
    /// Transactions under another binding were signed.
    NewRound,
}

/// What is to be told to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Settled { tx: TxHash, block: BlockRef, cost: Cost },
    Reverted { tx: TxHash, block: BlockRef, cost: Cost, reason: String, value_moved: bool },
    Void { foreign: Option<TxHash>, reason: String },
    Cancelled { tx: TxHash, block: BlockRef, cost: Cost },
    Stuck { newest: TxHash, waited: TimeDelta },
    Reopened { tx: TxHash, block: BlockRef },
    Contradicted { tx: Option<TxHash>, reason: String },
}

impl Finding {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Settled { .. } => "settled",
            Self::Reverted { .. } => "reverted",
            Self::Void { .. } => "void",
            Self::Cancelled { .. } => "cancelled",
            Self::Stuck { .. } => "stuck",
            Self::Reopened { .. } => "reopened",
            Self::Contradicted { .. } => "contradicted",
        }
    }

    /// Whether it ends the round.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Settled { .. } | Self::Reverted { .. } | Self::Void { .. } | Self::Cancelled { .. } => true,
            Self::Stuck { .. } | Self::Reopened { .. } | Self::Contradicted { .. } => false,
        }
    }
}

/// What an event did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    Step(Option<Finding>),
    /// The watch already stands there, or the event says nothing new about it.
    AlreadyApplied,
}

/// An event that cannot be true of a watch in this state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a watch that is {state} cannot take {event}")]
pub struct IllegalTransition {
    pub state: &'static str,
    pub event: &'static str,
}

/// One transaction signed for the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedTx {
    pub hash: TxHash,
    pub is_cancellation: bool,
    pub nonce: Option<u64>,
    pub expires_at: Option<DateTime<Utc>>,
    pub reference_block: u64,
    /// Whether all of this was read off the signed bytes; otherwise it is what somebody said.
    pub proven: bool,
    /// The binding it was signed under.
    pub round: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub job: JobId,
    pub withdrawal: Option<WithdrawalId>,
    pub chain: ChainName,
    pub effect: Transfer,
    /// Oldest first, of all rounds.
    pub transactions: Vec<WatchedTx>,
    pub round: u32,
    pub state: State,
    /// An end was found to be wrong, or a transaction of an ended round landed. Reported once.
    pub contradicted: bool,
    /// A final block when the round began.
    pub since_block: u64,
}

impl Watch {
    pub fn status(&self) -> &'static str {
        match self.state {
            State::Waiting => "waiting",
            State::Included { .. } => "included",
            State::Ended(Ending::Settled { .. }) => "settled",
            State::Ended(Ending::Reverted { .. }) => "reverted",
            State::Ended(Ending::Void { .. }) => "void",
            State::Ended(Ending::Cancelled { .. }) => "cancelled",
        }
    }

    pub fn transaction(&self, hash: &TxHash) -> Option<&WatchedTx> {
        self.transactions.iter().find(|tx| tx.hash == *hash)
    }

    /// Transactions of the present round, oldest first.
    pub fn present(&self) -> impl DoubleEndedIterator<Item = &WatchedTx> {
        self.transactions.iter().filter(|tx| tx.round == self.round)
    }

    /// The nonce of the present round, once a transaction names one.
    pub fn nonce(&self) -> Option<u64> {
        self.present().find_map(|tx| tx.nonce)
    }

    /// Whether a transaction is of a round that has already ended.
    fn is_bygone(&self, hash: &TxHash) -> bool {
        self.transaction(hash).is_some_and(|tx| tx.round < self.round)
    }

    /// What ends the present round, if that is known; without it nothing can be proven void.
    pub fn closing(&self) -> Option<Closing> {
        if let Some(nonce) = self.nonce() {
            return Some(Closing::Nonce { sender: self.effect.from, nonce });
        }
        // One signature per window; should there be more, the round stays open until the last of them has expired.
        let expires_at =
            self.present().map(|tx| tx.expires_at).collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(Closing::Window { expiration_ms: u64::try_from(expires_at.timestamp_millis()).ok()? })
    }

    /// What can never pay once this one is final without its effect: it, and all that share its nonce. A window shuts nobody
    /// else out: should there be another transaction in it, that one may still land.
    pub fn ruled_out_by(&self, tx: &TxHash) -> Vec<TxHash> {
        let nonce = self.transaction(tx).and_then(|tx| tx.nonce);
        let shut_out = |other: &&WatchedTx| other.hash == *tx || (nonce.is_some() && other.nonce == nonce);
        self.present().filter(shut_out).map(|tx| tx.hash).collect()
    }

    /// Whether what is known of all of these was read off their bytes.
    pub fn is_proven(&self, hashes: &[TxHash]) -> bool {
        hashes.iter().all(|hash| self.transaction(hash).is_some_and(|tx| tx.proven))
    }

    /// Takes one event. Every state and every event is named, so that a new one does not compile until it is placed.
    pub fn apply(&mut self, event: Event) -> Result<Applied, IllegalTransition> {
        // A transaction of an ended round has no say in the present one, except by landing.
        match &event {
            Event::Final { tx, block, .. } if self.is_bygone(tx) => {
                let reason = format!("transaction {tx} of an ended round is final in block {}", block.number);
                return Ok(self.contradict(Some(*tx), reason));
            }
            Event::Seen { tx, .. } if self.is_bygone(tx) => return Ok(Applied::AlreadyApplied),
            _ => {}
        }
        match self.state {
            State::Waiting => self.apply_waiting(event),
            State::Included { tx, block } => self.apply_included(tx, block, event),
            State::Ended(ending) => self.apply_ended(ending, event),
        }
    }

    fn apply_waiting(&mut self, event: Event) -> Result<Applied, IllegalTransition> {
        match event {
            Event::Seen { tx, block } => {
                self.state = State::Included { tx, block };
                Ok(Applied::Step(None))
            }
            Event::Undone { .. } => Ok(Applied::AlreadyApplied),
            Event::Final { tx, block, cost, outcome } => Ok(self.end(tx, block, cost, outcome)),
            Event::Closed { foreign, block, reason } => {
                self.state = State::Ended(Ending::Void { foreign, block });
                Ok(Applied::Step(Some(Finding::Void { foreign, reason })))
            }
            Event::Overdue { newest, waited } => Ok(Applied::Step(Some(Finding::Stuck { newest, waited }))),
            Event::Overturned { .. } => Err(self.illegal("an overturned end")),
            Event::NewRound => Err(self.illegal("a new round")),
        }
    }

    fn apply_included(
        &mut self,
        tx: TxHash,
        block: BlockRef,
        event: Event,
    ) -> Result<Applied, IllegalTransition> {
        match event {
            Event::Seen { tx: other, block: there } if other == tx && there == block => {
                Ok(Applied::AlreadyApplied)
            }
            Event::Seen { tx: other, block: there } => {
                self.state = State::Included { tx: other, block: there };
                Ok(Applied::Step(Some(Finding::Reopened { tx, block })))
            }
            Event::Undone { block: undone } if undone == block => {
                self.state = State::Waiting;
                Ok(Applied::Step(Some(Finding::Reopened { tx, block })))
            }
            Event::Undone { .. } | Event::Overdue { .. } => Ok(Applied::AlreadyApplied),
            Event::Final { tx, block, cost, outcome } => Ok(self.end(tx, block, cost, outcome)),
            // Ours is in a block and a foreign one is final at its nonce: one of the two is not on the canonical
            // chain. The heads will tell which; until then nothing is decided.
            Event::Closed { .. } => Err(self.illegal("a closed round")),
            Event::Overturned { .. } => Err(self.illegal("an overturned end")),
            Event::NewRound => Err(self.illegal("a new round")),
        }
    }

    fn apply_ended(&mut self, ending: Ending, event: Event) -> Result<Applied, IllegalTransition> {
        match event {
            // Only agreement at depth can touch an end.
            Event::Seen { .. } | Event::Undone { .. } | Event::Overdue { .. } => Ok(Applied::AlreadyApplied),
            Event::Final { tx, block, .. } if ending.landed() == Some((tx, block)) => {
                Ok(Applied::AlreadyApplied)
            }
            Event::Final { tx, block, .. } => {
                let reason = format!(
                    "transaction {tx} is final in block {} although the watch had ended as {}",
                    block.number,
                    self.status()
                );
                Ok(self.contradict(Some(tx), reason))
            }
            Event::Closed { .. } => match ending {
                Ending::Void { .. } => Ok(Applied::AlreadyApplied),
                Ending::Settled { .. } | Ending::Reverted { .. } | Ending::Cancelled { .. } => {
                    Err(self.illegal("a closed round"))
                }
            },
            Event::Overturned { reason } => Ok(self.contradict(ending.landed().map(|(tx, _)| tx), reason)),
            Event::NewRound => match ending {
                Ending::Settled { .. } => Err(self.illegal("a new round")),
                Ending::Reverted { .. } | Ending::Void { .. } | Ending::Cancelled { .. } => {
                    self.state = State::Waiting;
                    self.round = self.round.saturating_add(1);
                    Ok(Applied::Step(None))
                }
            },
        }
    }

    fn end(&mut self, tx: TxHash, block: BlockRef, cost: Cost, outcome: Outcome) -> Applied {
        let (ending, finding) = match outcome {
            Outcome::Paid => (Ending::Settled { tx, block }, Finding::Settled { tx, block, cost }),
            Outcome::Failed { reason, value_moved } => (
                Ending::Reverted { tx, block, value_moved },
                Finding::Reverted { tx, block, cost, reason, value_moved },
            ),
            Outcome::Cancelled => (Ending::Cancelled { tx, block }, Finding::Cancelled { tx, block, cost }),
        };
        self.state = State::Ended(ending);
        Applied::Step(Some(finding))
    }

    fn contradict(&mut self, tx: Option<TxHash>, reason: String) -> Applied {
        if self.contradicted {
            return Applied::AlreadyApplied;
        }
        self.contradicted = true;
        Applied::Step(Some(Finding::Contradicted { tx, reason }))
    }

    fn illegal(&self, event: &'static str) -> IllegalTransition {
        IllegalTransition { state: self.status(), event }
    }
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
