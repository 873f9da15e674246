//! States and transitions of one payment, as the signer sees it. No I/O, no clock.

use types::{Address, AssetSymbol, ChainName, JobId, RawAmount, TxHash, WithdrawalId};

use super::VerifiedVoid;

/// Names a payment for ever: its kind and its id. Another id is another payment, with an authorisation of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PaymentKey(String);

impl PaymentKey {
    pub fn withdrawal(id: WithdrawalId) -> Self {
        Self(format!("withdrawal/{id}"))
    }

    pub fn sweep(job: JobId) -> Self {
        Self(format!("sweep/{job}"))
    }

    pub fn top_up(job: JobId) -> Self {
        Self(format!("top_up/{job}"))
    }

    pub fn duty(id: &str) -> Self {
        Self(format!("duty/{id}"))
    }

    /// Takes back what [`PaymentKey::as_str`] gave; for rows that were written by this crate.
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What never changes in the life of a payment, whatever is proven void.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parties {
    pub chain: ChainName,
    pub wallet: Address,
    /// The job that executes it; fences are per job.
    pub job: JobId,
}

/// What is paid. Fixed by the first payment transaction that was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The asset; none for a contract call.
    pub asset: Option<AssetSymbol>,
    /// Receiver, or the called contract.
    pub destination: Address,
    pub amount: RawAmount,
    /// Hash of the call, for contract calls.
    pub call_hash: Option<[u8; 32]>,
    /// A native sweep sends the balance minus the fee: when the fee grows, the amount shrinks.
    pub may_shrink: bool,
}

/// Where a transaction lands: at most one transaction of a slot ever becomes final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slot {
    Nonce(u64),
    /// On a chain without nonces the transaction itself is the slot, until it expires.
    Transaction {
        id: TxHash,
        /// Its expiration, in milliseconds of block time.
        expires_ms: i64,
    },
}

/// What a transaction offers for inclusion: the most per unit of gas, and how much of that is a tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bid {
    pub ceiling: u128,
    pub tip: u128,
    pub gas_limit: u64,
}

impl Bid {
    /// Transactions on chains without nonces cannot be replaced, so they do not bid.
    pub const NONE: Self = Self { ceiling: 0, tip: 0, gas_limit: 0 };

    /// The most it can cost.
    pub fn cost(&self) -> RawAmount {
        RawAmount::from(self.ceiling).checked_mul(self.gas_limit).unwrap_or(RawAmount::MAX)
    }

    fn outbids(&self, other: &Self) -> bool {
        self.ceiling > other.ceiling && self.tip >= other.tip
    }
}

/// What the proposed transaction would do to the payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposedAction {
    Pay(Terms),
    Cancel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub parties: Parties,
    pub slot: Slot,
    pub bid: Bid,
    pub action: ProposedAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotOwner {
    pub payment: PaymentKey,
    pub generation: u32,
}

/// What is known besides the payment's own memory.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The payment transactions signed for the current slot.
    pub signed: &'a [TxHash],
    /// An attestation whose signature was checked.
    pub void: Option<&'a VerifiedVoid>,
    /// Who used the proposed nonce before.
    pub owner: Option<&'a SlotOwner>,
    /// How many replacements a slot may have.
    pub max_bumps: u32,
}

/// What was signed for the current slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Payment transactions were signed for it and no cancellation.
    Paying { bumps: u32 },
    /// A cancellation was signed for it; it will not carry another payment transaction.
    Closing {
        /// Whether a payment transaction was signed for it before, which may still land.
        live: bool,
        /// Replacements of the cancellation so far.
        bumps: u32,
    },
}

/// The guard's memory of one payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedPayment {
    pub parties: Parties,
    /// What is paid; none while only a cancellation was signed.
    pub terms: Option<Terms>,
    pub generation: u32,
    pub slot: Slot,
    /// The highest bid signed for it.
    pub bid: Bid,
    pub state: State,
}

/// What kind of signature was granted. Its text is the stable reason in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "payment_guard.", const_into_str)]
pub enum StepKind {
    /// The first transaction of the payment.
    First,
    /// Byte for byte a transaction signed before.
    #[strum(serialize = "same_transaction")]
    Same,
    /// The same payment at the same nonce for a higher fee.
    FeeBump,
    Cancellation,
    /// A new slot, the old one being proven void or never having carried a payment.
    NewSlot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub kind: StepKind,
    pub next: GuardedPayment,
}

/// Why a signature is refused. The name of the variant is the stable reason in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "payment_guard.", const_into_str)]
pub enum GuardRefusal {
    #[error("this payment is bound to another {0}")]
    Bound(&'static str),
    /// Destination, amount, asset or call differ from what was signed first.
    #[error("{0} differs from what was signed for this payment")]
    TermsChanged(&'static str),
    /// Another nonce while the first can still land.
    #[error("a transaction for this payment exists at nonce {0} and may still land")]
    SecondNonce(u64),
    /// Another transaction without a nonce while the first can still land.
    #[error("transaction {0} for this payment may still land")]
    SecondTransaction(TxHash),
    /// A replacement must pay more, or nodes drop it and two hashes are watched for nothing.
    #[error("a replacement must offer more than {0} per unit of gas, and no smaller tip")]
    FeeNotHigher(u128),
    #[error("{0} replacements were signed for this slot, which is the limit")]
    TooManyBumps(u32),
    #[error("a cancellation was signed at this nonce")]
    Cancelled,
    /// The nonce served another payment, or an earlier slot of this one.
    #[error("nonce {0} was used before")]
    NonceSpent(u64),
    /// The attestation leaves out a transaction that could still land.
    #[error("the void attestation does not cover {0}")]
    VoidIncomplete(TxHash),
    #[error("the void attestation is for another job")]
    VoidOtherJob,
}

impl GuardedPayment {
    /// Decides about the first transaction of a payment nobody has signed for.
    pub fn open(proposal: Proposal, owner: Option<&SlotOwner>) -> Result<Step, GuardRefusal> {
        unspent(proposal.slot, owner)?;
        let (terms, state, kind) = match proposal.action {
            ProposedAction::Pay(terms) => (Some(terms), State::Paying { bumps: 0 }, StepKind::First),
            ProposedAction::Cancel => {
                (None, State::Closing { live: false, bumps: 0 }, StepKind::Cancellation)
            }
        };
        let next = Self {
            parties: proposal.parties,
            terms,
            generation: 0,
            slot: proposal.slot,
            bid: proposal.bid,
            state,
        };
        Ok(Step { kind, next })
    }

    /// Decides about a further transaction.
    pub fn apply(&self, proposal: Proposal, evidence: &Evidence<'_>) -> Result<Step, GuardRefusal> {
        self.check_parties(&proposal.parties)?;
        if let (ProposedAction::Pay(terms), Some(known)) = (&proposal.action, &self.terms) {
            known.check(terms)?;
        }
        if proposal.slot == self.slot {
            return self.at_same_slot(proposal, evidence.max_bumps);
        }
        let live = match self.state {
            State::Paying { .. } => true,
            State::Closing { live, .. } => live,
        };
        if live {
            self.check_void(evidence.signed, evidence.void)?;
        }
        unspent(proposal.slot, evidence.owner)?;
        let state = match &proposal.action {
            ProposedAction::Pay(_) => State::Paying { bumps: 0 },
            ProposedAction::Cancel => State::Closing { live: false, bumps: 0 },
        };
        Ok(Step { kind: StepKind::NewSlot, next: self.moved(proposal, state, self.generation + 1) })
    }

    fn at_same_slot(&self, proposal: Proposal, max_bumps: u32) -> Result<Step, GuardRefusal> {
        let same_bid = proposal.bid == self.bid;
        let counted = |bumps: u32| {
            if bumps >= max_bumps { Err(GuardRefusal::TooManyBumps(max_bumps)) } else { Ok(bumps + 1) }
        };
        let (kind, state) = match (self.state, &proposal.action) {
            (State::Paying { .. }, ProposedAction::Pay(terms))
                if same_bid && self.terms.as_ref() == Some(terms) =>
            {
                (StepKind::Same, self.state)
            }
            (State::Paying { bumps }, ProposedAction::Pay(_)) => {
                if !proposal.bid.outbids(&self.bid) {
                    return Err(GuardRefusal::FeeNotHigher(self.bid.ceiling));
                }
                (StepKind::FeeBump, State::Paying { bumps: counted(bumps)? })
            }
            (State::Paying { .. }, ProposedAction::Cancel) => {
                (StepKind::Cancellation, State::Closing { live: true, bumps: 0 })
            }
            (State::Closing { .. }, ProposedAction::Pay(_)) => return Err(GuardRefusal::Cancelled),
            (State::Closing { .. }, ProposedAction::Cancel) if same_bid => (StepKind::Same, self.state),
            // A cancellation pays nobody, so a lower bid is only useless, not harmful: the payment it competes
            // with may have been dropped at the fee cap.
            (State::Closing { live, bumps }, ProposedAction::Cancel) => {
                (StepKind::Cancellation, State::Closing { live, bumps: counted(bumps)? })
            }
        };
        Ok(Step { kind, next: self.moved(proposal, state, self.generation) })
    }

    fn moved(&self, proposal: Proposal, state: State, generation: u32) -> Self {
        let terms = match proposal.action {
            ProposedAction::Pay(terms) => Some(terms),
            ProposedAction::Cancel => self.terms.clone(),
        };
        Self { parties: proposal.parties, terms, generation, slot: proposal.slot, bid: proposal.bid, state }
    }

    fn check_parties(&self, proposed: &Parties) -> Result<(), GuardRefusal> {
        let same = [
            ("chain", self.parties.chain == proposed.chain),
            ("wallet", self.parties.wallet == proposed.wallet),
            ("job", self.parties.job == proposed.job),
        ];
        first_false(&same).map_or(Ok(()), |what| Err(GuardRefusal::Bound(what)))
    }

    fn check_void(&self, signed: &[TxHash], void: Option<&VerifiedVoid>) -> Result<(), GuardRefusal> {
        let Some(void) = void else {
            return Err(match self.slot {
                Slot::Nonce(nonce) => GuardRefusal::SecondNonce(nonce),
                Slot::Transaction { id, .. } => GuardRefusal::SecondTransaction(id),
            });
        };
        if void.job() != self.parties.job {
            return Err(GuardRefusal::VoidOtherJob);
        }
        match signed.iter().find(|hash| !void.covers(hash)) {
            Some(missing) => Err(GuardRefusal::VoidIncomplete(*missing)),
            None => Ok(()),
        }
    }
}

impl Terms {
    fn check(&self, proposed: &Self) -> Result<(), GuardRefusal> {
        let shrinks = self.may_shrink && proposed.amount < self.amount;
        let same = [
            ("asset", self.asset == proposed.asset),
            ("destination", self.destination == proposed.destination),
            ("amount", self.amount == proposed.amount || shrinks),
            ("data", self.call_hash == proposed.call_hash),
        ];
        first_false(&same).map_or(Ok(()), |what| Err(GuardRefusal::TermsChanged(what)))
    }
}

fn first_false(checks: &[(&'static str, bool)]) -> Option<&'static str> {
    checks.iter().find(|(_, holds)| !holds).map(|(what, _)| *what)
}

fn unspent(slot: Slot, owner: Option<&SlotOwner>) -> Result<(), GuardRefusal> {
    match (slot, owner) {
        (Slot::Nonce(nonce), Some(_)) => Err(GuardRefusal::NonceSpent(nonce)),
        (Slot::Nonce(_), None) | (Slot::Transaction { .. }, _) => Ok(()),
    }
}
