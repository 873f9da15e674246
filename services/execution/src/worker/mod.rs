//! The loops of execution: each ticks, and each is safe to run at any time and any number of times.
//!
//! `supervisor` keeps the loops of every chain running: those of each queue (`engine`), `resend`, which sends stored bytes
//! again, `lanes`, which looks after nonces, and `balances`, which reads what wallets hold. `delivery` delivers messages to
//! other services; `gauges` shows the state of jobs, queues and lanes.

pub mod balances;
pub mod delivery;
pub mod gauges;
pub mod lanes;
pub mod resend;
pub mod supervisor;

use std::time::Duration;

use crate::job::{JobError, Schedules};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Jobs claimed at once.
    pub batch: u32,
    /// How long a claim is valid without renewal.
    pub lease: Duration,
    /// Loops per chain and queue.
    pub concurrency: u32,
    /// Signatures requested in one call.
    pub sign_concurrency: usize,
    /// Transactions of one wallet that may be waiting for a block.
    pub max_unmined: u64,
    /// Bytes that no block holds are sent again after this long.
    pub resend_after: Duration,
    /// How often balances are read.
    pub balances_every: Duration,
    /// Whether a foreign transaction at one of our nonces stops the lane until a person looks.
    pub halt_on_foreign: bool,
    /// A job whose workers died this often is parked.
    pub max_lapses: u32,
    /// How often bytes that every node refuses are replaced at their nonce before the nonce is closed.
    pub max_replacements: u32,
    pub schedules: Schedules,
}

/// What stops a tick. The jobs it held are taken up again by whoever claims them next.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("the chain cannot be used")]
    Chains(#[from] crate::chains::ChainsError),
    #[error("balances could not be read")]
    Wallet(#[from] crate::wallet::WalletError),
}

impl From<sqlx::Error> for WorkError {
    fn from(error: sqlx::Error) -> Self {
        Self::Job(error.into())
    }
}

impl From<db::QueueError> for WorkError {
    fn from(error: db::QueueError) -> Self {
        Self::Job(error.into())
    }
}
