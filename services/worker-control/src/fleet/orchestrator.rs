//! The orchestrator's loop: one task that owns every worker and does one thing at a time.
//!
//! Invariants: nothing is started, ended or written to Redis unless we lead, and nothing before what a predecessor left is
//! taken over; what happens to our own children is noticed at once (SIGCHLD), not at the next round; the loop never waits for
//! a process to end.

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
use worker::{Command, CommandKind as Told, WorkerId};

use super::Fleet;
use super::leadership::{Leadership, Me, Tried};
use super::member::{Member, Phase, Running, Why};
use super::order::Order;
use super::output::Outputs;
use super::process;
use super::registry::{Registry, Writer};
use super::view::{OrchestratorView, View};
use super::wishes::{WishError, Wishes};
use crate::config::OrchestratorConfig;

const ORDERS_WAITING: usize = 64;

/// Why the orchestrator does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum OrchestratorError {
    #[error("another orchestrator is running (incarnation {0}); only one may")]
    AlreadyRunning(String),
    #[error("the orchestrator lock went to another, {0}: this one has stopped acting")]
    Lost(String),
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Wishes(#[from] WishError),
    #[error("cannot listen for the end of workers")]
    Signals(#[source] std::io::Error),
}

/// What it is made from.
#[derive(Debug)]
pub struct Settings {
    pub config: OrchestratorConfig,
    pub redis: Redis,
    pub redis_config: worker::redis::RedisConfig,
    pub pool: PgPool,
    /// Variables of ours with this prefix are not passed on to workers.
    pub withheld_prefix: String,
}

/// What a lock that was taken obliges us to, before or beside everything else. What fails is tried again in the next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owed {
    Nothing,
    /// What runs is to be written down (again).
    Record,
    /// What a predecessor left is to be adopted or ended. Until then we do not know what runs, and start nothing.
    TakeOver,
}

/// The loop's own state.
#[derive(Debug)]
pub struct Orchestrator {
    pub(super) config: Arc<OrchestratorConfig>,
    pub(super) redis_config: worker::redis::RedisConfig,
    pub(super) withheld_prefix: String,
    pub(super) lead: Leadership,
    pub(super) registry: Registry,
    pub(super) wishes: Wishes,
    pub(super) fleet: String,
    pub(super) members: BTreeMap<WorkerId, Member>,
    pub(super) outputs: Outputs,
    /// Since when Redis has answered every round; a worker's silence counts only from then on.
    pub(super) answering_since: Option<Instant>,
    pub(super) owed: Owed,
    /// Another has led since we read file and wishes, and may have followed others since.
    pub(super) outdated: bool,
    /// Redis has lost its data: until then workers that survived elsewhere claim their locks again, so nobody is started.
    pub(super) hold_until: Option<Instant>,
    /// A process has ended: its family may have left somebody behind.
    pub(super) sweep_due: bool,
    pub(super) next_round: Instant,
    pub(super) rounds: u64,
    pub(super) last_round: Duration,
    pub(super) started_at: DateTime<Utc>,
    pub(super) workers_file: Option<PathBuf>,
    /// Something changed that the view does not show yet.
    pub(super) changed: bool,
    view: watch::Sender<Arc<View>>,
    orders: mpsc::Receiver<Order>,
    children: Signal,
}

impl Orchestrator {
    /// Takes the lock and learns what there is. With `standby` it may begin without the lock.
    ///
    /// # Errors
    /// When another orchestrator runs, or a store does not answer.
    pub async fn start(settings: Settings) -> Result<(Self, Fleet), OrchestratorError> {
        let Settings { config, redis, redis_config, pool, withheld_prefix } = settings;
        let children = signal(SignalKind::child()).map_err(OrchestratorError::Signals)?;
        let wishes = Wishes::new(pool);
        let fleet = wishes.fleet().await?;
        let mut lead = Leadership::new(redis.clone(), config.keys.clone(), config.lock_ttl, Me::new());
        match lead.take().await? {
            Tried::Leading { .. } => {}
            Tried::Held(by) if config.standby => {
                tracing::info!(by, "another orchestrator leads; standing by");
            }
            Tried::Held(by) => return Err(OrchestratorError::AlreadyRunning(by)),
        }
        let outdated = !lead.leads();
        let (orders_in, orders) = mpsc::channel(ORDERS_WAITING);
        let (view, seen) = watch::channel(Arc::new(View::default()));
        let handle = Fleet { orders: orders_in, view: seen };
        let mut orchestrator = Self {
            registry: Registry::new(redis, config.keys.clone(), config.timing),
            outputs: Outputs::new(config.data_dir.join("logs")),
            workers_file: config.workers_file.clone(),
            config: Arc::new(config),
            redis_config,
            withheld_prefix,
            lead,
            wishes,
            fleet,
            members: BTreeMap::new(),
            answering_since: Some(Instant::now()),
            owed: Owed::Nothing,
            outdated,
            hold_until: None,
            sweep_due: false,
            next_round: Instant::now(),
            rounds: 0,
            last_round: Duration::ZERO,
            started_at: Utc::now(),
            changed: true,
            view,
            orders,
            children,
        };
        let wishes = orchestrator.wishes.all().await?;
        orchestrator.arrange(orchestrator.config.workers.clone(), wishes).await;
        if orchestrator.lead.leads() {
            let me = orchestrator.lead.me();
            tracing::info!(incarnation = me.incarnation, epoch = orchestrator.lead.epoch(), "leading");
            orchestrator.take_over().await?;
        }
        orchestrator.show();
        Ok((orchestrator, handle))
    }

    /// Whether we may start and end workers: we lead, and know what there is.
    pub(super) fn acts(&self) -> bool {
        self.lead.leads() && self.owed != Owed::TakeOver
    }

    pub(super) fn writer(&self) -> Writer {
        Writer { me: self.lead.me().clone(), epoch: self.lead.epoch() }
    }

    /// Runs until `stop`, then stops the workers in order.
    ///
    /// # Errors
    /// When the lock went to another: its workers are the other's now, and nothing of them is touched.
    pub async fn run(
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
                Some(order) = self.orders.recv() => self.obey(order).await,
                Ok(()) = config.changed() => {
                    let new = Arc::clone(&config.borrow_and_update());
                    self.reloaded(&new).await;
                }
                () = tokio::time::sleep_until(next_act.into()) => {}
                _ = look.tick() => self.look(),
            }
            self.act().await;
            self.show();
        }
        self.shut_down().await
    }

    /// When something is due that no event announces.
    fn next_act(&self) -> Instant {
        if !self.acts() {
            return self.next_round;
        }
        let due = |member: &Member| match &member.phase {
            Phase::Ending { kill_at, .. } => Some(*kill_at),
            Phase::Due { at } => Some(self.hold_until.map_or(*at, |hold| hold.max(*at))),
            Phase::Stopped | Phase::Up { .. } | Phase::GivenUp => None,
        };
        self.members.values().filter_map(due).min().unwrap_or(self.next_round).min(self.next_round)
    }

    /// Kills what had its time, forgets what is gone, starts what is due.
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

    /// Asks a worker's process to end, if it has one that was not asked yet. Not without the lock: the process may be another's
    /// by now. The next round in which we lead sees what has to end.
    pub(super) async fn end(&mut self, id: &WorkerId, why: Why) {
        if !self.lead.leads() {
            return;
        }
        let kill_at = Instant::now() + self.config.shutdown_grace;
        let Some(member) = self.members.get_mut(id) else { return };
        let Some(identity) = member.end(why, kill_at) else { return };
        self.changed = true;
        let told = if why == Why::Renew { Told::Restart } else { Told::Shutdown };
        // A worker that listens to the channel has a way to end that one which only knows signals has not; both are told. While
        // Redis is away each try would cost its whole timeout, and many ends at once the lock.
        if self.answering_since.is_some()
            && let Err(error) = self.registry.publish(&Command::to(told, id)).await
        {
            tracing::warn!(worker = %id, "told by signal alone");
            self.away(&error);
        }
        identity.terminate();
    }

    /// Looks after children that have ended.
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
                tracing::error!(worker = %id, pid, how, failures = member.failures, "given up; needs a person");
            }
            Phase::Due { at } if member.failures > 0 => {
                let pause_ms =
                    u64::try_from(at.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(worker = %id, pid, how, failures = member.failures, pause_ms, "ended; will be started again");
            }
            _ => tracing::info!(worker = %id, pid, how, "ended"),
        }
        metrics::counter!("bursar_worker_control_exits_total", "worker" => id.to_string()).increment(1);
        // The next look at Redis frees its lock and sees whether a restart was asked for.
        if self.lead.leads() {
            self.next_round = self.next_round.min(now);
        }
    }

    /// Passes on what workers said, and notices the end of those that are not our children.
    fn look(&mut self) {
        self.outputs.pass_on();
        let adopted = |member: &Member| member.process().is_some_and(|process| process.child.is_none());
        if self.members.values().any(adopted) {
            self.reap();
        }
    }

    /// Lets the outside see what changed.
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
        let there = self.members.iter().filter(|(_, member)| !member.removed || member.process().is_some());
        let workers = there.map(|(id, member)| (id.clone(), shared(id, member))).collect();
        let me = self.lead.me();
        let orchestrator = OrchestratorView {
            incarnation: me.incarnation.clone(),
            leading: self.lead.leads(),
            epoch: self.lead.epoch(),
            started_at: self.started_at,
            last_round: self.last_round,
            workers_file: self.workers_file.clone(),
        };
        self.view.send_replace(Arc::new(View { workers, orchestrator }));
    }
}
