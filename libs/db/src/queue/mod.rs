//! A durable job queue: which jobs wait, and who works on which until when.
//!
//! Owns `job_ready`, `job_lease` and the fencing token (`sql/queue.sql`). It never knows what a job is: the id points into
//! the service's own tables, where its state and history live.
//!
//! Invariants:
//! - A claim is one statement; a job is leased to one owner at a time, and each claim's token is greater than any before.
//! - Every write under a lease names its token and is refused once the lease is another's or has run out by the database's
//!   clock. A paused owner that comes back can change nothing.
//! - No job is lost: it leaves `job_ready` only into a lease, and a lease only by completion or back into `job_ready`.
//! - A push while the job is leased is kept, and runs when that lease ends.
//!
//! In a transaction, call the queue last: its rows are where workers meet, and are best locked briefly.

mod claim;
mod depth;
mod lease;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::{PgConnection, Row as _};
use types::Priority;
use uuid::Uuid;

use self::claim::Places;
pub use self::depth::Depth;
pub use self::lease::Lease;
use crate::Fault;

/// The tables, for tests; a service copies `sql/queue.sql` into a migration of its own.
pub const QUEUE_SCHEMA: &str = include_str!("../../sql/queue.sql");

/// What can go wrong with a job or its lease.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    #[error("the lease on job {job_id} of queue {queue:?} is lost: token {token} no longer holds it")]
    LeaseLost { queue: String, job_id: Uuid, token: i64 },
    #[error("the job queue's database failed")]
    Database(#[from] sqlx::Error),
}

impl QueueError {
    /// A lost lease stays lost, so trying again changes nothing.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::LeaseLost { .. } => Fault::Permanent,
            Self::Database(source) => crate::classify(source),
        }
    }

    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.fault().is_transient()
    }
}

/// When a job may be claimed, counted from now by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Now,
    In(Duration),
}

impl Due {
    fn delay_ms(self) -> i64 {
        match self {
            Self::Now => 0,
            Self::In(delay) => crate::millis(delay),
        }
    }
}

/// A job to be pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewJob {
    pub job_id: Uuid,
    pub priority: Priority,
    pub due: Due,
}

/// One queue, by name (such as `withdrawal/bsc`). Cheap to clone; clones share what they learned about where to look.
#[derive(Debug, Clone)]
pub struct Queue {
    name: Arc<str>,
    places: Arc<Mutex<Places>>,
}

impl Queue {
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), places: Arc::new(Mutex::new(Places::new())) }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Queues a job and wakes whoever sleeps on this queue, both when the transaction commits. False if it waited
    /// already: then it is now due no later and no less urgent than asked.
    pub async fn push_in(
        &self,
        tx: &mut PgConnection,
        job_id: Uuid,
        priority: Priority,
        due: Due,
    ) -> Result<bool, QueueError> {
        Ok(self.push_many_in(tx, &[NewJob { job_id, priority, due }]).await? == 1)
    }

    /// Queues many at once; how many of them did not wait already.
    pub async fn push_many_in(&self, tx: &mut PgConnection, jobs: &[NewJob]) -> Result<u64, QueueError> {
        if jobs.is_empty() {
            return Ok(0);
        }
        // Each job once, since one statement cannot touch a row twice; and in the order of ids, so that two transactions
        // pushing the same jobs wait for each other instead of deadlocking.
        let mut unique: BTreeMap<Uuid, (i16, i64)> = BTreeMap::new();
        for job in jobs {
            let (rank, delay_ms) = (job.priority.rank(), job.due.delay_ms());
            let entry = unique.entry(job.job_id).or_insert((rank, delay_ms));
            *entry = (entry.0.max(rank), entry.1.min(delay_ms));
        }
        let ids: Vec<Uuid> = unique.keys().copied().collect();
        let (ranks, delays): (Vec<i16>, Vec<i64>) = unique.into_values().unzip();
        let row = sqlx::query(include_str!("../../queries/queue_push.sql"))
            .bind(self.name())
            .bind(ids)
            .bind(ranks)
            .bind(delays)
            .fetch_one(tx)
            .await?;
        let fresh: i64 = row.try_get("fresh")?;
        Ok(fresh.unsigned_abs())
    }
}
