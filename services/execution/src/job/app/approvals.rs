//! Approvals that replace expired ones.
//!
//! - The message comes twice, or an older one after a newer: the revision decides, under the job's lock.
//! - A worker is requesting a signature while the approvals change: its request carries the old ones and is refused, or was
//!   signed while they were valid; the job is in the queue again, and whoever claims it reads the new ones.
//! - Something was signed already: it needs no approval any more, and keeps those it was signed with.

use types::{JobId, WithdrawalId};

use super::Jobs;
use crate::job::{Approval, JobError, State, repo};

/// A new set of approvals for a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    pub withdrawal: WithdrawalId,
    /// All that are valid.
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
        let Renewal { approvals, revision, .. } = renewal;
        if repo::changes::renew_approvals(&mut *tx, id, approvals, *revision).await? {
            match job.state {
                State::Pending { .. } | State::Processing { .. } => {
                    job.db_queue().push_in(&mut tx, id.as_uuid(), job.priority, db::Due::Now).await?;
                }
                // A person looks at it, or nothing is to be signed.
                State::Parked { .. }
                | State::Confirming { .. }
                | State::Confirmed { .. }
                | State::Failed { .. } => {}
            }
            tracing::info!(
                job_id = %id, withdrawal_id = %renewal.withdrawal, approvals = approvals.len(),
                revision, "approvals renewed"
            );
        }
        tx.commit().await?;
        Ok(id)
    }
}
