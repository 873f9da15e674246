//! The lease over a chain: among any number of replicas one follows it.
//!
//! Invariants: times are the database's; the token grows each time another process takes the lease; every write of a loop
//! goes through [`Lease::fence_in`] in its own transaction, so a loop that was paused past its lease can write nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use payment::BlockRef;
use sqlx::{PgConnection, PgPool, Row as _};
use types::ChainName;

use crate::columns;
use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub chain: ChainName,
    pub token: i64,
    ttl: Duration,
}

/// What a fenced transaction read when it proved the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The database's time; that of everything the transaction writes.
    pub now: DateTime<Utc>,
    /// The newest block that was agreed to be final.
    pub final_block: Option<BlockRef>,
    pub halted_reason: Option<String>,
}

impl Lease {
    /// Takes the lease if nobody else holds it. Two processes must never use the same owner name at one time.
    pub async fn acquire(
        pool: &PgPool,
        chain: &ChainName,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<Self>, Error> {
        let token: Option<i64> = sqlx::query_scalar(include_str!("../../../queries/lease_acquire.sql"))
            .bind(chain.as_str())
            .bind(owner)
            .bind(columns::millis(ttl))
            .fetch_optional(pool)
            .await?;
        Ok(token.map(|token| Self { chain: chain.clone(), token, ttl }))
    }

    /// Proves and extends the lease inside a transaction. The row stays locked until that ends, so nobody can take over
    /// between the proof and the commit.
    pub async fn fence_in(&self, tx: &mut PgConnection) -> Result<Fence, Error> {
        let row = sqlx::query(include_str!("../../../queries/lease_fence.sql"))
            .bind(self.chain.as_str())
            .bind(self.token)
            .bind(columns::millis(self.ttl))
            .fetch_optional(tx)
            .await?
            .ok_or_else(|| Error::LeaseLost { chain: self.chain.clone() })?;
        Ok(Fence {
            now: row.try_get("now")?,
            final_block: columns::optional_block(&row, "final")?,
            halted_reason: row.try_get("halted_reason")?,
        })
    }

    /// Extends the lease when there is nothing else to write.
    pub async fn renew(&self, pool: &PgPool) -> Result<Fence, Error> {
        let mut tx = db::begin(pool).await?;
        let fence = self.fence_in(&mut tx).await?;
        tx.commit().await?;
        Ok(fence)
    }

    /// Ends the lease, so that another replica need not wait until it expires.
    pub async fn release(&self, pool: &PgPool) -> Result<(), Error> {
        sqlx::query(
            "UPDATE chain_loops SET lease_owner = NULL, lease_until = NULL WHERE chain = $1 AND lease_token = $2",
        )
        .bind(self.chain.as_str())
        .bind(self.token)
        .execute(pool)
        .await?;
        Ok(())
    }

    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}
