//! A watch: what a job is expected to do on chain, every transaction signed for it, and its state.
//!
//! Owns the states and the transitions between them. No I/O and no clock. An event is evidence that the nodes already agreed
//! upon; the absence of something is never an event.
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
//! evidence that contradicts an end is reported once and does not change the state.

use chrono::{DateTime, TimeDelta, Utc};
use payment::{BlockRef, Closing, Cost, Effect, Finding, Inclusion};
use strum::{Display, EnumString, IntoStaticStr};
use types::{ChainName, JobId, TxHash, WithdrawalId};

use super::outcome::Outcome;

/// A watch's state without its data, as it is stored, listed and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    Waiting,
    Included,
    Settled,
    Reverted,
    Void,
    Cancelled,
}

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
    /// The job's own transaction that is final, and its block.
    pub fn landed(&self) -> Option<(TxHash, BlockRef)> {
        match self {
            Self::Settled { tx, block }
            | Self::Reverted { tx, block, .. }
            | Self::Cancelled { tx, block } => Some((*tx, *block)),
            Self::Void { .. } => None,
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

/// Whether a finding ends the round.
pub fn ends_round(finding: &Finding) -> bool {
    match finding {
        Finding::Settled(_) | Finding::Reverted { .. } | Finding::Void { .. } | Finding::Cancelled { .. } => {
            true
        }
        Finding::Stuck { .. } | Finding::Reopened { .. } | Finding::Contradicted { .. } => false,
    }
}

/// What an event did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "a value is read at once and never kept")]
pub enum Applied {
    /// The finding is what execution must hear of. Its proof is added by whoever holds the attestation key.
    Step(Option<Finding>),
    /// The event says nothing new about the watch.
    AlreadyApplied,
}

/// An event that cannot be true of a watch in this state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a watch that is {state} cannot take {event}")]
pub struct IllegalTransition {
    pub state: Status,
    pub event: &'static str,
}

/// One transaction signed for the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedTx {
    pub hash: TxHash,
    /// What it must show on chain to count.
    pub effect: Effect,
    /// What closes its binding; `None` for a transaction of another system, of which only the hash is known.
    pub closing: Option<Closing>,
    pub reference_block: u64,
    /// Whether all of this was read from the signed bytes. Otherwise it is only what the caller said.
    pub proven: bool,
    pub round: u32,
}

impl WatchedTx {
    pub fn is_cancellation(&self) -> bool {
        matches!(self.effect, Effect::Closes { .. })
    }

    pub fn nonce(&self) -> Option<u64> {
        self.closing.and_then(nonce)
    }

    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        let expiration_ms = i64::try_from(self.closing.and_then(expiration_ms)?).ok()?;
        DateTime::from_timestamp_millis(expiration_ms)
    }
}

pub(super) fn nonce(closing: Closing) -> Option<u64> {
    match closing {
        Closing::Nonce { nonce, .. } => Some(nonce),
        Closing::Window { .. } => None,
    }
}

fn expiration_ms(closing: Closing) -> Option<u64> {
    match closing {
        Closing::Nonce { .. } => None,
        Closing::Window { expiration_ms } => Some(expiration_ms),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub job: JobId,
    pub withdrawal: Option<WithdrawalId>,
    pub chain: ChainName,
    /// What the job is for, and what its transactions must show unless they have an effect of their own.
    pub effect: Effect,
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
    /// A watch without transactions.
    pub fn new(job: JobId, withdrawal: Option<WithdrawalId>, chain: ChainName, effect: Effect) -> Self {
        let (round, state) = (1, State::Waiting);
        Self {
            job,
            withdrawal,
            chain,
            effect,
            transactions: Vec::new(),
            round,
            state,
            contradicted: false,
            since_block: 0,
        }
    }

    pub fn status(&self) -> Status {
        match self.state {
            State::Waiting => Status::Waiting,
            State::Included { .. } => Status::Included,
            State::Ended(Ending::Settled { .. }) => Status::Settled,
            State::Ended(Ending::Reverted { .. }) => Status::Reverted,
            State::Ended(Ending::Void { .. }) => Status::Void,
            State::Ended(Ending::Cancelled { .. }) => Status::Cancelled,
        }
    }

    pub fn transaction(&self, hash: &TxHash) -> Option<&WatchedTx> {
        self.transactions.iter().find(|tx| tx.hash == *hash)
    }

    /// The transactions of the present round, oldest first.
    pub fn present(&self) -> impl DoubleEndedIterator<Item = &WatchedTx> {
        self.transactions.iter().filter(|tx| tx.round == self.round)
    }

    /// The nonce of the present round, once a transaction names one.
    pub fn nonce(&self) -> Option<u64> {
        self.present().find_map(WatchedTx::nonce)
    }

    fn is_of_ended_round(&self, hash: &TxHash) -> bool {
        self.transaction(hash).is_some_and(|tx| tx.round < self.round)
    }

    /// What ends the present round, if it is known. Without it nothing can be proven void.
    pub fn closing(&self) -> Option<Closing> {
        let at_nonce = self.present().filter_map(|tx| tx.closing).find(|closing| nonce(*closing).is_some());
        if at_nonce.is_some() {
            return at_nonce;
        }
        // There is one signature per window. Should there be more, the round stays open until the last of them has expired.
        let closings = self.present().map(|tx| tx.closing).collect::<Option<Vec<_>>>()?;
        let expiration_ms = closings.into_iter().filter_map(expiration_ms).max()?;
        Some(Closing::Window { expiration_ms })
    }

    /// The transactions that can never pay once this one is final without its effect: itself, and all that share its nonce.
    /// A window excludes nothing else: another transaction in it may still land.
    pub fn ruled_out_by(&self, tx: &TxHash) -> Vec<TxHash> {
        let nonce = self.transaction(tx).and_then(WatchedTx::nonce);
        let excluded = |other: &&WatchedTx| other.hash == *tx || (nonce.is_some() && other.nonce() == nonce);
        self.present().filter(excluded).map(|tx| tx.hash).collect()
    }

    /// Whether everything known of these transactions was read from their signed bytes.
    pub fn is_proven(&self, hashes: &[TxHash]) -> bool {
        hashes.iter().all(|hash| self.transaction(hash).is_some_and(|tx| tx.proven))
    }

    /// Applies one event. Every state and every event is named, so that a new one does not compile until it is handled.
    pub fn apply(&mut self, event: Event) -> Result<Applied, IllegalTransition> {
        // A transaction of an ended round changes nothing in the present one, unless it lands.
        match &event {
            Event::Final { tx, block, .. } if self.is_of_ended_round(tx) => {
                let reason = format!("transaction {tx} of an ended round is final in block {}", block.number);
                return Ok(self.contradict(Some(*tx), reason));
            }
            Event::Seen { tx, .. } if self.is_of_ended_round(tx) => return Ok(Applied::AlreadyApplied),
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
                let void = self.present().map(|tx| tx.hash).collect();
                Ok(Applied::Step(Some(Finding::Void { void, foreign, reason, proof: None })))
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
                Ok(reopened(tx, block))
            }
            Event::Undone { block: undone } if undone == block => {
                self.state = State::Waiting;
                Ok(reopened(tx, block))
            }
            Event::Undone { .. } | Event::Overdue { .. } => Ok(Applied::AlreadyApplied),
            Event::Final { tx, block, cost, outcome } => Ok(self.end(tx, block, cost, outcome)),
            // Ours is in a block and a foreign one is final at its nonce, so one of the two is not on the canonical chain.
            // The heads will show which; until then nothing is decided.
            Event::Closed { .. } => Err(self.illegal("a closed round")),
            Event::Overturned { .. } => Err(self.illegal("an overturned end")),
            Event::NewRound => Err(self.illegal("a new round")),
        }
    }

    fn apply_ended(&mut self, ending: Ending, event: Event) -> Result<Applied, IllegalTransition> {
        match event {
            // Only agreement at depth can affect an end.
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
        let inclusion = Inclusion { tx, block_number: block.number, block_hash: Some(block.hash), cost };
        let (ending, finding) = match outcome {
            Outcome::Paid => (Ending::Settled { tx, block }, Finding::Settled(inclusion)),
            Outcome::Failed { reason, value_moved } => {
                let void = if value_moved { Vec::new() } else { self.ruled_out_by(&tx) };
                let finding = Finding::Reverted { inclusion, reason, value_moved, void, proof: None };
                (Ending::Reverted { tx, block, value_moved }, finding)
            }
            Outcome::Cancelled => {
                let void = self.ruled_out_by(&tx);
                (Ending::Cancelled { tx, block }, Finding::Cancelled { inclusion, void, proof: None })
            }
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

fn reopened(tx: TxHash, block: BlockRef) -> Applied {
    Applied::Step(Some(Finding::Reopened { tx, block_hash: Some(block.hash) }))
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
