//! A job as it is stored and worked on.

use chrono::{DateTime, Utc};
use payment::{Action, AssetRef, Transfer, VoidProof};
use serde::{Deserialize, Serialize};
use telemetry::TraceContext;
use types::{
    Address, AssetId, AssetSymbol, ChainName, Decimals, JobId, Priority, RawAmount, TxHash, WalletGroupId,
    WalletId, WithdrawalId,
};

use super::state::{Event, IllegalTransition, State, Step};
use super::transitions::Tries;
use crate::queue::JobQueue;

/// The wallet that pays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    pub wallet: WalletId,
    pub address: Address,
    pub group: WalletGroupId,
    pub index: u32,
}

/// One approver's consent, handed on to the signer unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub approver: String,
    /// Ed25519, in hex.
    pub signature: String,
    pub expires_at: DateTime<Utc>,
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
    /// Contract of the token; none for the native asset.
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
    /// Why it could not go on when last looked at. Kept while a worker looks again, so that nobody is notified twice.
    pub blocked: Option<String>,
    pub tx_hash: Option<TxHash>,
    pub requested_by: String,
    /// Empty when the requester acted for themselves.
    pub on_behalf_of: String,
    pub approvals: Vec<Approval>,
    pub void_proof: Option<VoidProof>,
    pub reserved: bool,
    pub fee_paid: RawAmount,
    pub imported: bool,
    /// Pays nobody: closes a nonce that nobody holds.
    pub filler: bool,
    pub trace: TraceContext,
    /// The place it holds in its wallet's lane: a nonce, or, on chains without nonces, a number that no chain knows.
    pub nonce: Option<u64>,
    /// Whether anything was ever signed for it.
    pub ever_signed: bool,
    pub due_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub broadcast_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
}

impl Job {
    pub fn apply(&self, event: &Event) -> Result<Step, IllegalTransition> {
        self.state.apply(event, Tries { made: self.tries, allowed: self.max_tries })
    }

    /// The movement of money that the chain should show, once a payer is known.
    pub fn transfer(&self) -> Option<Transfer> {
        let payer = self.payer.as_ref()?;
        let asset = AssetRef::of_contract(self.contract);
        Some(Transfer { asset, from: payer.address, to: self.to, amount: self.amount })
    }

    /// What the job is there to do; none while no wallet pays it, and for a filler, which only cancels.
    pub fn action(&self) -> Option<Action> {
        match self.queue.kind() {
            Some(kind) => kind.action(self),
            None => self.transfer().map(Action::Pay),
        }
    }

    pub fn cancellation(&self) -> Option<Action> {
        self.payer.as_ref().map(|payer| Action::Cancel { sender: payer.address })
    }

    /// The queue whose workers take it: fillers are worked on with withdrawals, whose nonces they unblock.
    pub fn worked_in(&self) -> JobQueue {
        if self.filler { JobQueue::WITHDRAWAL } else { self.queue }
    }

    pub fn db_queue(&self) -> db::Queue {
        self.worked_in().on(&self.chain)
    }
}
