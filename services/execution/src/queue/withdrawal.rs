//! Withdrawals: a hot wallet pays what approvers have signed, and intent hears how it goes.

use payment::Action;
use proto::intent::v1 as intent_pb;
use proto::intent::v1::record_progress_request::Progress;
use proto::signer::v1 as signer_pb;
use proto::signer::v1::authorization;
use types::Backoff;

use super::{JobNews, QueueKind};
use crate::job::Job;
use crate::outbox::JobMessage;
use crate::signer::Incomplete;
use crate::wallet::WalletRole;

#[derive(Debug)]
pub(super) struct Withdrawals;

impl QueueKind for Withdrawals {
    fn payer_role(&self) -> WalletRole {
        WalletRole::Hot
    }

    fn action(&self, job: &Job) -> Option<Action> {
        job.transfer().map(Action::Pay)
    }

    fn authorization(&self, job: &Job) -> Result<authorization::Kind, Incomplete> {
        let approvals = job.approvals.iter().map(|approval| signer_pb::ApprovalProof {
            approver: approval.approver.clone(),
            // A signature that cannot be read back is sent empty, and the signer refuses it.
            signature: hex::decode(&approval.signature).unwrap_or_default(),
            expires_at: Some(proto::time::timestamp(approval.expires_at)),
        });
        Ok(authorization::Kind::Withdrawal(signer_pb::WithdrawalAuthorization {
            withdrawal_id: job.withdrawal.ok_or(Incomplete("a withdrawal"))?.to_string(),
            asset: job.symbol.to_string(),
            requested_by: job.requested_by.clone(),
            on_behalf_of: job.on_behalf_of.clone(),
            approvals: approvals.collect(),
        }))
    }

    fn retries(&self) -> Backoff {
        Backoff::WITHDRAWAL
    }

    /// That a payment is complete, intent hears from confirmation, which knows.
    fn message(&self, job: &Job, news: JobNews<'_>) -> Option<JobMessage> {
        let progress = match news {
            JobNews::Blocked { reason } => {
                Progress::Blocked(intent_pb::Blocked { reason: reason.to_owned() })
            }
            JobNews::Unblocked => Progress::Unblocked(intent_pb::Unblocked {}),
            JobNews::Failed { reason } => Progress::Failed(intent_pb::Failed { reason: reason.to_owned() }),
        };
        Some(JobMessage::progress(job.withdrawal?, progress).in_trace(job.trace.clone()))
    }
}
