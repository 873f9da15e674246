//! The lease over a chain's loop: among any number of replicas one follows a chain.
//!
//! Invariants: times are the database's; the token grows with each change of hands; every write of a loop goes through
//! [`Lease::fence_in`] in its own transaction, so a loop that was paused past its lease can write nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use payment::BlockRef;
use sqlx::{PgConnection, PgPool, Row as _};
use types::{ChainName, TxHash};

use crate::watch::WatchError;
use crate::watch::error::corrupt;

/// One holding of the loop over one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub chain: ChainName,
    pub token: i64,
    ttl: Duration,
}

/// What the fenced transaction found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The database's time; that of everything the transaction writes.
    pub now: DateTime<Utc>,
    /// The newest block that was agreed to be final.
    pub final_block: Option<BlockRef>,
    pub halted_reason: Option<String>,
}

impl Lease {
    /// Takes the loop if nobody else holds it. An owner's name must be that of one process at a time.
    pub async fn acquire(
        pool: &PgPool,
        chain: &ChainName,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<Self>, WatchError> {
        let token: Option<i64> = sqlx::query_scalar(include_str!("../../queries/lease_acquire.sql"))
            .bind(chain.as_str())
            .bind(owner)
            .bind(millis(ttl))
            .fetch_optional(pool)
            .await?;
        Ok(token.map(|token| Self { chain: chain.clone(), token, ttl }))
    }

    /// Proves, and lengthens, the holding inside a transaction. The row stays locked until that ends, so nobody can take
    /// over between the proof and the commit.
    pub async fn fence_in(&self, tx: &mut PgConnection) -> Result<Fence, WatchError> {
        let row = sqlx::query(include_str!("../../queries/lease_fence.sql"))
            .bind(self.chain.as_str())
            .bind(self.token)
            .bind(millis(self.ttl))
            .fetch_optional(tx)
            .await?
            .ok_or_else(|| WatchError::LeaseLost { chain: self.chain.clone() })?;
        let number: Option<i64> = row.try_get("final_number")?;
        let hash: Option<[u8; 32]> = row.try_get("final_hash")?;
        let final_block = match (number, hash) {
            (Some(number), Some(hash)) => Some(BlockRef {
                number: u64::try_from(number).map_err(|error| corrupt("final block", error))?,
                hash: TxHash(hash),
            }),
            _ => None,
        };
        Ok(Fence { now: row.try_get("now")?, final_block, halted_reason: row.try_get("halted_reason")? })
    }

    /// Lengthens the holding on its own, when there is nothing to write.
    pub async fn renew(&self, pool: &PgPool) -> Result<Fence, WatchError> {
        let mut tx = db::begin(pool).await?;
        let fence = self.fence_in(&mut tx).await?;
        tx.commit().await?;
        Ok(fence)
    }

    /// Gives the loop up, so that another replica need not wait for the lease to end.
    pub async fn release(&self, pool: &PgPool) -> Result<(), WatchError> {
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

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 1_000_000)
}
