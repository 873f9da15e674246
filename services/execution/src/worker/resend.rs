//! Sends stored bytes again: what no block holds and was not sent for a while, or was never taken by a node.
//!
//! It needs no lease, because sending the same bytes twice, from two workers at once, is harmless. It never signs, never prices,
//! and decides nothing; that nodes call a transaction too cheap or refuse it for good, it passes on to the queue's worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chain::{Advice, Anchor, Broadcast, ChainEdge};
use payment::BindingKind;
use sqlx::PgPool;
use types::{Address, ChainName, JobId, TxHash};
use worker::{Tick, TickOutcome};

use super::{WorkError, WorkerConfig};
use crate::chains::Chains;
use crate::engine::reject::{reject_in, rejected};
use crate::engine::send::{funding_message, unfunded};
use crate::job::repo::attempts::{self, DueResend, ResendQuery, SendNote};
use crate::job::{JobError, Request, State, repo};
use crate::lane;
use crate::outbox::enqueue_in;

/// Transactions of one wallet sent again at once.
const BATCH: i64 = 200;

#[derive(Debug)]
pub struct ResendWorker {
    pool: PgPool,
    chain: ChainName,
    chains: Chains,
    config: Arc<WorkerConfig>,
}

impl ResendWorker {
    pub const EVERY: Duration = Duration::from_secs(1);

    pub fn new(pool: PgPool, chain: ChainName, chains: Chains, config: Arc<WorkerConfig>) -> Self {
        Self { pool, chain, chains, config }
    }

    async fn look_at(&self, address: Address, edge: &dyn ChainEdge) -> Result<usize, WorkError> {
        // While the chain does not answer, nothing can be sent either.
        let (mined, time_ms) = match edge.binding_kind() {
            BindingKind::Nonce => match edge.anchor(&address).await {
                Ok(Anchor::Nonce(sight)) => (sight.mined, 0),
                Ok(Anchor::Window { .. }) | Err(_) => return Ok(0),
            },
            BindingKind::Window => match edge.head().await {
                Ok(head) => (0, head.timestamp_ms),
                Err(_) => return Ok(0),
            },
        };
        let due = attempts::due_resends(
            &self.pool,
            &ResendQuery {
                chain: &self.chain,
                address: &address,
                mined,
                time_ms,
                pause_ms: i64::try_from(self.config.resend_after.as_millis()).unwrap_or(i64::MAX),
                limit: BATCH,
            },
        )
        .await?;
        if due.is_empty() {
            return Ok(0);
        }
        let raw: Vec<Vec<u8>> = due.iter().map(|due| due.raw.clone()).collect();
        let sent: HashMap<TxHash, Broadcast> =
            edge.broadcast(&raw).await.into_iter().map(|sent| (sent.hash, sent)).collect();
        tracing::info!(chain = %self.chain, %address, transactions = due.len(), "sent again");
        self.record(&due, &sent).await?;
        Ok(due.len())
    }

    async fn record(&self, due: &[DueResend], sent: &HashMap<TxHash, Broadcast>) -> Result<(), WorkError> {
        let outcome = |due: &DueResend| sent.get(&due.hash).map(|sent| &sent.merged);
        let mut tx = db::begin(&self.pool).await?;
        let sends = due.iter().map(|due| {
            let outcome = outcome(due);
            SendNote { attempt: due.attempt, outcome, rejected: outcome.and_then(rejected) }
        });
        attempts::note_sends_in(&mut tx, &sends.collect::<Vec<_>>()).await?;
        tx.commit().await?;
        for due in due {
            let Some(outcome) = outcome(due) else { continue };
            match outcome.advice() {
                Advice::Watch if due.blocked => self.show_blocked(due.job, None).await?,
                Advice::Fund => self.show_blocked(due.job, unfunded(outcome)).await?,
                Advice::Bump => self.request_bump(due.job).await?,
                Advice::Watch | Advice::ResendSame | Advice::LookUp => {}
                Advice::Replace => {
                    let mut tx = db::begin(&self.pool).await?;
                    reject_in(&mut tx, &self.config, (due.job, due.attempt), outcome).await?;
                    tx.commit().await?;
                }
            }
        }
        Ok(())
    }

    /// Shows whether a confirming job waits for money, and reports it when that changed.
    async fn show_blocked(&self, id: JobId, blocked: Option<String>) -> Result<(), WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let before = repo::lock_in(&mut tx, id).await?;
        if repo::changes::show_blocked_in(&mut tx, id, blocked.as_deref()).await? {
            let messages: Vec<_> = funding_message(&before, blocked.as_deref()).into_iter().collect();
            enqueue_in(&mut tx, &messages).await.map_err(JobError::from)?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn request_bump(&self, id: JobId) -> Result<(), WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let job = repo::lock_in(&mut tx, id).await?;
        if let State::Confirming { requested: false, closing, .. } = &job.state {
            let request = if closing.is_some() { Request::Cancel } else { Request::Bump };
            repo::changes::request_in(&mut tx, id, request).await?;
            job.db_queue().push_in(&mut tx, id.as_uuid(), job.priority, db::Due::Now).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

impl Tick for ResendWorker {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        let Some(handle) = self.chains.get(&self.chain).await? else {
            return Ok(TickOutcome::Idle { next: None });
        };
        let format = handle.settings.kind;
        let lanes = lane::repo::busy(&self.pool, &self.chain).await?;
        let mut sent = 0;
        for address in lanes.iter().filter_map(|text| Address::parse(format, text).ok()) {
            sent += self.look_at(address, &*handle.edge).await?;
        }
        Ok(if sent > 0 { TickOutcome::Worked } else { TickOutcome::Idle { next: None } })
    }
}
