//! Reads the balances of a chain's wallets, on a timer.

use std::time::{Duration, Instant};

use sqlx::PgPool;
use types::ChainName;
use worker::{Tick, TickOutcome};

use super::WorkError;
use crate::wallet::{self, Wallets};

/// How often it looks for wallets that were never read.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct BalanceWorker {
    pool: PgPool,
    chain: ChainName,
    wallets: Wallets,
    every: Duration,
    last: Option<Instant>,
}

impl BalanceWorker {
    pub const EVERY: Duration = EVERY;

    pub fn new(pool: PgPool, chain: ChainName, wallets: Wallets, every: Duration) -> Self {
        Self { pool, chain, wallets, every, last: None }
    }
}

impl Tick for BalanceWorker {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
        if due || wallet::repo::has_unread(&self.pool, &self.chain).await? {
            self.last = Some(Instant::now());
            self.wallets.refresh(&self.chain, &[]).await?;
        }
        Ok(TickOutcome::Idle { next: None })
    }
}
