//! Conversions between the messages of the contract and domain values.

use chrono::{DateTime, SubsecRound as _, Utc};
use proto::intent::v1 as pb;
use proto::time::timestamp;
use strum::VariantArray as _;

use crate::limit::{self, Limit};
use crate::policy::Policy;
use crate::withdrawal::Withdrawal;
use crate::withdrawal::approval::Approval;
use crate::withdrawal::domain::{State, Status, Transition};
use types::format_amount;

/// Cut to the precision of the database, so that later comparisons use the stored value.
pub(super) fn to_micros(at: DateTime<Utc>) -> DateTime<Utc> {
    at.trunc_subsecs(6)
}

pub(super) fn status(status: Status) -> pb::WithdrawalStatus {
    match status {
        Status::Pending => pb::WithdrawalStatus::Pending,
        Status::Approved => pb::WithdrawalStatus::Approved,
        Status::Queued => pb::WithdrawalStatus::Queued,
        Status::Completed => pb::WithdrawalStatus::Completed,
        Status::Failed => pb::WithdrawalStatus::Failed,
        Status::Rejected => pb::WithdrawalStatus::Rejected,
        Status::Cancelled => pb::WithdrawalStatus::Cancelled,
    }
}

/// `None` for "any".
pub(super) fn status_from(value: pb::WithdrawalStatus) -> Option<Status> {
    Status::VARIANTS.iter().copied().find(|known| status(*known) == value)
}

/// `None` for an unknown priority.
pub(super) fn priority_from(value: i32) -> Option<types::Priority> {
    match pb::Priority::try_from(value).ok()? {
        pb::Priority::Unspecified | pb::Priority::Normal => Some(types::Priority::Normal),
        pb::Priority::Low => Some(types::Priority::Low),
        pb::Priority::High => Some(types::Priority::High),
        pb::Priority::Urgent => Some(types::Priority::Urgent),
    }
}

fn priority(value: types::Priority) -> pb::Priority {
    match value {
        types::Priority::Low => pb::Priority::Low,
        types::Priority::Normal => pb::Priority::Normal,
        types::Priority::High => pb::Priority::High,
        types::Priority::Urgent => pb::Priority::Urgent,
    }
}

fn approval(approval: &Approval) -> pb::Approval {
    pb::Approval {
        approver: approval.approver.clone(),
        signature: approval.signature.to_vec(),
        expires_at: Some(timestamp(approval.expires_at)),
        approved_at: Some(timestamp(approval.approved_at)),
    }
}

pub(super) fn withdrawal(from: &Withdrawal) -> pb::Withdrawal {
    let (payload, state) = (&from.payload, &from.state);
    let (hash, block) = match state {
        State::Completed { tx_hash, block, .. } => (tx_hash.in_format(payload.destination.format()), *block),
        _ => (String::new(), 0),
    };
    pb::Withdrawal {
        id: from.id.to_string(),
        idempotency_key: from.key.as_str().to_owned(),
        user_id: payload.user_id.to_string(),
        chain: payload.chain.to_string(),
        asset: payload.asset.to_string(),
        amount: payload.amount_text(),
        amount_raw: payload.amount.to_string(),
        destination: payload.destination.to_string(),
        memo: payload.memo.clone(),
        priority: priority(payload.priority).into(),
        status: status(state.status()).into(),
        blocked_reason: state.blocked_reason().unwrap_or_default().to_owned(),
        failure_reason: state.failure_reason().unwrap_or_default().to_owned(),
        requested_by: from.requested_by.clone(),
        on_behalf_of: from.payload.on_behalf_of.clone(),
        required_approvals: from.required_approvals,
        approvals: from.approvals.iter().map(approval).collect(),
        final_tx_hash: hash,
        final_block: block,
        payment_digest: from.digest().to_string(),
        labels: payload.labels.clone().into_iter().collect(),
        created_at: Some(timestamp(from.created_at)),
        updated_at: Some(timestamp(from.updated_at)),
        approved_at: state.approved_at().map(timestamp),
        queued_at: state.queued_at().map(timestamp),
        finished_at: state.finished_at().map(timestamp),
    }
}

pub(super) fn transition(from: &Transition) -> pb::Transition {
    pb::Transition {
        sequence: from.sequence,
        from: from.from.map_or(pb::WithdrawalStatus::Unspecified, status).into(),
        to: status(from.to).into(),
        actor: from.actor.clone(),
        detail: from.detail.clone(),
        at: Some(timestamp(from.at)),
    }
}

pub(super) fn policy(from: &Policy) -> pb::ApprovalPolicy {
    let tier = |tier: &crate::policy::Tier| pb::ApprovalTier {
        from_amount: format_amount(tier.from, from.decimals),
        required_approvals: tier.required,
    };
    pb::ApprovalPolicy {
        chain: from.chain.to_string(),
        asset: from.asset.to_string(),
        tiers: from.tiers.iter().map(tier).collect(),
        approvers: from.approvers.clone(),
    }
}

pub(super) fn limit(from: &Limit) -> pb::Limit {
    let scope = match from.scope {
        limit::Scope::User => pb::LimitScope::User,
        limit::Scope::Asset => pb::LimitScope::Asset,
    };
    pb::Limit {
        id: from.id.to_string(),
        scope: scope.into(),
        chain: from.chain.to_string(),
        asset: from.asset.to_string(),
        window: Some(prost_types::Duration { seconds: from.window_seconds, nanos: 0 }),
        max_amount: format_amount(from.max, from.decimals),
    }
}
