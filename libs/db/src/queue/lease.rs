//! What an owner may do with a lease: check it, extend it, end it.
//!
//! Every statement (`queries/lease_*.sql`) names the token and compares with the database's clock; this process's clock decides
//! nothing.
//!
//! Tokens are never issued twice, so in a batch a job id and a token from the two lists can only be a pair. The statements
//! compare the queue by `IS NOT DISTINCT FROM`, which no index serves, so that the planner has to look leases up by the job
//! id. With `=` a plan made while the table was empty could read all leases of the queue instead, at every execution. Lists
//! are wrapped in SELECT, so that one plan serves all lengths.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool, Row as _};
use types::Priority;
use uuid::Uuid;

use super::{Queue, QueueError};

/// One claim of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub job_id: Uuid,
    /// Greater than that of any earlier claim: whoever sees a smaller one is looking at a former owner.
    pub token: i64,
    pub owner: String,
    pub priority: Priority,
    /// How often a lease on this job ran out.
    pub lapses: u32,
    pub due_at: DateTime<Utc>,
    pub claimed_at: DateTime<Utc>,
    /// By the database's clock. It is for display: comparing it with our own clock proves nothing.
    pub lease_until: DateTime<Utc>,
}

impl Queue {
    /// Locks those leases of a batch that still hold until the transaction ends; returns their jobs. Whatever the transaction
    /// then writes about them is written by their owner: nobody can take them before it commits.
    pub async fn guard_many_in(
        &self,
        tx: &mut PgConnection,
        leases: &[Lease],
    ) -> Result<Vec<Uuid>, QueueError> {
        let (ids, tokens) = sorted(leases);
        let held = sqlx::query_scalar(include_str!("../../queries/lease_guard.sql"));
        Ok(held.bind(self.name()).bind(ids).bind(tokens).fetch_all(tx).await?)
    }

    /// Extends those leases that still hold to `ttl` from now, and returns them. A lease that is not returned is lost.
    pub async fn extend_many(
        &self,
        pool: &PgPool,
        leases: &[Lease],
        ttl: Duration,
    ) -> Result<Vec<Lease>, QueueError> {
        let (ids, tokens) = sorted(leases);
        let rows = sqlx::query(include_str!("../../queries/lease_extend.sql"))
            .bind(self.name())
            .bind(ids)
            .bind(tokens)
            .bind(crate::millis(ttl))
            .fetch_all(pool)
            .await?;
        let mut until: BTreeMap<Uuid, DateTime<Utc>> = BTreeMap::new();
        for row in rows {
            until.insert(row.try_get("job_id")?, row.try_get("lease_until")?);
        }
        let held = leases.iter().filter_map(|lease| {
            until.get(&lease.job_id).map(|lease_until| Lease { lease_until: *lease_until, ..lease.clone() })
        });
        Ok(held.collect())
    }

    /// Ends the job, together with what the transaction says about it.
    pub async fn complete_in(&self, tx: &mut PgConnection, lease: &Lease) -> Result<(), QueueError> {
        match self.complete_many_in(tx, std::slice::from_ref(lease)).await?.as_slice() {
            [] => {
                let queue = self.name().to_owned();
                Err(QueueError::LeaseLost { queue, job_id: lease.job_id, token: lease.token })
            }
            _ => Ok(()),
        }
    }

    /// Ends many jobs at once; returns those that were still held. The lease of a job that is not returned is lost.
    pub async fn complete_many(&self, pool: &PgPool, leases: &[Lease]) -> Result<Vec<Uuid>, QueueError> {
        let mut connection = pool.acquire().await?;
        self.complete_many_in(&mut connection, leases).await
    }

    /// The same as part of a transaction, or on a connection the caller keeps.
    pub async fn complete_many_in(
        &self,
        tx: &mut PgConnection,
        leases: &[Lease],
    ) -> Result<Vec<Uuid>, QueueError> {
        let (ids, tokens) = sorted(leases);
        let ended = sqlx::query_scalar(include_str!("../../queries/lease_complete.sql"));
        Ok(ended.bind(self.name()).bind(ids).bind(tokens).fetch_all(tx).await?)
    }
}

/// In the order of ids, so that two statements over the same leases (a heartbeat and a completion) lock them alike.
fn sorted(leases: &[Lease]) -> (Vec<Uuid>, Vec<i64>) {
    let mut pairs: Vec<(Uuid, i64)> = leases.iter().map(|lease| (lease.job_id, lease.token)).collect();
    pairs.sort_unstable();
    pairs.into_iter().unzip()
}
