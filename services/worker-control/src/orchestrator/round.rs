//! The health round: renews the lock, then checks every worker's heartbeat, state and restart flag.
//!
//! Invariants: a round costs a handful of Redis commands, however many workers there are; a failed read proves nothing, so no
//! worker is ended because Redis was away.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use worker::{Command, CommandKind, WorkerId};

use super::{Orchestrator, OrchestratorError, PendingWork};
use crate::member::{EndReason, Member, Phase};
use crate::process;
use crate::registry::Liveness;
use crate::registry::leadership::LockOutcome;

/// Rounds between two searches for stray processes when nothing ended.
const SWEEP_EVERY: u64 = 30;
/// The pause between two rounds while a first heartbeat is expected, so that a start is noticed soon.
const FIRST_HEARTBEAT_PAUSE: Duration = Duration::from_secs(1);
/// The shortest pause between two rounds, however many events ask for one.
const MIN_ROUND_PAUSE: Duration = Duration::from_millis(20);

impl Orchestrator {
    /// One round. The error says that another orchestrator took the lock.
    pub(super) async fn round(&mut self) -> Result<(), OrchestratorError> {
        let began = Instant::now();
        self.next_round = began + self.config.health_interval;
        self.keep_lead().await?;
        self.catch_up().await;
        self.reap();
        if self.acts() {
            self.examine_all().await;
            self.free_dead(false).await;
            if self.sweep_due || self.rounds.is_multiple_of(SWEEP_EVERY) {
                self.sweep().await;
            }
        }
        self.rounds += 1;
        self.last_round = began.elapsed();
        if self.members.values().any(|member| self.is_expected(member)) {
            self.next_round = self.next_round.min(began + FIRST_HEARTBEAT_PAUSE);
        }
        // A worker that ended asks for another round. Without a pause, many of them would starve everything else.
        self.next_round = self.next_round.max(Instant::now() + MIN_ROUND_PAUSE);
        self.changed = true;
        self.measure();
        Ok(())
    }

    /// Whether it was just started, so that its first heartbeat may arrive at any moment.
    fn is_expected(&self, member: &Member) -> bool {
        let young = member.age(Instant::now()) < self.config.health_interval;
        matches!(member.phase, Phase::Up { .. }) && member.liveness.heartbeat.is_none() && young
    }

    fn measure(&self) {
        metrics::histogram!("bursar_worker_control_round_seconds").record(self.last_round.as_secs_f64());
        metrics::gauge!("bursar_worker_control_leading").set(if self.lead.leads() { 1.0 } else { 0.0 });
        let count = |wanted: fn(&Member) -> bool| {
            let count = self.members.values().filter(|member| wanted(member)).count();
            f64::from(u32::try_from(count).unwrap_or(u32::MAX))
        };
        metrics::gauge!("bursar_worker_control_workers_configured").set(count(|m| !m.removed));
        metrics::gauge!("bursar_worker_control_workers_running").set(count(|m| m.process().is_some()));
        metrics::gauge!("bursar_worker_control_workers_given_up")
            .set(count(|m| matches!(m.phase, Phase::GivenUp)));
    }

    /// Renews the lock, or takes it again when it is gone and nobody has it.
    async fn keep_lead(&mut self) -> Result<(), OrchestratorError> {
        let led = self.lead.epoch() != 0;
        let holder = match self.lead.renew().await {
            Ok(None) => return Ok(()),
            Ok(Some(holder)) => holder,
            Err(error) => {
                self.redis_failed(&error);
                return Ok(());
            }
        };
        if led && !holder.is_empty() {
            tracing::error!(by = holder, "another orchestrator took the lock; this one stops acting");
            return Err(OrchestratorError::Lost(holder));
        }
        if led {
            tracing::error!("the orchestrator lock is gone; nothing is done until it is ours again");
        }
        match self.lead.take().await {
            Ok(LockOutcome::Leading { alone_since, data_lost }) => {
                self.took_lead(led, alone_since, data_lost)
            }
            Ok(LockOutcome::Held(by)) if led => return Err(OrchestratorError::Lost(by)),
            Ok(LockOutcome::Held(_)) => {}
            Err(error) => self.redis_failed(&error),
        }
        Ok(())
    }

    fn took_lead(&mut self, led: bool, alone_since: bool, data_lost: bool) {
        let epoch = self.lead.epoch();
        tracing::warn!(epoch, data_lost, "{}", if led { "leading again" } else { "leading" });
        // An orchestrator that led meanwhile may have started and ended workers, and read a newer file or database.
        let pending = if alone_since { PendingWork::Record } else { PendingWork::TakeOver };
        self.pending = self.pending.max(pending);
        let nobody_else_led = alone_since || (led && data_lost);
        self.outdated |= !nobody_else_led;
        // Heartbeats may have been lost together with the lock, so silence from before does not count.
        self.answering_since = Some(Instant::now());
        if data_lost {
            // Workers on other machines take their locks again with their next heartbeat.
            let wait = self.config.timing.heartbeat_interval + self.redis_config.timeout;
            self.starts_paused_until = Some(Instant::now() + wait);
        }
    }

    /// Does the work that is pending since the lock was taken, until it has succeeded.
    pub(super) async fn catch_up(&mut self) {
        if !self.lead.leads() {
            return;
        }
        let done = match self.pending {
            PendingWork::Nothing => return,
            PendingWork::Record => self.record_all().await.map_err(OrchestratorError::Redis),
            PendingWork::TakeOver => self.recover().await,
        };
        match done {
            Ok(()) => self.pending = PendingWork::Nothing,
            Err(OrchestratorError::Redis(error)) => self.redis_failed(&error),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "what a predecessor left is not taken over yet; starting nothing");
            }
        }
    }

    async fn recover(&mut self) -> Result<(), OrchestratorError> {
        if self.outdated {
            self.reread().await?;
            self.outdated = false;
        }
        Ok(self.take_over().await?)
    }

    pub(super) fn redis_failed(&mut self, error: &worker::redis::RedisError) {
        if self.answering_since.take().is_some() {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "Redis is away; starting and ending nothing"
            );
        }
    }

    async fn examine_all(&mut self) {
        let ids: Vec<WorkerId> = self.members.keys().cloned().collect();
        let liveness = match self.registry.liveness(&ids).await {
            Ok(liveness) => liveness,
            Err(error) => return self.redis_failed(&error),
        };
        let now = Instant::now();
        let answering = now.saturating_duration_since(*self.answering_since.get_or_insert(now));
        for (id, liveness) in ids.into_iter().zip(liveness) {
            self.examine(&id, liveness, now, answering).await;
        }
    }

    async fn examine(&mut self, id: &WorkerId, liveness: Liveness, now: Instant, answering: Duration) {
        let timeout = self.config.heartbeat_timeout;
        let Some(member) = self.members.get_mut(id) else { return };
        let heard = liveness.heartbeat.is_some();
        let restarting = liveness.restarting;
        log_error_state(id, &member.liveness, &liveness);
        if member.removed && !heard {
            // No process is left that could be asked to stop.
            member.remote = None;
        }
        // Without a process, what Redis still holds is left over from an earlier one.
        member.liveness = if member.process().is_some() { liveness } else { Liveness::default() };
        match &member.phase {
            // It was stopped while this orchestrator could not act.
            Phase::Up { .. } if !member.runs() => self.end(id, EndReason::Stop).await,
            Phase::Up { process } if process.fingerprint != member.fingerprint => {
                self.end(id, EndReason::Restart).await;
            }
            Phase::Up { .. } if restarting => {
                tracing::info!(worker = %id, "restart requested");
                member.failures = 0;
                self.end(id, EndReason::Restart).await;
            }
            Phase::Up { .. } if heard => {
                if member.failures > 0 && member.age(now) >= self.config.settled_after {
                    tracing::info!(worker = %id, failures = member.failures, "has recovered");
                    member.failures = 0;
                }
            }
            Phase::Up { .. } if member.age(now) > timeout && answering > timeout => {
                let age_ms = u64::try_from(member.age(now).as_millis()).unwrap_or(u64::MAX);
                tracing::error!(worker = %id, age_ms, "its heartbeat is missing; ending it");
                self.end(id, EndReason::Silent).await;
            }
            Phase::Stopped | Phase::Due { .. } | Phase::GivenUp if heard && member.remote.is_some() => {
                self.ask_remote_to_stop(id).await;
            }
            Phase::Due { .. } | Phase::GivenUp if restarting => {
                tracing::info!(worker = %id, "restart requested");
                member.start_now(now);
            }
            Phase::Up { .. } | Phase::Due { .. } | Phase::GivenUp | Phase::Stopped | Phase::Ending { .. } => {
            }
        }
    }

    /// Asks a worker on another machine, which no signal reaches, to stop. This is repeated in each round in which it has a
    /// heartbeat, because a worker that was cut off when the message was published never gets it.
    async fn ask_remote_to_stop(&mut self, id: &WorkerId) {
        tracing::warn!(worker = %id, "it runs where this orchestrator cannot see it; asked to stop");
        if let Err(error) = self.registry.publish(&Command::to(CommandKind::Shutdown, id)).await {
            self.redis_failed(&error);
        }
    }

    /// Frees the locks of dead incarnations, for workers that have not been admitted again. Workers that should not run are
    /// removed from Redis.
    pub(super) async fn free_dead(&mut self, forget: bool) {
        let writer = self.writer();
        let over = |member: &Member| {
            let forget = forget || !member.runs();
            let left = !member.dead.is_empty() || (forget && member.listed);
            (member.process().is_none() && left).then_some(forget)
        };
        let dead: Vec<(WorkerId, Vec<String>, bool)> = self
            .members
            .iter()
            .filter_map(|(id, member)| Some((id.clone(), member.dead.clone(), over(member)?)))
            .collect();
        let registry = &self.registry;
        let freed = join_all(dead.iter().map(|(id, dead, forget)| {
            let writer = &writer;
            async move {
                if dead.is_empty() {
                    return registry.free(writer, id, "", *forget).await;
                }
                for incarnation in dead {
                    if !registry.free(writer, id, incarnation, *forget).await? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }))
        .await;
        for ((id, _, forgotten), freed) in dead.iter().zip(freed) {
            match freed {
                Ok(true) => {
                    if let Some(member) = self.members.get_mut(id) {
                        member.dead.clear();
                        member.listed &= !forgotten;
                    }
                }
                Ok(false) => {}
                Err(error) => self.redis_failed(&error),
            }
        }
    }

    /// Kills processes of the fleet that belong to no running worker: children that a dead worker left behind, or workers that
    /// an overtaken orchestrator started.
    pub(super) async fn sweep(&mut self) {
        self.sweep_due = false;
        let fleet = self.fleet_id.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || process::find(&fleet)).await else { return };
        let running = self.members.values().filter_map(Member::process);
        let known: HashSet<&str> = running.map(|process| process.incarnation.as_str()).collect();
        for stray in found {
            if !known.contains(stray.incarnation.as_str()) {
                tracing::warn!(
                    worker = stray.id,
                    pid = stray.identity.pid,
                    "belongs to no running worker; killing it"
                );
                stray.identity.kill();
            }
        }
    }
}

/// Logs a state that turns to `error`, once.
fn log_error_state(id: &WorkerId, old: &Liveness, new: &Liveness) {
    let error = |liveness: &Liveness| -> Option<String> {
        let state: serde_json::Value = serde_json::from_str(liveness.state.as_deref()?).ok()?;
        let failed = state.get("status")?.as_str()? == "error";
        failed.then(|| state.get("error").and_then(|e| e.as_str()).unwrap_or("no reason given").to_owned())
    };
    if old.state != new.state
        && let Some(text) = error(new)
        && error(old).as_ref() != Some(&text)
    {
        tracing::warn!(worker = %id, error = text, "reports an error");
    }
}
