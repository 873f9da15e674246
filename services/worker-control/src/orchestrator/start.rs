//! Starting workers that are due: first the admission in Redis, then the process, then its record in Redis.
//!
//! Invariants: an incarnation is admitted before its process exists, so a process that nobody admitted can never take a
//! worker's lock; the orchestrator checks its own lock again between admission and start; a process that a crash leaves
//! behind in between is found by its environment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use worker::WorkerId;

use super::{Orchestrator, PendingWork};
use crate::config::Orphans;
use crate::member::{Member, Phase, RemoteIncarnation, Running};
use crate::process::{self, Identity, Launch};
use crate::registry::{Admission, AdmissionOutcome};

/// Workers started in one step; the loop handles other events between steps.
const BATCH: usize = 64;
/// Pause before the first round after a start.
const FIRST_ROUND_PAUSE: Duration = Duration::from_secs(1);
/// Pause after Redis failed to answer in the middle of a start.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Orchestrator {
    pub(super) async fn start_due(&mut self) {
        let now = Instant::now();
        let due = |member: &Member| matches!(member.phase, Phase::Due { at } if at <= now);
        if self.starts_paused_until.is_some_and(|until| now < until) || !self.members.values().any(due) {
            return;
        }
        if self.sweep_due {
            // A worker must not start while children of its last incarnation may still run.
            self.sweep().await;
        }
        let due = self.members.values().filter(|member| due(member)).take(BATCH);
        let asked: Vec<Admission> = due.map(admission).collect();
        let (writer, registry) = (self.writer(), self.registry.clone());
        let admitted = join_all(asked.iter().map(|asked| registry.admit(&writer, asked))).await;
        let mut started = Vec::new();
        for (asked, admitted) in asked.into_iter().zip(admitted) {
            match admitted {
                Ok(AdmissionOutcome::Admitted) => started.extend(self.start_one(asked)),
                Ok(AdmissionOutcome::Held(by)) => self.defer_locked(&asked.id, &by),
                // The next round finds out who leads.
                Ok(AdmissionOutcome::Fenced) => self.next_round = self.next_round.min(Instant::now()),
                Err(error) => {
                    self.redis_failed(&error);
                    self.postpone(&asked.id, RETRY_PAUSE);
                }
            }
        }
        if !started.is_empty() {
            self.next_round = self.next_round.min(Instant::now() + FIRST_ROUND_PAUSE);
        }
        let running = |id: &WorkerId| self.members.get(id).and_then(Member::process);
        let records = started.iter().filter_map(|id| Some(registry.record(&writer, id, running(id)?)));
        let recorded = join_all(records).await;
        for error in recorded.into_iter().filter_map(Result::err) {
            self.pending = self.pending.max(PendingWork::Record);
            self.redis_failed(&error);
        }
    }

    fn start_one(&mut self, admitted: Admission) -> Option<WorkerId> {
        // This process may have been paused since the admission; then another orchestrator leads and admits its own.
        if !self.lead.leads() {
            return None;
        }
        let Admission { id, incarnation, fingerprint, .. } = admitted;
        let output = self.outputs.file(&id);
        self.outputs.follow(&id);
        let member = self.members.get(&id)?;
        let environment = self.environment(member, &incarnation, &fingerprint);
        let launch = Launch {
            command: &member.spec.command,
            withheld_prefix: &self.withheld_prefix,
            environment,
            output: &output,
            lifeline: self.config.orphans == Orphans::Exit,
        };
        let started = process::start(&launch);
        let now = Instant::now();
        let member = self.members.get_mut(&id)?;
        member.remote = None;
        self.changed = true;
        match started {
            Ok(child) => {
                let pid = child.id();
                // A child that is dead already has no start time. Its pid is safe, because it is ours until it is reaped.
                let identity = Identity::of(pid).unwrap_or(Identity { pid, started: 0 });
                tracing::info!(worker = %id, pid, incarnation, "started");
                member.started(Running {
                    identity,
                    incarnation,
                    fingerprint,
                    child: Some(child),
                    since: now,
                });
                metrics::counter!("bursar_worker_control_starts_total", "worker" => id.to_string())
                    .increment(1);
                Some(id)
            }
            Err(error) => {
                let how = format!("cannot be started: {error}");
                member.failed(now, &how, &self.config.backoff);
                tracing::error!(worker = %id, failures = member.failures, "{how}");
                None
            }
        }
    }

    /// Another incarnation holds the worker's lock, and nothing proves that it is dead.
    fn defer_locked(&mut self, id: &WorkerId, by: &str) {
        self.postpone(id, self.config.health_interval);
        let Some(member) = self.members.get_mut(id) else { return };
        // Without a loss of data its record would have been found when this orchestrator took over.
        if self.starts_paused_until.is_some() && member.remote.is_none() {
            member.remote = Some(RemoteIncarnation { incarnation: by.to_owned(), earlier_boot: false });
        }
        let reason = format!("not started: its lock is held by incarnation {by}");
        if member.last_error != reason {
            tracing::warn!(worker = %id, by, "not started: its lock is held by another incarnation");
            member.last_error = reason;
            self.changed = true;
        }
    }

    fn postpone(&mut self, id: &WorkerId, pause: Duration) {
        if let Some(member) = self.members.get_mut(id)
            && let Phase::Due { at } = &mut member.phase
        {
            *at = Instant::now() + pause;
        }
    }

    /// The worker's environment. The specification cannot override what the orchestrator sets.
    fn environment(&self, member: &Member, incarnation: &str, fingerprint: &str) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        all.insert("WORKER_DATA_DIR".to_owned(), self.config.data_dir.display().to_string());
        all.extend(member.spec.environment.clone());
        all.extend(self.config.timing.variables().into_iter().map(|(name, value)| (name.to_owned(), value)));
        let timeout = self.redis_config.timeout.as_millis().to_string();
        for (name, value) in [
            (process::ID, member.spec.id.as_str()),
            (process::INCARNATION, incarnation),
            (process::FINGERPRINT, fingerprint),
            (process::FLEET, &self.fleet_id),
            ("WORKER_REDIS_URL", &self.redis_config.url),
            ("WORKER_REDIS_TIMEOUT_MS", &timeout),
            ("WORKER_NAMESPACE", self.config.keys.namespace()),
            ("WORKER_ORPHAN", self.config.orphans.into()),
        ] {
            all.insert(name.to_owned(), value.to_owned());
        }
        if let Some(interval) = member.spec.interval {
            all.insert("INTERVAL_SEC".to_owned(), interval.as_secs_f64().to_string());
        }
        all
    }
}

fn admission(member: &Member) -> Admission {
    let before_boot = member.remote.as_ref().filter(|remote| remote.earlier_boot);
    Admission {
        id: member.spec.id.clone(),
        incarnation: uuid::Uuid::now_v7().to_string(),
        fingerprint: member.fingerprint.clone(),
        dead: member.dead.clone(),
        dead_if_silent: before_boot.map(|remote| remote.incarnation.clone()),
    }
}
