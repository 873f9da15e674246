//! Recording evidence: loads watches, applies the events, and writes states, observations, verdicts and the messages about
//! them in the caller's transaction.
//!
//! This is the only place where a state changes because of the chain. The caller's transaction is fenced by the chain's
//! lease, so of two replicas only one gets here. Events of one job are applied in the order given, and jobs do not influence
//! each other, so evidence recorded together has the same result as evidence recorded one by one.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use db::outbox::{self, OutboxMessage};
use payment::{BlockRef, Finding, Verdict};
use prost::Message as _;
use proto::payment::write_verdict;
use proto::time::timestamp;
use proto::{execution::v1 as execution_pb, intent::v1 as intent_pb};
use sqlx::PgConnection;
use telemetry::propagation;
use types::{JobId, TxHash};
use uuid::Uuid;

use super::attestation::AttestationKey;
use super::repo::{self, Observation, ObservationKind, VerdictRow};
use crate::delivery::topic;
use crate::error::Error;
use crate::watch::repo::transactions::Sighting;
use crate::watch::repo::{self as watches, ChangedWatch};
use crate::watch::{Applied, Event, State, StoredWatch, Watch, ends_round};

#[derive(Debug, Clone)]
pub struct Evidence {
    pub job: JobId,
    pub event: Event,
}

impl From<Sighting> for Evidence {
    fn from(Sighting { job, tx, block }: Sighting) -> Self {
        Self { job, event: Event::Seen { tx, block } }
    }
}

/// Returns the names of what was found.
pub async fn record_in(
    tx: &mut PgConnection,
    key: &AttestationKey,
    now: DateTime<Utc>,
    evidence: Vec<Evidence>,
) -> Result<Vec<&'static str>, Error> {
    let mut by_job: BTreeMap<JobId, Vec<Event>> = BTreeMap::new();
    for Evidence { job, event } in evidence {
        by_job.entry(job).or_default().push(event);
    }
    let jobs: Vec<JobId> = by_job.keys().copied().collect();
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let (mut changed, mut observations) = (Vec::new(), Vec::new());
    for mut stored in watches::load_in(tx, &jobs).await? {
        let events = by_job.remove(&stored.watch.job).unwrap_or_default();
        if let Some(findings) = apply(&mut stored, events, &mut observations) {
            changed.push((stored, findings));
        }
    }
    let saves: Vec<ChangedWatch<'_>> =
        changed.iter().map(|(stored, _)| ChangedWatch { stored, renewed: false }).collect();
    watches::save_in(tx, &saves).await?;
    repo::observe_in(tx, &observations).await?;
    write_verdicts_in(tx, key, now, &changed).await?;
    Ok(changed.iter().flat_map(|(_, findings)| findings.iter().map(Finding::name)).collect())
}

/// Applies events in the order given and returns the findings, or `None` if nothing changed.
fn apply(
    stored: &mut StoredWatch,
    events: Vec<Event>,
    observations: &mut Vec<Observation>,
) -> Option<Vec<Finding>> {
    let job = stored.watch.job;
    let mut findings = None;
    for event in events {
        let (kind, tx, block, detail) = describe(&event);
        match stored.watch.apply(event) {
            Ok(Applied::AlreadyApplied) => {}
            Ok(Applied::Step(finding)) => {
                stored.delayed_reason.clear();
                findings.get_or_insert_with(Vec::new).extend(finding);
                observations.push(Observation { job, kind, tx, block, detail });
            }
            // Evidence that contradicts the state decides nothing. It is shown as the reason of the delay until it resolves.
            Err(illegal) if stored.delayed_reason == illegal.to_string() => {}
            Err(illegal) => {
                tracing::error!(%job, error = %illegal, detail, "contradictory evidence; no verdict");
                metrics::counter!("bursar_confirmation_contradictory_evidence_total").increment(1);
                stored.delayed_reason = illegal.to_string();
                findings.get_or_insert_with(Vec::new);
                let detail = format!("{illegal}: {detail}");
                observations.push(Observation { job, kind: ObservationKind::Delayed, tx, block, detail });
            }
        }
    }
    findings
}

fn describe(event: &Event) -> (ObservationKind, Option<TxHash>, Option<BlockRef>, String) {
    use ObservationKind as Kind;
    match event {
        Event::Seen { tx, block } => (Kind::Seen, Some(*tx), Some(*block), String::new()),
        Event::Undone { block } => (Kind::Undone, None, Some(*block), String::new()),
        Event::Final { tx, block, outcome, .. } => {
            (Kind::Final, Some(*tx), Some(*block), format!("{outcome:?}"))
        }
        Event::Closed { foreign, block, reason } => (Kind::Closed, *foreign, Some(*block), reason.clone()),
        Event::Overdue { newest, waited } => {
            (Kind::Overdue, Some(*newest), None, format!("waited {} s", waited.num_seconds()))
        }
        Event::Overturned { reason } => (Kind::Contradicted, None, None, reason.clone()),
        Event::NewRound => (Kind::Round, None, None, String::new()),
    }
}

/// Writes verdicts and the messages that carry them. This comes last in the transaction, because it locks lanes of the outbox.
async fn write_verdicts_in(
    tx: &mut PgConnection,
    key: &AttestationKey,
    now: DateTime<Utc>,
    changed: &[(StoredWatch, Vec<Finding>)],
) -> Result<(), Error> {
    let (mut rows, mut messages) = (Vec::new(), Vec::new());
    let found = changed.iter().flat_map(|(stored, findings)| findings.iter().map(move |it| (stored, it)));
    for (stored, finding) in found {
        let (id, job, mut finding) = (Uuid::now_v7(), stored.watch.job, finding.clone());
        key.attest(&stored.watch, &mut finding, now);
        let (round, kind) = (stored.watch.round, finding.name());
        // The log line and the messages belong to the trace of the request that began the watch.
        let span = tracing::info_span!("confirmation.verdict", %job, kind);
        propagation::attach(&stored.trace, &span);
        span.in_scope(|| report(stored, &finding, now));
        let progress = progress(&stored.watch, &finding, now);
        let verdict = write_verdict(&Verdict { id, job, at: now, finding });
        rows.push(VerdictRow { id, job, round, kind, payload: verdict.encode_to_vec() });
        let request = execution_pb::RecordVerdictRequest { verdict: Some(verdict) };
        let trace = span.in_scope(propagation::current);
        let message = OutboxMessage::new(job.to_string(), topic::RECORD_VERDICT, request.encode_to_vec());
        messages.push(message.in_trace(trace.clone()));
        if let Some(progress) = progress {
            // It has an aggregate of its own, so that intent and execution do not wait for each other.
            let aggregate = format!("withdrawal/{}", progress.withdrawal_id);
            let message = OutboxMessage::new(aggregate, topic::RECORD_PROGRESS, progress.encode_to_vec());
            messages.push(message.in_trace(trace));
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    repo::insert_in(tx, &rows, now).await?;
    Ok(outbox::enqueue_many_in(tx, &messages).await?)
}

/// The message to intent, which hears only that a withdrawal settled.
fn progress(watch: &Watch, finding: &Finding, at: DateTime<Utc>) -> Option<intent_pb::RecordProgressRequest> {
    let (Some(withdrawal), Finding::Settled(settled)) = (watch.withdrawal, finding) else { return None };
    let completed =
        intent_pb::Completed { tx_hash: settled.tx.to_string(), block_number: settled.block_number };
    Some(intent_pb::RecordProgressRequest {
        withdrawal_id: withdrawal.to_string(),
        at: Some(timestamp(at)),
        progress: Some(intent_pb::record_progress_request::Progress::Completed(completed)),
    })
}

fn report(stored: &StoredWatch, finding: &Finding, now: DateTime<Utc>) {
    let watch = &stored.watch;
    let chain = watch.chain.to_string();
    let kind = finding.name();
    metrics::counter!("bursar_confirmation_verdicts_total", "chain" => chain.clone(), "kind" => kind)
        .increment(1);
    if ends_round(finding)
        && let Ok(took) = (now - stored.created_at).to_std()
    {
        metrics::histogram!("bursar_confirmation_time_seconds", "chain" => chain, "kind" => kind)
            .record(took.as_secs_f64());
    }
    let tx = match watch.state {
        State::Included { tx, .. } => Some(tx),
        State::Ended(ending) => ending.landed().map(|(tx, _)| tx),
        State::Waiting => None,
    };
    let tx = tx.map(|hash| hash.to_string());
    match finding {
        Finding::Contradicted { reason, .. } => {
            tracing::error!(job = %watch.job, chain = %watch.chain, tx, reason, "verdict contradicted");
        }
        Finding::Settled { .. }
        | Finding::Reverted { .. }
        | Finding::Void { .. }
        | Finding::Cancelled { .. }
        | Finding::Stuck { .. }
        | Finding::Reopened { .. } => {
            tracing::info!(job = %watch.job, chain = %watch.chain, kind, tx, round = watch.round, "verdict");
        }
    }
}
