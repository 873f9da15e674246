//! Reads what the wallets of a chain hold, on a timer.

use std::time::{Duration, Instant};

use sqlx::PgPool;
use types::ChainName;
use worker::{Tick, TickOutcome};

use super::WorkError;
use crate::wallet::Wallets;

/// How often it looks whether a wallet was never read.
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

    /// Whether a wallet or an asset is new and nothing is known about it.
    async fn unread(&self) -> Result<bool, WorkError> {
        let unread: bool = sqlx::query_scalar(
            "SELECT EXISTS (
                 SELECT FROM wallet_holdings AS h JOIN operation_wallets AS w ON w.id = h.wallet_id
                 WHERE w.chain = $1 AND w.status <> 'retired' AND h.refreshed_at IS NULL
             )",
        )
        .bind(self.chain.as_str())
        .fetch_one(&self.pool)
        .await?;
        Ok(unread)
    }
}

impl Tick for BalanceWorker {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
        if due || self.unread().await? {
            self.last = Some(Instant::now());
            self.wallets.refresh(&self.chain, &[]).await?;
        }
        Ok(TickOutcome::Idle { next: None })
    }
}
