//! Sends stored bytes again: what no block holds and was not sent for a while, or was never taken by a node.
//!
//! Needs no lease: sending the same bytes twice, from two workers at once, is harmless. It never signs, never prices, and
//! decides nothing but that nodes call a transaction too cheap or refuse it for good, which it hands to the withdrawal worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chain::{Advice, Anchor, Broadcast, ChainEdge};
use payment::BindingKind;
use sqlx::{PgPool, Row as _};
use types::{Address, AttemptId, ChainName, JobId, TxHash};
use uuid::Uuid;
use worker::{Tick, TickOutcome};

use super::reject::reject_in;
use super::send::{note_sends_in, progress, unfunded};
use super::{WorkError, WorkerConfig};
use crate::chains::Chains;
use crate::job::{State, Wanted, repo};
use crate::outbox::tell_in;
use crate::sql::bigint;

/// Transactions of one wallet sent again at once.
const BATCH: i64 = 200;
/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ResendWorker {
    pool: PgPool,
    chain: ChainName,
    chains: Chains,
    config: Arc<WorkerConfig>,
}

/// Stored bytes that are due.
struct Due {
    attempt: Uuid,
    job: JobId,
    raw: Vec<u8>,
    hash: TxHash,
    /// Whether its job says that it waits for money.
    blocked: bool,
}

impl ResendWorker {
    pub fn new(pool: PgPool, chain: ChainName, chains: Chains, config: Arc<WorkerConfig>) -> Self {
        Self { pool, chain, chains, config }
    }

    /// The longest it should sleep.
    pub const EVERY: Duration = EVERY;

    async fn look_at(&self, address: Address, edge: &dyn ChainEdge) -> Result<usize, WorkError> {
        // Where the chain does not answer, nothing can be sent either.
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
        let due = self.due(&address, mined, time_ms).await?;
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

    /// The newest live transaction at each open nonce that no block holds, and whose time is not over.
    async fn due(&self, address: &Address, mined: u64, time_ms: u64) -> Result<Vec<Due>, WorkError> {
        let rows = sqlx::query(include_str!("../../queries/due_resends.sql"))
            .bind(self.chain.as_str())
            .bind(address.to_string())
            .bind(bigint(mined))
            .bind(i64::try_from(self.config.resend_after.as_millis()).unwrap_or(i64::MAX))
            .bind(BATCH)
            .bind(bigint(time_ms))
            .fetch_all(&self.pool)
            .await?;
        let due = rows.iter().map(|row| {
            let hash: Vec<u8> = row.try_get("tx_hash")?;
            let hash =
                <[u8; 32]>::try_from(hash).map_err(|_| crate::sql::bad_column("tx_hash", "not 32 bytes"))?;
            Ok(Due {
                attempt: row.try_get("id")?,
                job: JobId::from_uuid(row.try_get("job_id")?),
                raw: row.try_get("raw_transaction")?,
                hash: TxHash(hash),
                blocked: row.try_get("blocked")?,
            })
        });
        due.collect::<Result<_, sqlx::Error>>().map_err(WorkError::from)
    }

    async fn record(&self, due: &[Due], sent: &HashMap<TxHash, Broadcast>) -> Result<(), WorkError> {
        let outcome = |due: &Due| sent.get(&due.hash).map(|sent| &sent.merged);
        let mut tx = db::begin(&self.pool).await?;
        let sends: Vec<_> = due.iter().map(|due| (due.attempt, outcome(due))).collect();
        note_sends_in(&mut tx, &sends).await?;
        tx.commit().await?;
        for due in due {
            let Some(outcome) = outcome(due) else { continue };
            match outcome.advice() {
                Advice::Watch if due.blocked => self.reflect(due.job, None).await?,
                Advice::Fund => self.reflect(due.job, unfunded(outcome)).await?,
                Advice::Bump => self.ask_for_bump(due.job).await?,
                Advice::Watch | Advice::ResendSame | Advice::LookUp => {}
                Advice::Replace => {
                    let mut tx = db::begin(&self.pool).await?;
                    let attempt = AttemptId::from_uuid(due.attempt);
                    reject_in(&mut tx, &self.config, (due.job, attempt), outcome).await?;
                    tx.commit().await?;
                }
            }
        }
        Ok(())
    }

    /// Shows whether a confirming job waits for money, and tells intent when that changed.
    async fn reflect(&self, id: JobId, blocked: Option<String>) -> Result<(), WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let changed = sqlx::query(
            "UPDATE jobs SET blocked_reason = $2, updated_at = now()
             WHERE id = $1 AND status = 'confirming' AND blocked_reason IS DISTINCT FROM $2",
        );
        let before = repo::lock_in(&mut tx, id).await?;
        let changed = changed.bind(id.as_uuid()).bind(&blocked).execute(&mut *tx).await?;
        if changed.rows_affected() > 0 {
            let told: Vec<_> = progress(&before, blocked.as_deref()).into_iter().collect();
            tell_in(&mut tx, &told).await.map_err(crate::job::JobError::from)?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn ask_for_bump(&self, id: JobId) -> Result<(), WorkError> {
        let mut tx = db::begin(&self.pool).await?;
        let job = repo::lock_in(&mut tx, id).await?;
        if job.state == State::Confirming && job.wanted.is_none() {
            let wanted = if job.cancel_reason.is_some() { Wanted::Cancel } else { Wanted::Bump };
            sqlx::query("UPDATE jobs SET wanted = $2, updated_at = now() WHERE id = $1")
                .bind(id.as_uuid())
                .bind(wanted.as_str())
                .execute(&mut *tx)
                .await?;
            job.line().push_in(&mut tx, id.as_uuid(), job.priority, db::Due::Now).await?;
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
        let format = handle.settings.kind.address_format();
        let lanes: Vec<String> = sqlx::query_scalar(include_str!("../../queries/busy_lanes.sql"))
            .bind(self.chain.as_str())
            .fetch_all(&self.pool)
            .await?;
        let mut sent = 0;
        for address in lanes.iter().filter_map(|text| Address::parse(format, text).ok()) {
            sent += self.look_at(address, &*handle.edge).await?;
        }
        Ok(if sent > 0 { TickOutcome::Worked } else { TickOutcome::Idle { next: None } })
    }
}
