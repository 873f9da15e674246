//! Approvals that take the place of expired ones.
//!
//! Where it could hurt, and what holds:
//! - The message comes twice, or an older one after a newer: the revision decides, under the job's lock.
//! - A worker is asking the signer while the approvals change: what it asks for carries the old ones and is refused, or was
//!   signed while they held; the job is in the queue again, and whoever claims it reads the new ones.
//! - Something was signed already: it needs no approval any more, and keeps those it was signed with.

use types::{JobId, WithdrawalId};

use super::{Approval, JobError, Jobs, State, repo};

/// A new set of approvals for a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    pub withdrawal: WithdrawalId,
    /// All that hold.
    pub approvals: Vec<Approval>,
    /// Grows with each renewal.
    pub revision: u64,
}

impl Jobs {
    /// Takes new approvals and lets the job go on with them. A replay changes nothing.
    pub async fn renew_approvals(&self, renewal: &Renewal) -> Result<JobId, JobError> {
        let mut tx = db::begin(&self.pool).await?;
        let id = repo::by_withdrawal(&mut *tx, renewal.withdrawal).await?.map(|job| job.id);
        let id = id.ok_or_else(|| JobError::NoJob(renewal.withdrawal.to_string()))?;
        let job = repo::lock_in(&mut tx, id).await?;
        if job.ever_signed || job.imported || job.finished_at.is_some() {
            return Ok(id);
        }
        let renewed = sqlx::query(
            "UPDATE jobs SET approvals = $2, approvals_revision = $3, updated_at = now()
             WHERE id = $1 AND approvals_revision < $3",
        )
        .bind(id.as_uuid())
        .bind(serde_json::to_value(&renewal.approvals)?)
        .bind(crate::sql::bigint(renewal.revision))
        .execute(&mut *tx)
        .await?;
        if renewed.rows_affected() == 1 {
            match job.state {
                State::Pending { .. } | State::Processing => {
                    job.line().push_in(&mut tx, id.as_uuid(), job.priority, db::Due::Now).await?;
                }
                // A person looks at it, or nothing is asked for.
                State::Parked { .. } | State::Confirming | State::Confirmed { .. } | State::Failed { .. } => {
                }
            }
            tracing::info!(
                job_id = %id, withdrawal_id = %renewal.withdrawal, approvals = renewal.approvals.len(),
                revision = renewal.revision, "approvals renewed"
            );
        }
        tx.commit().await?;
        Ok(id)
    }
}
