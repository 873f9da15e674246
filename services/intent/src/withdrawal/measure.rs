//! Metrics of withdrawal requests. They are recorded after the commit, never inside a transaction.

use chrono::{DateTime, TimeDelta, Utc};

use super::approval::Refusal;
use super::domain::{IllegalTransition, State, Transition};
use super::request::Withdrawal;
use crate::limit::Limit;

pub fn describe() {
    metrics::describe_counter!(
        "bursar_intent_transitions_total",
        "Changes of withdrawals, by status reached"
    );
    metrics::describe_counter!("bursar_intent_refused_approvals_total", "Approvals refused, by reason");
    metrics::describe_counter!("bursar_intent_limit_refusals_total", "Requests refused by a limit, by scope");
    metrics::describe_counter!(
        "bursar_intent_contradictions_total",
        "Progress that contradicts what is recorded: an operator must look"
    );
    metrics::describe_histogram!("bursar_intent_approval_seconds", "From creation to quorum");
    metrics::describe_histogram!("bursar_intent_completion_seconds", "From quorum to final payment");
    // An alert on this counter needs a zero first, to see it rise.
    metrics::counter!("bursar_intent_contradictions_total").increment(0);
}

pub(super) fn created(withdrawal: &Withdrawal) {
    reached(withdrawal.state.status().into_str());
}

pub(super) fn changed(withdrawal: &Withdrawal, transitions: &[Transition]) {
    let mut moved = false;
    for transition in transitions.iter().filter(|transition| transition.from != Some(transition.to)) {
        moved = true;
        reached(transition.to.into_str());
    }
    match &withdrawal.state {
        State::Approved { approved_at, .. } if moved => {
            took("bursar_intent_approval_seconds", withdrawal.created_at, *approved_at);
        }
        State::Completed { handover, finished_at, .. } => {
            let begun = handover.approved_at.unwrap_or(handover.queued_at);
            took("bursar_intent_completion_seconds", begun, *finished_at);
        }
        State::Pending
        | State::Approved { .. }
        | State::Queued { .. }
        | State::Failed { .. }
        | State::Rejected { .. }
        | State::Cancelled { .. } => {}
    }
}

fn reached(status: &'static str) {
    metrics::counter!("bursar_intent_transitions_total", "to" => status).increment(1);
}

fn took(name: &'static str, from: DateTime<Utc>, to: DateTime<Utc>) {
    let span: TimeDelta = to - from;
    metrics::histogram!(name).record(span.to_std().unwrap_or_default().as_secs_f64());
}

pub(super) fn refused(refusal: &Refusal) {
    metrics::counter!("bursar_intent_refused_approvals_total", "reason" => refusal.reason()).increment(1);
}

pub(super) fn limit_exceeded(limit: &Limit) {
    metrics::counter!("bursar_intent_limit_refusals_total", "scope" => limit.scope.into_str()).increment(1);
}

pub(super) fn contradicted(withdrawal: &Withdrawal, illegal: &IllegalTransition, actor: &str) {
    metrics::counter!("bursar_intent_contradictions_total").increment(1);
    tracing::error!(
        withdrawal_id = %withdrawal.id, status = %illegal.status, event = illegal.event, actor, state = ?withdrawal.state,
        "reported progress contradicts what is recorded; an operator must look"
    );
}
