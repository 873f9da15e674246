//! The orchestrator's loop: one task that owns every worker and does one thing at a time.
//!
//! Invariants: nothing is started, ended for its silence, or written to Redis unless we lead; what happens to our own
//! children is noticed at once (SIGCHLD), not at the next round; the loop never waits for a process to end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use worker::redis::{Redis, RedisError};
use worker::{Command, Order as Told, WorkerId};

use super::Fleet;
use super::leadership::{Leadership, Me, Tried};
use super::member::{Member, Phase, Why};
use super::order::Order;
use super::output::Outputs;
use super::process;
use super::registry::{Registry, Writer};
use super::spec::Source;
use super::view::{OrchestratorView, View};
use super::wishes::{WishError, Wishes};
use crate::config::OrchestratorConfig;

/// How often the end of processes that are not our children is looked for while stopping.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// How long a process may take to vanish after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(10);
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
    /// A process has ended: its family may have left somebody behind.
    pub(super) sweep_due: bool,
    pub(super) next_round: Instant,
    pub(super) rounds: u64,
    pub(super) last_round: Duration,
    pub(super) started_at: DateTime<Utc>,
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
        let (orders_in, orders) = mpsc::channel(ORDERS_WAITING);
        let (view, seen) = watch::channel(Arc::new(View::default()));
        let handle = Fleet { orders: orders_in, view: seen, workers_file: config.workers_file.clone() };
        let mut orchestrator = Self {
            registry: Registry::new(redis, config.keys.clone(), config.timing),
            outputs: Outputs::new(config.data_dir.join("logs")),
            config: Arc::new(config),
            redis_config,
            withheld_prefix,
            lead,
            wishes,
            fleet,
            members: BTreeMap::new(),
            answering_since: Some(Instant::now()),
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
        orchestrator.load().await?;
        if orchestrator.lead.leads() {
            let me = orchestrator.lead.me();
            tracing::info!(incarnation = me.incarnation, epoch = orchestrator.lead.epoch(), "leading");
            orchestrator.take_over().await?;
        }
        orchestrator.show();
        Ok((orchestrator, handle))
    }

    /// The workers of the file and those added over the API.
    async fn load(&mut self) -> Result<(), OrchestratorError> {
        let (now, wishes) = (Instant::now(), self.wishes.all().await?);
        for spec in self.config.workers.clone() {
            let wanted = wishes.get(&spec.id).and_then(|wish| wish.wanted);
            self.members.insert(spec.id.clone(), Member::new(spec, Source::File, wanted, now));
        }
        for (id, wish) in wishes {
            let Some(spec) = wish.spec else { continue };
            if self.members.contains_key(&id) {
                tracing::warn!(worker = %id, "is named in the file and was added over the API; the file decides");
                continue;
            }
            self.members.insert(id, Member::new(spec, Source::Api, wish.wanted, now));
        }
        Ok(())
    }

    pub(super) fn writer(&self) -> Writer {
        let me = self.lead.me();
        Writer { incarnation: me.incarnation.clone(), host: me.host.clone(), epoch: self.lead.epoch() }
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
        config.mark_unchanged();
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
        self.shut_down().await;
        Ok(())
    }

    /// When something is due that no event announces.
    fn next_act(&self) -> Instant {
        let leads = self.lead.leads();
        let due = |member: &Member| match &member.phase {
            Phase::Ending { kill_at, .. } => Some(*kill_at),
            Phase::Due { at } if leads => Some(*at),
            Phase::Due { .. } | Phase::Stopped | Phase::Up { .. } | Phase::GivenUp => None,
        };
        self.members.values().filter_map(due).min().unwrap_or(self.next_round).min(self.next_round)
    }

    /// Kills what had its time, forgets what is gone, starts what is due.
    async fn act(&mut self) {
        self.kill_overdue();
        let gone = |member: &Member| member.removed && member.process().is_none();
        let ids: Vec<WorkerId> =
            self.members.iter().filter(|(_, m)| gone(m)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.outputs.forget(&id);
            self.members.remove(&id);
            self.changed = true;
        }
        self.start_due().await;
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

    /// Asks a worker's process to end, if it has one that was not asked yet.
    pub(super) async fn end(&mut self, id: &WorkerId, why: Why) {
        let kill_at = Instant::now() + self.config.shutdown_grace;
        let Some(member) = self.members.get_mut(id) else { return };
        let Some(identity) = member.end(why, kill_at) else { return };
        self.changed = true;
        let told = if why == Why::Renew { Told::Restart } else { Told::Shutdown };
        // A worker that listens to the channel has a way to end that one which only knows signals has not; both are told.
        if let Err(error) = self.registry.publish(&Command::to(told, id)).await {
            tracing::warn!(worker = %id, error = %error, "told by signal alone");
        }
        identity.terminate();
    }

    /// Looks after children that have ended.
    pub(super) fn reap(&mut self) {
        let ids: Vec<WorkerId> = self.members.keys().cloned().collect();
        for id in ids {
            let Some(process) = self.members.get_mut(&id).and_then(Member::process_mut) else { continue };
            let how = match &mut process.child {
                Some(child) => process::reap(child),
                None if process.identity.is_alive() => None,
                None => Some("ended".to_owned()),
            };
            if let Some(how) = how {
                self.ended(&id, &how);
            }
        }
    }

    fn ended(&mut self, id: &WorkerId, how: &str) {
        let now = Instant::now();
        self.outputs.pass_on_one(id);
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

    /// SHUTDOWN, the grace, SIGKILL, and the lock given back.
    async fn shut_down(&mut self) {
        tracing::info!(
            workers = self.members.values().filter(|m| m.process().is_some()).count(),
            "stopping workers"
        );
        // Without the lock the channel is another's to speak on.
        if self.lead.leads()
            && let Err(error) = self.registry.publish(&Command::to_all(Told::Shutdown)).await
        {
            tracing::warn!(error = %error, "SHUTDOWN is not published; workers are told by signal alone");
        }
        let grace = Instant::now() + self.config.shutdown_grace;
        for member in self.members.values_mut() {
            member.removed = true;
            if let Some(identity) = member.end(Why::Stop, grace) {
                identity.terminate();
            } else if let Phase::Ending { kill_at, .. } = &mut member.phase {
                *kill_at = grace.min(*kill_at);
            }
        }
        self.wait_for_ends(grace).await;
        for member in self.members.values() {
            if let Some(process) = member.process() {
                tracing::warn!(worker = %member.spec.id, pid = process.identity.pid, "did not stop in time, killing its group");
                process.identity.kill_group();
            }
        }
        self.wait_for_ends(Instant::now() + KILL_LIMIT).await;
        self.outputs.pass_on();
        if self.lead.leads() {
            self.sweep().await;
            self.free_dead(true).await;
        }
        if let Err(error) = self.lead.resign().await {
            tracing::warn!(error = %error, "the lock is not given back; it will end by itself");
        }
        self.show();
    }

    async fn wait_for_ends(&mut self, until: Instant) {
        let mut renew_at = Instant::now();
        loop {
            self.reap();
            if Instant::now() >= until || self.members.values().all(|member| member.process().is_none()) {
                return;
            }
            if Instant::now() >= renew_at {
                // A successor must not begin while we are still ending what it would start.
                let _ = self.lead.renew().await;
                renew_at = Instant::now() + self.config.health_interval;
            }
            tokio::time::sleep(STOP_LOOK).await;
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
                // The time of the next start is computed anew each time; a difference of rounding is none.
                Some(old)
                    if **old == (super::WorkerView { next_start_at: old.next_start_at, ..new.clone() })
                        && old.next_start_at.is_some() == new.next_start_at.is_some() =>
                {
                    Arc::clone(old)
                }
                _ => Arc::new(new),
            }
        };
        let workers = self.members.iter().map(|(id, member)| (id.clone(), shared(id, member))).collect();
        let me = self.lead.me();
        let orchestrator = OrchestratorView {
            incarnation: me.incarnation.clone(),
            leading: self.lead.leads(),
            epoch: self.lead.epoch(),
            started_at: self.started_at,
            last_round: self.last_round,
            rounds: self.rounds,
        };
        self.view.send_replace(Arc::new(View { workers, orchestrator }));
    }
}
