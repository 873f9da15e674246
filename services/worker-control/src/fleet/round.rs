//! The health round: the lock, then every worker's signs of life.
//!
//! Invariants: one round costs a handful of commands to Redis however many workers there are; an unanswered question is no
//! sign of anything, so nobody is ended because Redis was away.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use worker::{Command, CommandKind as Told, WorkerId};

use super::leadership::Tried;
use super::member::{Member, Phase, Why};
use super::orchestrator::{Orchestrator, OrchestratorError, Owed};
use super::process;
use super::registry::Signs;

/// Rounds between two looks for strays when nothing ended.
const SWEEP_EVERY: u64 = 30;
/// The pause between two rounds while a first heartbeat is expected, so that a start is seen before long.
const EXPECTING: Duration = Duration::from_secs(1);
/// The shortest pause between two rounds that events asked for.
const BREATH: Duration = Duration::from_millis(20);

impl Orchestrator {
    /// One round.
    ///
    /// # Errors
    /// When the lock went to another.
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
            self.next_round = self.next_round.min(began + EXPECTING);
        }
        // What ended during this round asked for another one; that can wait a moment, or ends would starve everything else.
        self.next_round = self.next_round.max(Instant::now() + BREATH);
        self.changed = true;
        self.measure();
        Ok(())
    }

    /// Whether it was just started, so that its first heartbeat may come any moment.
    fn is_expected(&self, member: &Member) -> bool {
        let young = member.age(Instant::now()) < self.config.health_interval;
        matches!(member.phase, Phase::Up { .. }) && member.signs.heartbeat.is_none() && young
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
                self.away(&error);
                return Ok(());
            }
        };
        if led && !holder.is_empty() {
            tracing::error!(by = holder, "the orchestrator lock went to another; this one stops acting");
            return Err(OrchestratorError::Lost(holder));
        }
        if led {
            tracing::error!("the orchestrator lock is gone; acting on nothing until it is ours again");
        }
        match self.lead.take().await {
            Ok(Tried::Leading { alone_since, data_lost }) => self.leads_anew(led, alone_since, data_lost),
            Ok(Tried::Held(by)) if led => return Err(OrchestratorError::Lost(by)),
            Ok(Tried::Held(_)) => {}
            Err(error) => self.away(&error),
        }
        Ok(())
    }

    fn leads_anew(&mut self, led: bool, alone_since: bool, data_lost: bool) {
        let epoch = self.lead.epoch();
        tracing::warn!(epoch, data_lost, "{}", if led { "leading again" } else { "leading" });
        // Whoever led meanwhile may have started and ended what we believe to run, and followed what we have not read.
        let owed = if alone_since { Owed::Record } else { Owed::TakeOver };
        self.owed = self.owed.max(owed);
        let nobody_else_led = alone_since || (led && data_lost);
        self.outdated |= !nobody_else_led;
        // Heartbeats may have gone with the lock, and there is nobody's silence to count from before that.
        self.answering_since = Some(Instant::now());
        if data_lost {
            // Workers that run where we cannot see them take their locks again with their next heartbeat.
            let patience = self.config.timing.heartbeat_interval + self.redis_config.timeout;
            self.hold_until = Some(Instant::now() + patience);
        }
    }

    /// Does what taking the lock obliges us to, until it has succeeded.
    pub(super) async fn catch_up(&mut self) {
        if !self.lead.leads() {
            return;
        }
        let done = match self.owed {
            Owed::Nothing => return,
            Owed::Record => self.record_all().await.map_err(OrchestratorError::Redis),
            Owed::TakeOver => self.succeed().await,
        };
        match done {
            Ok(()) => self.owed = Owed::Nothing,
            Err(OrchestratorError::Redis(error)) => self.away(&error),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "what a predecessor left is not taken over yet; starting nothing");
            }
        }
    }

    async fn succeed(&mut self) -> Result<(), OrchestratorError> {
        if self.outdated {
            self.learn().await?;
            self.outdated = false;
        }
        Ok(self.take_over().await?)
    }

    /// Redis did not answer.
    pub(super) fn away(&mut self, error: &worker::redis::RedisError) {
        if self.answering_since.take().is_some() {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "Redis is away; starting and ending nothing"
            );
        }
    }

    async fn examine_all(&mut self) {
        let ids: Vec<WorkerId> = self.members.keys().cloned().collect();
        let signs = match self.registry.signs(&ids).await {
            Ok(signs) => signs,
            Err(error) => return self.away(&error),
        };
        let now = Instant::now();
        let answering = now.saturating_duration_since(*self.answering_since.get_or_insert(now));
        for (id, signs) in ids.into_iter().zip(signs) {
            self.examine(&id, signs, now, answering).await;
        }
    }

    async fn examine(&mut self, id: &WorkerId, signs: Signs, now: Instant, answering: Duration) {
        let timeout = self.config.heartbeat_timeout;
        let Some(member) = self.members.get_mut(id) else { return };
        let heard = signs.heartbeat.is_some();
        let restarting = signs.restarting;
        tell_of_error(id, &member.signs, &signs);
        if member.removed && !heard {
            // Nobody is left to be told.
            member.elsewhere = None;
        }
        // Signs are of the process that runs; without one they are remains.
        member.signs = if member.process().is_some() { signs } else { Signs::default() };
        match &member.phase {
            // Asked for while we could not act.
            Phase::Up { .. } if !member.runs() => self.end(id, Why::Stop).await,
            Phase::Up { process } if process.fingerprint != member.fingerprint => {
                self.end(id, Why::Renew).await;
            }
            Phase::Up { .. } if restarting => {
                tracing::info!(worker = %id, "restart asked for");
                member.failures = 0;
                self.end(id, Why::Renew).await;
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
                self.end(id, Why::Silent).await;
            }
            Phase::Stopped | Phase::Due { .. } | Phase::GivenUp if heard && member.elsewhere.is_some() => {
                self.tell_to_stop(id).await;
            }
            Phase::Due { .. } | Phase::GivenUp if restarting => {
                tracing::info!(worker = %id, "restart asked for");
                member.revive(now);
            }
            Phase::Up { .. } | Phase::Due { .. } | Phase::GivenUp | Phase::Stopped | Phase::Ending { .. } => {
            }
        }
    }

    /// Tells one that runs where no signal of ours reaches, in each round in which it is heard: a word on the channel is lost on
    /// whoever is cut off while it is said, and comes back later.
    async fn tell_to_stop(&mut self, id: &WorkerId) {
        tracing::warn!(worker = %id, "its heart beats where this orchestrator cannot look; told to stop");
        if let Err(error) = self.registry.publish(&Command::to(Told::Shutdown, id)).await {
            self.away(&error);
        }
    }

    /// Frees the locks of incarnations that are dead, for workers that have not been admitted anew; those that shall not run
    /// are forgotten.
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
                Err(error) => self.away(&error),
            }
        }
    }

    /// Ends processes of the fleet that belong to no worker that runs: what a dead worker's family left behind, or what a
    /// predecessor started after it had been overtaken.
    pub(super) async fn sweep(&mut self) {
        self.sweep_due = false;
        let fleet = self.fleet.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || process::find(&fleet)).await else { return };
        let running = self.members.values().filter_map(Member::process);
        let known: HashSet<&str> = running.map(|process| process.incarnation.as_str()).collect();
        for stray in found {
            if !known.contains(stray.incarnation.as_str()) {
                tracing::warn!(
                    worker = stray.id,
                    pid = stray.identity.pid,
                    "belongs to no worker that runs; killing it"
                );
                stray.identity.kill();
            }
        }
    }
}

/// A state that turns to error is told once.
fn tell_of_error(id: &WorkerId, old: &Signs, new: &Signs) {
    let error = |signs: &Signs| -> Option<String> {
        let state: serde_json::Value = serde_json::from_str(signs.state.as_deref()?).ok()?;
        let failed = state.get("status")?.as_str()? == "error";
        failed.then(|| state.get("error").and_then(|e| e.as_str()).unwrap_or("no reason given").to_owned())
    };
    if old.state != new.state
        && let Some(text) = error(new)
        && error(old).as_ref() != Some(&text)
    {
        tracing::warn!(worker = %id, error = text, "says that it is in error");
    }
}
