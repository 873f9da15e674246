//! The orchestrator's loop: one task that owns every worker and does one thing at a time.
//!
//! `round` checks all workers, `start` starts those that are due, `takeover` finds what a predecessor left running, `commands`
//! carries out what operators ask for, `roster` decides which workers exist, `stop` ends everything.
//!
//! Invariants: the orchestrator starts, ends or writes nothing unless it leads and has taken over what its predecessor left;
//! it notices the end of its own children at once (SIGCHLD), not at the next round; the loop never waits for a process to end.

mod commands;
mod roster;
mod round;
mod start;
mod stop;
mod takeover;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use worker::redis::{Redis, RedisError};
use worker::{Command, CommandKind, WorkerId};

use crate::config::OrchestratorConfig;
use crate::fleet::Fleet;
use crate::fleet::view::{OrchestratorView, View};
use crate::member::{EndReason, Member, Phase, Running};
use crate::process::{self, output::Outputs};
use crate::registry::leadership::{Instance, Leadership, LockOutcome};
use crate::registry::{Registry, Writer};
use crate::spec::repo::{RepoError, SpecRepo};

pub(crate) use commands::{Changes, FleetCommand, Reply, WorkerCommand};

const COMMAND_BUFFER: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OrchestratorError {
    #[error("another orchestrator is running (incarnation {0}); only one may")]
    AlreadyRunning(String),
    #[error("another orchestrator, {0}, took the lock: this one has stopped acting")]
    Lost(String),
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Repo(#[from] RepoError),
    #[error("cannot listen for signals about ended workers")]
    Signals(#[source] std::io::Error),
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: OrchestratorConfig,
    pub(crate) redis: Redis,
    pub(crate) redis_config: worker::redis::RedisConfig,
    pub(crate) pool: PgPool,
    /// Variables of ours with this prefix are not passed on to workers.
    pub(crate) withheld_prefix: String,
}

/// What the orchestrator still has to do after it took the lock. It retries in each round until that succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PendingWork {
    Nothing,
    /// It has to write the running processes to Redis (again).
    Record,
    /// It has to adopt or end what a predecessor left. Until then it does not know what runs, and starts nothing.
    TakeOver,
}

#[derive(Debug)]
pub(crate) struct Orchestrator {
    pub(super) config: Arc<OrchestratorConfig>,
    pub(super) redis_config: worker::redis::RedisConfig,
    pub(super) withheld_prefix: String,
    pub(super) lead: Leadership,
    pub(super) registry: Registry,
    pub(super) repo: SpecRepo,
    pub(super) fleet_id: String,
    pub(super) members: BTreeMap<WorkerId, Member>,
    pub(super) outputs: Outputs,
    /// Since when Redis has answered every round; a worker's silence counts only from then on.
    pub(super) answering_since: Option<Instant>,
    pub(super) pending: PendingWork,
    /// Another orchestrator has led since this one read file and database, and either may have changed.
    pub(super) outdated: bool,
    /// Redis has lost its data. Until this time workers that survived elsewhere claim their locks again, so none is started.
    pub(super) starts_paused_until: Option<Instant>,
    /// A process has ended and may have left children behind.
    pub(super) sweep_due: bool,
    pub(super) next_round: Instant,
    pub(super) rounds: u64,
    pub(super) last_round: Duration,
    pub(super) started_at: DateTime<Utc>,
    pub(super) workers_file: Option<PathBuf>,
    /// Something changed that the view does not show yet.
    pub(super) changed: bool,
    view: watch::Sender<Arc<View>>,
    commands: mpsc::Receiver<FleetCommand>,
    children: Signal,
}

impl Orchestrator {
    /// Takes the lock and finds out what runs. With `standby` it may begin without the lock.
    pub(crate) async fn start(settings: Settings) -> Result<(Self, Fleet), OrchestratorError> {
        let Settings { config, redis, redis_config, pool, withheld_prefix } = settings;
        let children = signal(SignalKind::child()).map_err(OrchestratorError::Signals)?;
        let repo = SpecRepo::new(pool);
        let fleet_id = repo.fleet_id().await?;
        let mut lead = Leadership::new(redis.clone(), config.keys.clone(), config.lock_ttl, Instance::new());
        match lead.take().await? {
            LockOutcome::Leading { .. } => {}
            LockOutcome::Held(by) if config.standby => {
                tracing::info!(by, "another orchestrator leads; standing by");
            }
            LockOutcome::Held(by) => return Err(OrchestratorError::AlreadyRunning(by)),
        }
        let outdated = !lead.leads();
        let (sender, commands) = mpsc::channel(COMMAND_BUFFER);
        let (view, seen) = watch::channel(Arc::new(View::default()));
        let handle = Fleet::new(sender, seen);
        let mut orchestrator = Self {
            registry: Registry::new(redis, config.keys.clone(), config.timing),
            outputs: Outputs::new(config.data_dir.join("logs")),
            workers_file: config.workers_file.clone(),
            config: Arc::new(config),
            redis_config,
            withheld_prefix,
            lead,
            repo,
            fleet_id,
            members: BTreeMap::new(),
            answering_since: Some(Instant::now()),
            pending: PendingWork::Nothing,
            outdated,
            starts_paused_until: None,
            sweep_due: false,
            next_round: Instant::now(),
            rounds: 0,
            last_round: Duration::ZERO,
            started_at: Utc::now(),
            changed: true,
            view,
            commands,
            children,
        };
        let desired = orchestrator.repo.all().await?;
        orchestrator.arrange(orchestrator.config.workers.clone(), desired).await;
        if orchestrator.lead.leads() {
            let incarnation = &orchestrator.lead.instance().incarnation;
            tracing::info!(incarnation, epoch = orchestrator.lead.epoch(), "leading");
            orchestrator.take_over().await?;
        }
        orchestrator.show();
        Ok((orchestrator, handle))
    }

    /// Whether it may start and end workers: it leads, and knows what runs.
    pub(super) fn acts(&self) -> bool {
        self.lead.leads() && self.pending != PendingWork::TakeOver
    }

    pub(super) fn writer(&self) -> Writer {
        Writer { instance: self.lead.instance().clone(), epoch: self.lead.epoch() }
    }

    /// Runs until `stop`, then stops the workers. The error says that another orchestrator took the lock: the workers belong to
    /// that one now, and this one does not touch them.
    pub(crate) async fn run(
        mut self,
        mut config: watch::Receiver<Arc<crate::Config>>,
        stop: CancellationToken,
    ) -> Result<(), OrchestratorError> {
        let mut look = tokio::time::interval(self.config.look_interval);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let (next_round, next_act) = (self.next_round, self.next_act());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(next_round.into()) => self.round().await?,
                _ = self.children.recv() => self.reap(),
                Some(command) = self.commands.recv() => self.execute(command).await,
                Ok(()) = config.changed() => {
                    let new = Arc::clone(&config.borrow_and_update());
                    self.config_changed(&new).await;
                }
                () = tokio::time::sleep_until(next_act.into()) => {}
                _ = look.tick() => self.look(),
            }
            self.act().await;
            self.show();
        }
        self.shut_down().await
    }

    /// When the next timed action is due: a kill or a start.
    fn next_act(&self) -> Instant {
        if !self.acts() {
            return self.next_round;
        }
        let due = |member: &Member| match &member.phase {
            Phase::Ending { kill_at, .. } => Some(*kill_at),
            Phase::Due { at } => Some(self.starts_paused_until.map_or(*at, |hold| hold.max(*at))),
            Phase::Stopped | Phase::Up { .. } | Phase::GivenUp => None,
        };
        self.members.values().filter_map(due).min().unwrap_or(self.next_round).min(self.next_round)
    }

    /// Forgets removed workers, kills those whose grace is over, starts those that are due.
    async fn act(&mut self) {
        let (outputs, changed) = (&mut self.outputs, &mut self.changed);
        self.members.retain(|id, member| {
            let gone = member.is_gone();
            if gone {
                outputs.forget(id);
                *changed = true;
            }
            !gone
        });
        if self.acts() {
            self.kill_overdue();
            self.start_due().await;
        }
    }

    fn kill_overdue(&mut self) {
        let now = Instant::now();
        for (id, member) in &mut self.members {
            if let Phase::Ending { process, kill_at, .. } = &mut member.phase
                && *kill_at <= now
            {
                tracing::warn!(worker = %id, pid = process.identity.pid, "did not stop in time, killing its group");
                process.identity.kill_group();
                *kill_at = now + Duration::from_secs(1);
            }
        }
    }

    /// Asks a worker's process to end, if it has one that was not asked yet. Without the lock it does nothing, because the
    /// process may belong to another orchestrator by now; the next round in which this one leads sees what has to end.
    pub(super) async fn end(&mut self, id: &WorkerId, reason: EndReason) {
        if !self.lead.leads() {
            return;
        }
        let kill_at = Instant::now() + self.config.shutdown_grace;
        let Some(member) = self.members.get_mut(id) else { return };
        let Some(identity) = member.end(reason, kill_at) else { return };
        self.changed = true;
        let kind = if reason == EndReason::Restart { CommandKind::Restart } else { CommandKind::Shutdown };
        // The worker gets both a message and a signal: it may listen to only one of them. While Redis is away no message is
        // tried, because each try would take the whole timeout and many of them would cost the lock.
        if self.answering_since.is_some()
            && let Err(error) = self.registry.publish(&Command::to(kind, id)).await
        {
            tracing::warn!(worker = %id, "could not publish; the worker gets the signal alone");
            self.redis_failed(&error);
        }
        identity.terminate();
    }

    /// Handles processes that have ended.
    pub(super) fn reap(&mut self) {
        let look = |process: &mut Running| match &mut process.child {
            Some(child) => process::reap(child),
            None if process.identity.is_alive() => None,
            None => Some("ended".to_owned()),
        };
        let ended = self.members.iter_mut().filter_map(|(id, member)| {
            let how = look(member.process_mut()?)?;
            Some((id.clone(), how))
        });
        for (id, how) in ended.collect::<Vec<_>>() {
            self.ended(&id, &how);
        }
    }

    fn ended(&mut self, id: &WorkerId, how: &str) {
        let now = Instant::now();
        self.outputs.ended(id);
        let Some(member) = self.members.get_mut(id) else { return };
        let pid = member.process().map_or(0, |process| process.identity.pid);
        member.ended(now, how, &self.config.backoff);
        (self.changed, self.sweep_due) = (true, true);
        match &member.phase {
            Phase::GivenUp => {
                tracing::error!(worker = %id, pid, how, failures = member.failures, "given up; an operator has to act");
            }
            Phase::Due { at } if member.failures > 0 => {
                let pause_ms =
                    u64::try_from(at.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(worker = %id, pid, how, failures = member.failures, pause_ms, "ended; will be started again");
            }
            _ => tracing::info!(worker = %id, pid, how, "ended"),
        }
        metrics::counter!("bursar_worker_control_exits_total", "worker" => id.to_string()).increment(1);
        // The next round frees its lock and reads the restart flag.
        if self.lead.leads() {
            self.next_round = self.next_round.min(now);
        }
    }

    /// Forwards the output of workers, and notices the end of adopted ones, which are not our children.
    fn look(&mut self) {
        self.outputs.forward_new();
        let adopted = |member: &Member| member.process().is_some_and(|process| process.child.is_none());
        if self.members.values().any(adopted) {
            self.reap();
        }
    }

    /// Publishes a new view if anything changed.
    pub(super) fn show(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let (now, wall, old) = (Instant::now(), Utc::now(), self.view.borrow().clone());
        let shared = |id: &WorkerId, member: &Member| {
            let new = member.view(now, wall);
            match old.workers.get(id) {
                Some(old) if old.same_as(&new) => Arc::clone(old),
                _ => Arc::new(new),
            }
        };
        let visible = self.members.iter().filter(|(_, member)| !member.removed || member.process().is_some());
        let workers = visible.map(|(id, member)| (id.clone(), shared(id, member))).collect();
        let orchestrator = OrchestratorView {
            incarnation: self.lead.instance().incarnation.clone(),
            leading: self.lead.leads(),
            epoch: self.lead.epoch(),
            started_at: self.started_at,
            last_round: self.last_round,
            workers_file: self.workers_file.clone(),
        };
        self.view.send_replace(Arc::new(View { workers, orchestrator }));
    }
}
