//! A job as it is stored and worked on.

use chrono::{DateTime, Utc};
use payment::{Action, AssetRef, Transfer};
use serde::{Deserialize, Serialize};
use telemetry::TraceContext;
use types::{
    Address, AssetId, AssetSymbol, ChainName, Decimals, JobId, Priority, RawAmount, TxHash, WalletGroupId,
    WalletId, WithdrawalId,
};

use super::domain::{Standing, State, Wanted};

/// Which of the three queues a job belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobQueue {
    Withdrawal,
    Consolidation,
    Gas,
}

impl JobQueue {
    pub const ALL: [Self; 3] = [Self::Withdrawal, Self::Consolidation, Self::Gas];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawal => "withdrawal",
            Self::Consolidation => "consolidation",
            Self::Gas => "gas",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|queue| queue.as_str() == text)
    }

    /// The queue of one chain: what workers claim from and sleep on.
    pub fn on(self, chain: &ChainName) -> db::Queue {
        db::Queue::new(format!("{}/{chain}", self.as_str()))
    }
}

/// The wallet that pays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    pub wallet: WalletId,
    pub address: Address,
    pub group: WalletGroupId,
    pub index: u32,
}

/// One approver's consent, handed on to the signer as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub approver: String,
    /// Ed25519, in hex.
    pub signature: String,
    pub expires_at: DateTime<Utc>,
}

/// Confirmation's signed word that transactions of a job can never pay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoidProof {
    pub tx_hashes: Vec<TxHash>,
    /// Ed25519, in hex.
    pub signature: String,
    pub attested_at: DateTime<Utc>,
}

#[derive(Debug, Clone)]
pub struct Job {
    pub id: JobId,
    pub queue: JobQueue,
    pub withdrawal: Option<WithdrawalId>,
    pub chain: ChainName,
    pub asset: AssetId,
    pub symbol: AssetSymbol,
    pub decimals: Decimals,
    /// Of the token; none for the native asset.
    pub contract: Option<Address>,
    pub asset_enabled: bool,
    pub payer: Option<Payer>,
    pub to: Address,
    pub amount: RawAmount,
    pub priority: Priority,
    pub state: State,
    pub tries: u32,
    pub max_tries: u32,
    /// Pauses in a row that cost no try.
    pub waits: u32,
    pub error: Option<String>,
    /// Why it could not start when last looked at. Kept while a worker looks again, so that nobody is told twice.
    pub blocked: Option<String>,
    pub wanted: Option<Wanted>,
    pub cancel_reason: Option<String>,
    /// Whether its nonce is closed only for it to be tried again at another.
    pub retreating: bool,
    /// Whether every node refused for good what was signed last at the nonce it holds.
    pub rejected: bool,
    pub tx_hash: Option<TxHash>,
    pub requested_by: String,
    /// For whom; empty when for themselves.
    pub on_behalf_of: String,
    pub approvals: Vec<Approval>,
    pub void_proof: Option<VoidProof>,
    pub reserved: bool,
    pub fee_paid: RawAmount,
    pub imported: bool,
    /// Pays nobody: closes a nonce that nobody holds.
    pub filler: bool,
    pub trace: TraceContext,
    /// The nonce it holds.
    pub nonce: Option<u64>,
    /// Whether anything was ever signed for it.
    pub ever_signed: bool,
    /// Whether something final about it was undone, or landed though it was ruled out.
    pub contradicted: bool,
    pub due_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub broadcast_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
}

impl Job {
    pub fn standing(&self) -> Standing {
        Standing {
            state: self.state.clone(),
            holds_nonce: self.nonce.is_some(),
            giving_up: self.cancel_reason.clone(),
            retreat: self.retreating,
            rejected: self.rejected,
            may_pay_again: self.may_pay_again(),
            contradicted: self.contradicted,
            tries: self.tries,
            max_tries: self.max_tries,
        }
    }

    /// Whether it may be given another nonce: nothing was signed, or what was is proven never to pay, and that still holds.
    pub fn may_pay_again(&self) -> bool {
        self.nonce.is_none() && !self.contradicted && (!self.ever_signed || self.void_proof.is_some())
    }

    /// What the chain should see, once a payer is known.
    pub fn transfer(&self) -> Option<Transfer> {
        let payer = self.payer.as_ref()?;
        let asset = self.contract.map_or(AssetRef::Native, AssetRef::Token);
        Some(Transfer { asset, from: payer.address, to: self.to, amount: self.amount })
    }

    pub fn pay(&self) -> Option<Action> {
        self.transfer().map(Action::Pay)
    }

    pub fn cancel(&self) -> Option<Action> {
        self.payer.as_ref().map(|payer| Action::Cancel { sender: payer.address })
    }

    /// What leaves the wallet in the chain's own coin, besides the fee.
    pub fn native_amount(&self) -> RawAmount {
        if self.contract.is_none() { self.amount } else { RawAmount::ZERO }
    }

    /// The queue whose workers take it.
    pub fn line(&self) -> db::Queue {
        let queue = if self.filler { JobQueue::Withdrawal } else { self.queue };
        queue.on(&self.chain)
    }
}
