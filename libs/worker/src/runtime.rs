//! The life of a worker process: lock, history, heartbeat, control channel, its work, and a clean stop.
//!
//! ```no_run
//! # use worker::{Settings, Turn, runtime};
//! # use tokio_util::sync::CancellationToken;
//! struct Rebalance;
//!
//! impl worker::Cycle for Rebalance {
//!     type Error = std::io::Error;
//!     async fn cycle(&mut self, turn: &Turn) -> Result<serde_json::Value, std::io::Error> {
//!         // Read, decide; then, before each act on the outside world, ask whether it is still ours to act:
//!         if turn.may_act() { /* pass `turn.fencing_token()` along where it can be checked */ }
//!         Ok(serde_json::json!({"decision": "hold"}))
//!     }
//! }
//!
//! # async fn start(stop: CancellationToken) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let settings = Settings::from_env(&"rebalance".parse()?)?;
//! runtime::run(settings, stop, |worker| async move { worker.cycles(Rebalance).await }).await?;
//! # Ok(()) }
//! ```
//!
//! Long-running work (loops that sleep and wake by themselves) uses [`Worker::while_permitted`] instead of cycles.
//!
//! Invariants: nothing begins before the lock is held (or Redis is known to be away and the work is leased elsewhere);
//! heartbeats come from a task of their own, so that a long cycle stays visible and a hung one does not look alive; after
//! the lock went to another, `may_act` says no and the process ends.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::claim::{Claim, Held, Taken};
use crate::control::{Command, Order};
use crate::history::{History, HistoryError};
use crate::keeper;
use crate::redis::{Redis, RedisError, Subscription};
use crate::settings::{Settings, WithoutRedis};
use crate::state::{Mood, WorkerState};

/// How long the work may take to end after it was told that its lock is gone, or its orchestrator.
const LAST_GRACE: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a worker ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("{id} is already running as incarnation {by}")]
    Busy { id: String, by: String },
    #[error("the orchestrator admits incarnation {by} of {id}, not this one")]
    Refused { id: String, by: String },
    #[error("the lock of {id} went to another incarnation, {by}")]
    Lost { id: String, by: String },
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("the worker failed")]
    Body(#[source] BoxError),
    #[error("the worker broke down")]
    Panic(#[source] tokio::task::JoinError),
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Stopped,
    /// It asked to be started again.
    Restart,
}

/// Where a worker stands with its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// There is no Redis to stand with.
    Alone,
    Held(Held),
    /// Redis does not answer. What was held last, if anything.
    Away(Option<Held>),
    /// Another incarnation has the lock.
    Lost(String),
}

/// What the runtime's tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) standing: watch::Sender<Permission>,
    pub(crate) state: Mutex<WorkerState>,
    /// Publishes the state before the next heartbeat is due.
    pub(crate) fresh: Notify,
    /// When the cycle under way must be over.
    pub(crate) overdue_at: Mutex<Option<Instant>>,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn change(&self, change: impl FnOnce(&mut WorkerState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn snapshot(&self) -> WorkerState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets what a worker cut off from Redis falls back to.
    pub(crate) fn away(&self) {
        self.standing.send_if_modified(|standing| {
            let last = match standing {
                Permission::Held(held) => Some(*held),
                Permission::Away(_) | Permission::Lost(_) | Permission::Alone => return false,
            };
            *standing = Permission::Away(last);
            true
        });
    }
}

/// What the work is given: whether it may go on, who it is, where it writes. Clones share everything.
#[derive(Debug, Clone)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) history: Option<History>,
}

impl Worker {
    /// Who this is and how it keeps time.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Fires when the worker is to stop; what is under way may be finished.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.shared.stop
    }

    /// The worker's own file, if it has one.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Whether something new may be started now.
    #[must_use]
    pub fn may_start(&self) -> bool {
        let go_on = self.shared.settings.without_redis == WithoutRedis::GoOn;
        match &*self.shared.standing.borrow() {
            Permission::Alone => true,
            // A process that was paused wakes up with a lock that has ended meanwhile.
            Permission::Held(held) => go_on || Instant::now() < held.until,
            Permission::Away(_) => go_on,
            Permission::Lost(_) => false,
        }
    }

    /// Whether what is under way may still act on the outside world.
    #[must_use]
    pub fn may_act(&self) -> bool {
        match &*self.shared.standing.borrow() {
            Permission::Alone => true,
            Permission::Held(held) => self.within(held),
            Permission::Away(last) => match last {
                Some(held) => self.within(held),
                None => self.shared.settings.without_redis == WithoutRedis::GoOn,
            },
            Permission::Lost(_) => false,
        }
    }

    fn within(&self, held: &Held) -> bool {
        self.shared.settings.without_redis == WithoutRedis::GoOn || Instant::now() < held.until
    }

    /// The token of the lock held now or last.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        match &*self.shared.standing.borrow() {
            Permission::Held(held) | Permission::Away(Some(held)) => Some(held.token),
            Permission::Alone | Permission::Away(None) | Permission::Lost(_) => None,
        }
    }

    /// Publishes fields of the worker's own beside the runtime's, at once.
    pub fn publish(&self, own: Map<String, Value>) {
        self.shared.change(|state| state.own = own);
        self.shared.fresh.notify_one();
    }

    /// Waits until something new may be started; false when the worker is to stop instead.
    pub async fn permit(&self) -> bool {
        let mut standing = self.shared.standing.subscribe();
        loop {
            if self.shared.stop.is_cancelled() {
                return false;
            }
            if self.may_start() {
                return true;
            }
            self.shared.change(|state| state.status = Mood::Waiting);
            let changed = self.shared.stop.run_until_cancelled(standing.changed()).await;
            // The sender lives in what we share, so an error cannot be; not spinning on it is enough.
            if !matches!(changed, Some(Ok(()))) {
                return false;
            }
        }
    }

    /// Runs long-running work for as long as it may run: told to finish when Redis goes away, started again when it is back.
    ///
    /// # Errors
    /// When the work ends by itself with an error, or breaks down.
    pub async fn while_permitted<F, Fut, E>(&self, work: F) -> Result<(), BoxError>
    where
        F: Fn(CancellationToken) -> Fut + Send,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        while self.permit().await {
            self.shared.change(|state| {
                state.status = Mood::Working;
                state.epoch += 1;
                state.last_cycle_at = Some(chrono::Utc::now());
            });
            self.shared.fresh.notify_one();
            let stop = self.shared.stop.child_token();
            let mut task = tokio::spawn(work(stop.clone()));
            tokio::select! {
                ended = &mut task => {
                    ended?.map_err(Into::into)?;
                    // Work that ends by itself is done, or was told to stop.
                    return Ok(());
                }
                () = self.revoked() => {
                    tracing::warn!(worker = %self.shared.settings.id, "may not go on; finishing what is held");
                    stop.cancel();
                    task.await?.map_err(Into::into)?;
                }
            }
        }
        Ok(())
    }

    async fn revoked(&self) {
        let mut standing = self.shared.standing.subscribe();
        while self.may_start() {
            let lock_ends = match &*standing.borrow_and_update() {
                Permission::Held(held) => held.until.saturating_duration_since(Instant::now()),
                Permission::Alone | Permission::Away(_) | Permission::Lost(_) => DAY,
            };
            // Whichever comes first; an expired wait only looks again.
            let _ = tokio::time::timeout(lock_ends.max(Duration::from_millis(1)), standing.changed()).await;
        }
    }
}

/// Runs a worker until `stop`, a command on the control channel, or a fault.
///
/// # Errors
/// When it cannot start, loses its lock to another, or its work fails.
pub async fn run<F, Fut>(settings: Settings, stop: CancellationToken, work: F) -> Result<Ended, RuntimeError>
where
    F: FnOnce(Worker) -> Fut,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    if settings.exit_when_orphaned {
        end_with_standard_input(stop.clone());
    }
    let state = Mutex::new(WorkerState::new(&settings.id, &settings.incarnation));
    let shared = Arc::new(Shared {
        standing: watch::Sender::new(Permission::Alone),
        state,
        fresh: Notify::new(),
        overdue_at: Mutex::new(None),
        stop: stop.child_token(),
        settings,
    });
    let edge = match connect(&shared).await? {
        Connected::Stopped => return Ok(Ended::Stopped),
        Connected::Alone => None,
        Connected::With(edge) => Some(edge),
    };
    let history = match open_history(&shared.settings).await {
        Ok(history) => history,
        Err(error) => {
            // Or the next one waits out the whole time to live of a lock that nobody uses.
            if let Some(edge) = edge {
                let _ = edge.claim.release().await;
            }
            return Err(error.into());
        }
    };
    let worker = Worker { shared: Arc::clone(&shared), history };
    tracing::info!(worker = %shared.settings.id, incarnation = shared.settings.incarnation, "worker started");
    let ended = live(&worker, work, edge).await;
    if let Some(history) = &worker.history {
        history.close().await;
    }
    tracing::info!(worker = %shared.settings.id, "worker stopped");
    ended
}

async fn open_history(settings: &Settings) -> Result<Option<History>, HistoryError> {
    match &settings.data_dir {
        Some(dir) => History::open(dir, &settings.id, settings.retention).await.map(Some),
        None => Ok(None),
    }
}

/// The parts that exist only with Redis.
struct Edge {
    claim: Claim,
    control: Subscription,
}

enum Connected {
    Alone,
    With(Box<Edge>),
    Stopped,
}

/// Connects and takes the lock, if there is a Redis at all.
async fn connect(shared: &Shared) -> Result<Connected, RuntimeError> {
    let settings = &shared.settings;
    let Some(config) = &settings.redis else { return Ok(Connected::Alone) };
    let redis = Redis::open(config)?;
    let control = redis.subscribe(settings.keys.control())?;
    let (keys, id) = (settings.keys.clone(), settings.id.clone());
    let claim = Claim::new(redis, keys, settings.timing, id, settings.incarnation.clone());
    shared.standing.send_replace(Permission::Away(None));
    let mut told = false;
    loop {
        let refused = match claim.take().await {
            Ok(Taken::Ours(held)) => {
                shared.standing.send_replace(Permission::Held(held));
                shared.change(|state| state.fencing_token = Some(held.token));
                break;
            }
            Ok(Taken::Busy(by)) => RuntimeError::Busy { id: settings.id.to_string(), by },
            Ok(Taken::Refused(by)) => RuntimeError::Refused { id: settings.id.to_string(), by },
            Err(error) if settings.without_redis == WithoutRedis::GoOn => {
                let reason = &error as &dyn Error;
                tracing::warn!(worker = %settings.id, reason, "working without a lock until Redis answers");
                break;
            }
            Err(error) => error.into(),
        };
        match refused {
            RuntimeError::Redis(RedisError::Unreachable(_)) => {}
            // Nobody else will look after us: wait for our turn, as the new process of a rolling update does.
            RuntimeError::Busy { .. } if !settings.supervised => {}
            other => return Err(other),
        }
        if !told {
            tracing::warn!(worker = %settings.id, reason = &refused as &dyn Error, "waiting for the lock");
            told = true;
        }
        let pause = keeper::retry_pause(&settings.timing);
        if shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return Ok(Connected::Stopped);
        }
    }
    Ok(Connected::With(Box::new(Edge { claim, control })))
}

/// Runs heartbeats, control and the work side by side, and ends them in order.
async fn live<F, Fut>(worker: &Worker, work: F, mut edge: Option<Box<Edge>>) -> Result<Ended, RuntimeError>
where
    F: FnOnce(Worker) -> Fut,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let shared = &worker.shared;
    let (mut ended, mut stopping) = (Ended::Stopped, false);
    let mut task = tokio::spawn(work(worker.clone()));
    let keeper = edge.as_ref().map(|edge| tokio::spawn(keeper::keep(Arc::clone(shared), edge.claim.clone())));
    let pruner = worker.history.clone().map(|history| tokio::spawn(prune_daily(history)));
    let mut lost = worker.shared.standing.subscribe();
    let result = loop {
        tokio::select! {
            result = &mut task => break result,
            () = shared.stop.cancelled(), if !stopping => {
                stopping = true;
                shared.change(|state| state.status = Mood::Stopping);
                shared.fresh.notify_one();
            }
            () = gone(&mut lost) => {
                shared.stop.cancel();
                break within_grace(&mut task).await;
            }
            message = next_message(edge.as_deref_mut()) => {
                let Some(order) = order_for(&message, worker) else { continue };
                tracing::info!(worker = %shared.settings.id, ?order, "told by the control channel");
                if order == Order::Restart && let Some(edge) = &edge {
                    ended = Ended::Restart;
                    if let Err(error) = edge.claim.ask_for_restart().await {
                        tracing::warn!(error = &error as &dyn Error, "the restart flag is not set");
                    }
                }
                shared.stop.cancel();
            }
        }
    };
    shared.stop.cancel();
    for helper in [keeper, pruner].into_iter().flatten() {
        helper.abort();
    }
    if let Some(edge) = edge {
        // Only when Redis is there; else the lock ends by itself.
        let _ = edge.claim.release().await;
    }
    if let Permission::Lost(by) = &*shared.standing.borrow() {
        return Err(RuntimeError::Lost { id: shared.settings.id.to_string(), by: by.clone() });
    }
    result.map_err(RuntimeError::Panic)?.map_err(RuntimeError::Body)?;
    Ok(ended)
}

async fn gone(standing: &mut watch::Receiver<Permission>) {
    // The sender lives in what the caller shares.
    let _ = standing.wait_for(|standing| matches!(standing, Permission::Lost(_))).await;
}

async fn next_message(edge: Option<&mut Edge>) -> String {
    match edge {
        Some(edge) => edge.control.next().await,
        None => std::future::pending().await,
    }
}

fn order_for(message: &str, worker: &Worker) -> Option<Order> {
    let command = Command::parse(message);
    if command.is_none() {
        tracing::warn!(message, "not a command; ignored");
    }
    command.filter(|command| command.concerns(&worker.shared.settings.id)).map(|command| command.order)
}

type Work = tokio::task::JoinHandle<Result<(), BoxError>>;

/// What may not act any more gets a moment to end in order, and is then dropped as a crash would.
async fn within_grace(task: &mut Work) -> Result<Result<(), BoxError>, tokio::task::JoinError> {
    match tokio::time::timeout(LAST_GRACE, &mut *task).await {
        Ok(result) => result,
        Err(_) => {
            task.abort();
            Ok(Ok(()))
        }
    }
}

async fn prune_daily(history: History) {
    loop {
        tokio::time::sleep(DAY).await;
        if let Err(error) = history.prune(chrono::Utc::now()).await {
            tracing::warn!(error = &error as &dyn Error, "the history was not pruned");
        }
    }
}

/// A thread and not a task: reading standard input blocks, and must not hold up the end of the runtime.
fn end_with_standard_input(stop: CancellationToken) {
    std::thread::spawn(move || {
        // Whatever is read means nothing; the end means that the orchestrator is gone.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        tracing::warn!("the orchestrator is gone, stopping");
        stop.cancel();
        std::thread::sleep(LAST_GRACE);
        std::process::exit(1);
    });
}
