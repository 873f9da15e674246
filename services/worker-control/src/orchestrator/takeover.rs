//! Taking over from a predecessor: every process that still runs is adopted or ended before anything is started.
//!
//! Processes are found by their environment, not by records, so that a crash between a start and its record loses none, and a
//! recycled pid is never taken for a worker. A process is adopted when it is the incarnation that was admitted last, runs
//! what is configured now, and should run; every other one is ended. Children of a worker have the same environment and may
//! lead a process group of their own, but are never taken for the worker.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use futures::future::join_all;
use worker::WorkerId;
use worker::redis::RedisError;

use super::Orchestrator;
use crate::member::{EndReason, Member, Phase, RemoteIncarnation, Running};
use crate::process::{self, FoundProcess, Identity};
use crate::registry::Record;
use crate::spec::{Source, Spec};

impl Orchestrator {
    pub(super) async fn take_over(&mut self) -> Result<(), RedisError> {
        // A child that ended while another orchestrator led must not hide the process which that one started instead.
        self.reap();
        for member in self.members.values_mut() {
            member.remote = None;
        }
        let ids: Vec<WorkerId> = self.members.keys().cloned().collect();
        let registry = &self.registry;
        let recorded = join_all(ids.iter().map(|id| registry.recorded(id))).await;
        let mut records = BTreeMap::new();
        for (id, record) in ids.iter().zip(recorded) {
            if let Some(record) = record? {
                records.insert(id.clone(), record);
            }
        }
        let fleet = self.fleet_id.clone();
        // Only a panic can make this fail; then no process was found.
        let found = tokio::task::spawn_blocking(move || process::find(&fleet)).await.unwrap_or_default();
        for process in incarnation_leaders(found, &records) {
            self.adopt_or_end(process, &records).await;
        }
        for (id, record) in &records {
            self.settle_record(id, record).await;
        }
        self.record_all().await?;
        self.sweep_due = true;
        Ok(())
    }

    /// Adopts or ends one process.
    async fn adopt_or_end(&mut self, found: FoundProcess, records: &BTreeMap<WorkerId, Record>) {
        let Ok(id) = found.id.parse::<WorkerId>() else { return };
        let admitted = records.get(&id).is_none_or(|record| record.incarnation == found.incarnation);
        let now = Instant::now();
        let known = self.members.get(&id).and_then(Member::process);
        if let Some(known) = known {
            if known.incarnation == found.incarnation {
                if !admitted {
                    tracing::warn!(worker = %id, pid = found.identity.pid, "another incarnation was admitted meanwhile");
                    self.end(&id, EndReason::Restart).await;
                }
                return;
            }
            // Two processes of one worker: the one that is not ours was never admitted, or was replaced.
            found.identity.kill_group();
            return;
        }
        if !admitted {
            tracing::warn!(worker = %id, pid = found.identity.pid, "was never admitted; killing it");
            found.identity.kill_group();
            return;
        }
        let running = Running {
            identity: found.identity,
            incarnation: found.incarnation,
            fingerprint: found.fingerprint,
            child: None,
            since: now,
        };
        let member = self.members.entry(id.clone()).or_insert_with(|| unconfigured(&id, now));
        let same = running.fingerprint == member.fingerprint;
        let pid = running.identity.pid;
        member.phase = Phase::Up { process: running };
        self.changed = true;
        self.outputs.follow(&id);
        if !member.runs() {
            tracing::warn!(worker = %id, pid, "runs but should not; ending it");
            self.end(&id, EndReason::Stop).await;
        } else if same {
            tracing::info!(worker = %id, pid, "adopted");
        } else {
            tracing::warn!(worker = %id, pid, "runs an outdated specification; restarting it");
            self.end(&id, EndReason::Restart).await;
        }
    }

    /// Handles a recorded incarnation that was not adopted: it is dead if it ran on this machine, else it will be asked to stop.
    async fn settle_record(&mut self, id: &WorkerId, record: &Record) {
        let instance = self.lead.instance();
        let (here, earlier_boot) = (record.host == instance.host, record.is_of_earlier_boot(instance));
        let Some(member) = self.members.get_mut(id) else { return };
        if member.process().is_some_and(|process| process.incarnation == record.incarnation) {
            return;
        }
        let process = record.process.filter(|process| here && process.is_alive());
        if let Some(identity) = process {
            // It is alive, but its environment is not readable for this process.
            let found = FoundProcess {
                identity,
                leads: true,
                id: id.to_string(),
                incarnation: record.incarnation.clone(),
                fingerprint: record.fingerprint.clone(),
            };
            self.adopt_or_end(found, &[(id.clone(), record.clone())].into()).await;
        } else if here {
            member.mark_dead(record.incarnation.clone());
        } else {
            let host = &record.host;
            tracing::warn!(worker = %id, host, earlier_boot, "was started elsewhere; it will be asked to stop if it has a heartbeat");
            let incarnation = record.incarnation.clone();
            member.remote = Some(RemoteIncarnation { incarnation, earlier_boot });
        }
    }

    /// Writes all running processes to Redis: after Redis lost its data, or under a new epoch.
    pub(super) async fn record_all(&mut self) -> Result<(), RedisError> {
        let writer = self.writer();
        let registry = &self.registry;
        let up = self.members.iter().filter_map(|(id, member)| match &member.phase {
            Phase::Up { process } => Some((id, process)),
            Phase::Stopped | Phase::Due { .. } | Phase::Ending { .. } | Phase::GivenUp => None,
        });
        let records = up.map(|(id, process)| registry.record(&writer, id, process));
        for done in join_all(records).await {
            done?;
        }
        let active: Vec<WorkerId> =
            self.members.iter().filter(|(_, member)| member.runs()).map(|(id, _)| id.clone()).collect();
        registry.set_active(&writer, &active).await?;
        Ok(())
    }
}

/// For each incarnation the process that an orchestrator started: the recorded one, or without a record the oldest, because
/// a parent is older than its children.
fn incarnation_leaders(
    mut found: Vec<FoundProcess>,
    records: &BTreeMap<WorkerId, Record>,
) -> Vec<FoundProcess> {
    found.retain(|process| process.leads);
    found.sort_by_key(|process| (process.identity.started, process.identity.pid));
    let recorded = |process: &FoundProcess| -> Option<Identity> {
        let record = records.get(&process.id.parse().ok()?)?;
        record.process.filter(|_| record.incarnation == process.incarnation)
    };
    let mut seen = HashSet::new();
    found.retain(|process| {
        recorded(process).is_none_or(|identity| identity == process.identity)
            && seen.insert(process.incarnation.clone())
    });
    found
}

/// Stands for a worker that is no longer configured, until its process has ended.
fn unconfigured(id: &WorkerId, now: Instant) -> Member {
    let spec = Spec {
        id: id.clone(),
        command: Vec::new(),
        environment: BTreeMap::new(),
        interval: None,
        enabled: false,
    };
    let mut member = Member::new(spec, Source::File, None, now);
    member.removed = true;
    member
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pid: u32, started: u64, incarnation: &str) -> FoundProcess {
        let (id, fingerprint) = ("a".to_owned(), "f".to_owned());
        FoundProcess {
            identity: Identity { pid, started },
            leads: true,
            id,
            incarnation: incarnation.to_owned(),
            fingerprint,
        }
    }

    fn pids(found: Vec<FoundProcess>, records: &BTreeMap<WorkerId, Record>) -> Vec<u32> {
        incarnation_leaders(found, records).iter().map(|process| process.identity.pid).collect()
    }

    #[test]
    fn what_a_worker_started_itself_is_never_taken_for_the_worker() {
        let family = || vec![found(7, 200, "i-1"), found(9, 100, "i-1"), found(8, 300, "i-2")];
        // Without a record the oldest is the worker, whatever its pid.
        assert_eq!(pids(family(), &BTreeMap::new()), [9, 8]);
        let record = |pid, started| {
            let process = Some(Identity { pid, started });
            let (incarnation, host, fingerprint) = ("i-1".to_owned(), "h".to_owned(), "f".to_owned());
            let record = Record { incarnation, host, machine: String::new(), fingerprint, process };
            BTreeMap::from([("a".parse().unwrap(), record)])
        };
        assert_eq!(pids(family(), &record(9, 100)), [9, 8]);
        // The worker itself is dead: its family is nobody's worker.
        assert_eq!(pids(family(), &record(5, 50)), [8]);
    }
}
