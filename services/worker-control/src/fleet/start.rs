//! Starting what is due: admitted in Redis first, then a process, then its record.
//!
//! Invariants: an incarnation is admitted before its process exists, so a process that nobody admitted can never take a
//! worker's lock; between the admission and the start we look once more whether we lead; what a crash in between leaves
//! behind is found by its environment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use worker::WorkerId;

use super::member::{Elsewhere, Member, Phase, Running};
use super::orchestrator::{Orchestrator, Owed};
use super::process::{self, Identity, Launch};
use super::registry::{Admission, Admitted};
use crate::config::Orphans;

/// Started in one go; the loop looks after everything else in between.
const BATCH: usize = 64;
/// When a worker that was started is looked at first.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// After Redis failed to answer in the middle of a start.
const AGAIN: Duration = Duration::from_secs(1);

impl Orchestrator {
    pub(super) async fn start_due(&mut self) {
        let now = Instant::now();
        let due = |member: &Member| matches!(member.phase, Phase::Due { at } if at <= now);
        if self.hold_until.is_some_and(|until| now < until) || !self.members.values().any(due) {
            return;
        }
        if self.sweep_due {
            // Nothing starts while somebody of its last incarnation may still be about.
            self.sweep().await;
        }
        let due = self.members.values().filter(|member| due(member)).take(BATCH);
        let asked: Vec<Admission> = due.map(admission).collect();
        let (writer, registry) = (self.writer(), self.registry.clone());
        let admitted = join_all(asked.iter().map(|asked| registry.admit(&writer, asked))).await;
        let mut started = Vec::new();
        for (asked, admitted) in asked.into_iter().zip(admitted) {
            match admitted {
                Ok(Admitted::Yes) => started.extend(self.start_one(asked)),
                Ok(Admitted::Held(by)) => self.put_off(&asked.id, &by),
                // The next round finds out who leads.
                Ok(Admitted::Fenced) => self.next_round = self.next_round.min(Instant::now()),
                Err(error) => {
                    self.away(&error);
                    self.postpone(&asked.id, AGAIN);
                }
            }
        }
        if !started.is_empty() {
            self.next_round = self.next_round.min(Instant::now() + FIRST_LOOK);
        }
        let running = |id: &WorkerId| self.members.get(id).and_then(Member::process);
        let records = started.iter().filter_map(|id| Some(registry.record(&writer, id, running(id)?)));
        let recorded = join_all(records).await;
        for error in recorded.into_iter().filter_map(Result::err) {
            self.owed = self.owed.max(Owed::Record);
            self.away(&error);
        }
    }

    fn start_one(&mut self, admitted: Admission) -> Option<WorkerId> {
        // We may have been paused since the admission; then whoever leads now has admitted, or will admit, somebody else.
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
        member.elsewhere = None;
        self.changed = true;
        match started {
            Ok(child) => {
                let pid = child.id();
                // A child that is dead already has no start time; it is ours until we have reaped it, so its pid is safe.
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

    /// Its lock is another's, and nothing says that the other is dead.
    fn put_off(&mut self, id: &WorkerId, by: &str) {
        self.postpone(id, self.config.health_interval);
        let Some(member) = self.members.get_mut(id) else { return };
        // Its record went with the data of Redis, or we would have known it since we took over.
        if self.hold_until.is_some() && member.elsewhere.is_none() {
            member.elsewhere = Some(Elsewhere { incarnation: by.to_owned(), earlier_boot: false });
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

    /// What a worker is told about itself. The specification cannot override what is the orchestrator's to say.
    fn environment(&self, member: &Member, incarnation: &str, fingerprint: &str) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        all.insert("WORKER_DATA_DIR".to_owned(), self.config.data_dir.display().to_string());
        all.extend(member.spec.environment.clone());
        all.extend(self.config.timing.variables().into_iter().map(|(name, value)| (name.to_owned(), value)));
        let timeout = self.redis_config.timeout.as_millis().to_string();
        let orphan = match self.config.orphans {
            Orphans::Stay => "stay",
            Orphans::Exit => "exit",
        };
        for (name, value) in [
            (process::ID, member.spec.id.as_str()),
            (process::INCARNATION, incarnation),
            (process::FINGERPRINT, fingerprint),
            (process::FLEET, &self.fleet),
            ("WORKER_REDIS_URL", &self.redis_config.url),
            ("WORKER_REDIS_TIMEOUT_MS", &timeout),
            ("WORKER_NAMESPACE", self.config.keys.namespace()),
            ("WORKER_ORPHAN", orphan),
        ] {
            all.insert(name.to_owned(), value.to_owned());
        }
        if let Some(interval) = member.spec.interval {
            all.insert("INTERVAL_SEC".to_owned(), interval.as_secs_f64().to_string());
        }
        all
    }
}

/// What is asked for a worker that is due.
fn admission(member: &Member) -> Admission {
    let before_boot = member.elsewhere.as_ref().filter(|elsewhere| elsewhere.earlier_boot);
    Admission {
        id: member.spec.id.clone(),
        incarnation: uuid::Uuid::now_v7().to_string(),
        fingerprint: member.fingerprint.clone(),
        dead: member.dead.clone(),
        dead_if_silent: before_boot.map(|elsewhere| elsewhere.incarnation.clone()),
    }
}
