//! Evidence taken in: loads watches, applies what is known of them, and writes states, observations, verdicts and the
//! messages about them in the caller's transaction.
//!
//! The one place where a state changes because of the chain. The caller's transaction is fenced by the chain's lease,
//! so of two replicas only one gets here.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use db::outbox::{self, OutboxMessage};
use payment::BlockRef;
use prost::Message as _;
use proto::execution::v1::RecordVerdictRequest;
use sqlx::PgConnection;
use telemetry::propagation;
use tracing::Instrument as _;
use types::{JobId, TxHash};
use uuid::Uuid;

use super::domain::{Applied, Event, Finding, State};
use super::error::WatchError;
use super::repo::{self, Changed, Observation, VerdictRow};
use super::row::Stored;
use super::verdict::{self, AttestationKey};
use crate::delivery::topic;

/// What is known about one job.
#[derive(Debug, Clone)]
pub struct Evidence {
    pub job: JobId,
    pub event: Event,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Recorded {
    pub findings: Vec<(JobId, &'static str)>,
}

impl Recorded {
    pub fn count(&self, kind: &str) -> usize {
        self.findings.iter().filter(|(_, found)| *found == kind).count()
    }
}

/// Applies events in the order given.
pub async fn record_in(
    tx: &mut PgConnection,
    key: &AttestationKey,
    now: DateTime<Utc>,
    evidence: Vec<Evidence>,
) -> Result<Recorded, WatchError> {
    let mut by_job: BTreeMap<JobId, Vec<Event>> = BTreeMap::new();
    for Evidence { job, event } in evidence {
        by_job.entry(job).or_default().push(event);
    }
    let jobs: Vec<JobId> = by_job.keys().copied().collect();
    if jobs.is_empty() {
        return Ok(Recorded::default());
    }
    let mut taken = Taken::default();
    let mut changed = Vec::new();
    for mut stored in repo::load_in(tx, &jobs).await? {
        let events = by_job.remove(&stored.watch.job).unwrap_or_default();
        if taken.apply(&mut stored, events) {
            changed.push(stored);
        }
    }
    let saves: Vec<Changed<'_>> = changed.iter().map(|stored| Changed { stored, renewed: false }).collect();
    repo::save_in(tx, &saves).await?;
    repo::observe_in(tx, &taken.observations).await?;
    tell_in(tx, key, now, &changed, &taken.findings).await?;
    Ok(Recorded { findings: taken.findings.iter().map(|(job, finding)| (*job, finding.kind())).collect() })
}

#[derive(Default)]
struct Taken {
    findings: Vec<(JobId, Finding)>,
    observations: Vec<Observation>,
}

impl Taken {
    /// Whether the watch must be saved.
    fn apply(&mut self, stored: &mut Stored, events: Vec<Event>) -> bool {
        let job = stored.watch.job;
        let mut dirty = false;
        for event in events {
            let (kind, tx, block, detail) = describe(&event);
            match stored.watch.apply(event) {
                Ok(Applied::AlreadyApplied) => continue,
                Ok(Applied::Step(finding)) => {
                    stored.delayed_reason.clear();
                    self.findings.extend(finding.map(|finding| (job, finding)));
                    self.observations.push(Observation { job, kind, tx, block, detail });
                }
                // Evidence that contradicts what is known decides nothing. It is kept and shown until it resolves.
                Err(illegal) => {
                    if stored.delayed_reason == illegal.to_string() {
                        continue;
                    }
                    tracing::error!(%job, error = %illegal, detail, "contradictory evidence; no verdict");
                    metrics::counter!("bursar_confirmation_contradictory_evidence_total").increment(1);
                    stored.delayed_reason = illegal.to_string();
                    let detail = format!("{illegal}: {detail}");
                    self.observations.push(Observation { job, kind: "delayed", tx, block, detail });
                }
            }
            dirty = true;
        }
        dirty
    }
}

fn describe(event: &Event) -> (&'static str, Option<TxHash>, Option<BlockRef>, String) {
    match event {
        Event::Seen { tx, block } => ("seen", Some(*tx), Some(*block), String::new()),
        Event::Undone { block } => ("undone", None, Some(*block), String::new()),
        Event::Final { tx, block, outcome, .. } => ("final", Some(*tx), Some(*block), format!("{outcome:?}")),
        Event::Closed { foreign, block, reason } => ("closed", *foreign, Some(*block), reason.clone()),
        Event::Overdue { newest, waited } => {
            ("overdue", Some(*newest), None, format!("waited {} s", waited.num_seconds()))
        }
        Event::Overturned { reason } => ("contradicted", None, None, reason.clone()),
        Event::NewRound => ("round", None, None, String::new()),
    }
}

/// Writes verdicts and the messages that carry them. Last in the transaction: it holds the lanes of the outbox.
async fn tell_in(
    tx: &mut PgConnection,
    key: &AttestationKey,
    now: DateTime<Utc>,
    changed: &[Stored],
    findings: &[(JobId, Finding)],
) -> Result<(), WatchError> {
    if findings.is_empty() {
        return Ok(());
    }
    let by_job: BTreeMap<JobId, &Stored> = changed.iter().map(|stored| (stored.watch.job, stored)).collect();
    let mut rows = Vec::with_capacity(findings.len());
    let mut messages = Vec::with_capacity(findings.len());
    for (job, finding) in findings {
        let Some(stored) = by_job.get(job) else { continue };
        let id = Uuid::now_v7();
        let told = verdict::message(id, &stored.watch, finding, now, key);
        let (round, kind) = (stored.watch.round, finding.kind());
        rows.push(VerdictRow { id, job: *job, round, kind, payload: told.encode_to_vec() });
        // What is said and sent belongs to the trace of whoever asked for the payment.
        let span = tracing::info_span!("confirmation.verdict", %job, kind);
        propagation::attach(&stored.trace, &span);
        span.in_scope(|| announce(stored, finding, now));
        let request = RecordVerdictRequest { verdict: Some(told) };
        messages.push((job.to_string(), topic::RECORD_VERDICT, request.encode_to_vec(), span.clone()));
        if let Some(progress) = verdict::progress(&stored.watch, finding, now) {
            // An aggregate of its own: intent and execution do not wait for each other.
            let aggregate = format!("withdrawal/{}", progress.withdrawal_id);
            messages.push((aggregate, topic::RECORD_PROGRESS, progress.encode_to_vec(), span));
        }
    }
    repo::insert_verdicts_in(tx, &rows, now).await?;
    // Always in the same order, so that two transactions cannot wait for each other's lanes.
    messages.sort_by(|a, b| a.0.cmp(&b.0));
    for (aggregate, topic, payload, span) in messages {
        let message = OutboxMessage::new(aggregate, topic, payload);
        outbox::enqueue_in(&mut *tx, &message).instrument(span).await?;
    }
    Ok(())
}

fn announce(stored: &Stored, finding: &Finding, now: DateTime<Utc>) {
    let watch = &stored.watch;
    let chain = watch.chain.to_string();
    let kind = finding.kind();
    metrics::counter!("bursar_confirmation_verdicts_total", "chain" => chain.clone(), "kind" => kind)
        .increment(1);
    if finding.is_end()
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
