//! Jobs, attempts, lanes and statistics as protobuf.

use std::time::Duration;

use payment::{Action, Price};
use proto::execution::v1 as pb;
use types::format_amount;

use crate::job::{Attempt, AttemptStatus, Job, State, Statistics, Status};
use crate::lane::LaneRow;

fn show_status(status: Status) -> pb::JobStatus {
    match status {
        Status::Pending => pb::JobStatus::Pending,
        Status::Processing => pb::JobStatus::Processing,
        Status::Confirming => pb::JobStatus::Confirming,
        Status::Confirmed => pb::JobStatus::Confirmed,
        Status::Failed => pb::JobStatus::Failed,
        Status::Parked => pb::JobStatus::Parked,
    }
}

pub(super) fn show_job(job: &Job, attempts: &[Attempt]) -> pb::Job {
    let error = match &job.state {
        State::Failed { reason } | State::Parked { reason, .. } => Some(reason.clone()),
        State::Pending { .. }
        | State::Processing { .. }
        | State::Confirming { .. }
        | State::Confirmed { .. } => job.error.clone(),
    };
    pb::Job {
        id: job.id.to_string(),
        queue: job.queue.contract().into(),
        withdrawal_id: job.withdrawal.map(|id| id.to_string()).unwrap_or_default(),
        chain: job.chain.to_string(),
        asset: job.symbol.to_string(),
        wallet_id: job.payer.as_ref().map(|payer| payer.wallet.to_string()).unwrap_or_default(),
        from_address: job.payer.as_ref().map(|payer| payer.address.to_string()).unwrap_or_default(),
        to_address: job.to.to_string(),
        amount: format_amount(job.amount, job.decimals),
        amount_raw: job.amount.to_string(),
        status: show_status(job.state.status()).into(),
        priority: job.priority.to_string(),
        tries: job.tries,
        max_tries: job.max_tries,
        error: error.unwrap_or_default(),
        blocked_reason: job.blocked.clone().unwrap_or_default(),
        tx_hash: job.tx_hash.map(|hash| hash.in_format(job.to.format())).unwrap_or_default(),
        attempts: attempts.iter().map(show_attempt).collect(),
        due_at: job.due_at.map(proto::time::timestamp),
        created_at: Some(proto::time::timestamp(job.created_at)),
        updated_at: Some(proto::time::timestamp(job.updated_at)),
        finished_at: job.finished_at.map(proto::time::timestamp),
        fee_paid: job.fee_paid.to_string(),
    }
}

fn show_attempt(attempt: &Attempt) -> pb::Attempt {
    // The contract knows payments and cancellations; a call is shown as what the job is there to do.
    let kind = match attempt.action {
        Action::Pay(_) | Action::Call(_) => pb::AttemptKind::Pay,
        Action::Cancel { .. } => pb::AttemptKind::Cancel,
    };
    let status = match attempt.status {
        AttemptStatus::Reserved => pb::AttemptStatus::Reserved,
        AttemptStatus::Signed => pb::AttemptStatus::Signed,
        AttemptStatus::Broadcast => pb::AttemptStatus::Broadcast,
        AttemptStatus::Settled => pb::AttemptStatus::Settled,
        AttemptStatus::Reverted => pb::AttemptStatus::Reverted,
        AttemptStatus::Void => pb::AttemptStatus::Void,
    };
    pb::Attempt {
        id: attempt.id.to_string(),
        number: attempt.number,
        kind: kind.into(),
        status: status.into(),
        nonce: attempt.chain_nonce(),
        tx_hash: attempt.tx_hash.map(|hash| hash.in_format(attempt.sender().format())).unwrap_or_default(),
        raw_transaction: attempt.raw.clone().unwrap_or_default(),
        max_fee_per_gas: attempt.price.map(unit_price).unwrap_or_default(),
        last_error: attempt.last_error.clone().unwrap_or_default(),
        created_at: Some(proto::time::timestamp(attempt.created_at)),
        broadcast_at: attempt.broadcast_at.map(proto::time::timestamp),
        sends: attempt.sends,
        gas_used: attempt.gas_used.map(|gas| gas.to_string()).unwrap_or_default(),
        gas_price: attempt.gas_price.map(|price| price.to_string()).unwrap_or_default(),
        block_number: attempt.block_number.unwrap_or_default(),
    }
}

/// A fee limit is shown as units that cost one each, as it always was.
fn unit_price(price: Price) -> String {
    match price {
        Price::Gas { fee, .. } => fee.ceiling().to_string(),
        Price::FeeLimit { .. } => "1".to_owned(),
    }
}

pub(super) fn show_lane(lane: LaneRow) -> pb::Lane {
    pb::Lane {
        chain: lane.chain,
        address: lane.address,
        next_nonce: lane.next_nonce,
        final_nonce: lane.final_nonce,
        open_nonces: lane.open_nonces,
        spent_nonces: lane.spent_nonces,
        halted_reason: lane.halted_reason.unwrap_or_default(),
    }
}

pub(super) fn show_statistics(statistics: &Statistics) -> pb::GetStatisticsResponse {
    let counts = statistics.counts.iter().map(|count| pb::JobCount {
        queue: count.queue.contract().into(),
        chain: count.chain.to_string(),
        status: show_status(count.status).into(),
        count: count.count,
    });
    let span = |span: Duration| prost_types::Duration::try_from(span).unwrap_or_default();
    pb::GetStatisticsResponse {
        counts: counts.collect(),
        stuck: statistics.stuck,
        retry_rate_basis_points: statistics.retry_rate_basis_points,
        average_confirmation_time: statistics.average_confirmation.map(span),
        average_gas_used: statistics.average_gas.to_string(),
    }
}
