//! The loops of execution: each ticks, each is safe to run at any time and any number of times.
//!
//! `withdrawal` claims jobs and drives them through the write-ahead protocol, whose steps are `plan`, `price`, `reserve`,
//! `sign` and `send`; `reject` says what follows when no node takes the bytes. `resend` sends stored bytes again, `lanes` looks after nonces, `balances` reads what wallets hold,
//! `relay` delivers what other services must know, `gauges` shows where jobs, queues and lanes stand.

pub mod balances;
mod batch;
pub mod gauges;
pub mod lanes;
mod plan;
mod price;
mod reject;
pub mod relay;
pub mod resend;
mod reserve;
pub(crate) mod send;
mod sign;
pub mod supervisor;
pub mod withdrawal;

use std::time::Duration;

use crate::job::JobError;
use crate::job::Schedule;

/// How workers go about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Jobs claimed at once.
    pub batch: u32,
    /// How long a claim holds without a sign of life.
    pub lease: Duration,
    /// Loops per chain and queue.
    pub concurrency: u32,
    /// Signatures asked for in one call.
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
    pub schedule: Schedule,
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
