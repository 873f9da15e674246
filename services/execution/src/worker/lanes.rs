//! Looks after nonce lanes: finds nonces that nobody holds and that keep the ones above them from being mined, and has them
//! closed.
//!
//! A gap is normally taken by the wallet's next payment. One that stays is closed by a filler: a job that pays nobody.
//!
//! A filler costs a fee, and a node that counts wrongly could report gaps where there are none. So nothing is filled while fewer
//! nodes answer than must agree, and a gap is one only above what enough nodes have counted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chain::{Anchor, NonceCounts};
use db::Due;
use payment::BindingKind;
use sqlx::PgPool;
use types::{Address, ChainName, JobId, Priority, RawAmount};
use worker::{Tick, TickOutcome};

use super::WorkError;
use crate::chains::{ChainHandle, Chains};
use crate::job::JobError;
use crate::job::repo::inserts::filler_in;
use crate::lane::repo::{self as lanes, Taken};
use crate::queue::JobQueue;

/// Fillers made in one tick.
const BATCH: usize = 32;

#[derive(Debug)]
pub struct LaneWorker {
    pool: PgPool,
    chain: ChainName,
    chains: Chains,
    /// How long a gap may wait for a payment.
    patience: Duration,
    /// When each gap was first seen.
    seen: HashMap<(String, u64), Instant>,
}

impl LaneWorker {
    pub const EVERY: Duration = Duration::from_secs(2);

    pub fn new(pool: PgPool, chain: ChainName, chains: Chains, patience: Duration) -> Self {
        Self { pool, chain, chains, patience, seen: HashMap::new() }
    }

    async fn look_at(&mut self, address: Address, handle: &ChainHandle) -> Result<usize, WorkError> {
        let Ok(Anchor::Nonce(sight)) = handle.edge.anchor(&address).await else { return Ok(0) };
        if sight.agreed.is_none() {
            return Ok(0);
        }
        let gaps = lanes::gaps(&self.pool, &self.chain, &address, &sight, BATCH).await?;
        let text = address.to_string();
        self.seen.retain(|(of, nonce), _| *of != text || gaps.contains(nonce));
        let now = Instant::now();
        let mut ripe = Vec::new();
        for nonce in gaps {
            let since = *self.seen.entry((text.clone(), nonce)).or_insert(now);
            if now.duration_since(since) >= self.patience {
                ripe.push(nonce);
            }
        }
        if ripe.is_empty() {
            return Ok(0);
        }
        self.fill(&address, &sight, &ripe).await
    }

    /// Makes a filler for each gap that is still one under the lane's lock.
    async fn fill(&self, address: &Address, sight: &NonceCounts, gaps: &[u64]) -> Result<usize, WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let Some(mut state) = lanes::lock_in(&mut tx, &self.chain, address, sight).await? else {
            return Ok(0);
        };
        let mut taken = Vec::new();
        for nonce in gaps {
            if state.lane.fill(*nonce).is_ok() {
                taken.push(Taken { nonce: *nonce, job: JobId::new(), committed: RawAmount::ZERO });
            }
        }
        for filler in &taken {
            filler_in(&mut tx, filler.job, &self.chain, address, filler.nonce).await?;
        }
        let written = lanes::take_in(&mut tx, &self.chain, address, state.lane.next, &taken).await?;
        if written != taken.len() as u64 {
            return Err(JobError::Conflict.into());
        }
        let queue = JobQueue::WITHDRAWAL.on(&self.chain);
        for filler in &taken {
            queue.push_in(&mut tx, filler.job.as_uuid(), Priority::Urgent, Due::Now).await?;
        }
        tx.commit().await?;
        if !taken.is_empty() {
            tracing::warn!(chain = %self.chain, %address, ?gaps, "gaps in a lane are being closed");
            metrics::counter!("bursar_execution_gaps_filled_total", "chain" => self.chain.to_string())
                .increment(taken.len() as u64);
        }
        Ok(taken.len())
    }
}

impl Tick for LaneWorker {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        let Some(handle) = self.chains.get(&self.chain).await? else {
            return Ok(TickOutcome::Idle { next: None });
        };
        // Without nonces there are no gaps.
        if handle.edge.binding_kind() == BindingKind::Window {
            return Ok(TickOutcome::Idle { next: None });
        }
        let format = handle.settings.kind;
        let busy = lanes::busy(&self.pool, &self.chain).await?;
        for address in busy.iter().filter_map(|text| Address::parse(format, text).ok()) {
            self.look_at(address, &handle).await?;
        }
        Ok(TickOutcome::Idle { next: None })
    }
}
