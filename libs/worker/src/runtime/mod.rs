//! The life of a worker process: lock, history, heartbeat, control channel, its work, and a clean stop.
//!
//! ```no_run
//! # use worker::{Settings, CycleContext, runtime};
//! # use tokio_util::sync::CancellationToken;
//! struct Rebalance;
//!
//! impl worker::Cycle for Rebalance {
//!     type Error = std::io::Error;
//!     async fn cycle(&mut self, context: &CycleContext) -> Result<serde_json::Value, std::io::Error> {
//!         // Read, decide; then, before each act on the outside world, ask whether it is still ours to act:
//!         if context.may_act() { /* pass `context.fencing_token()` along where it can be checked */ }
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

mod worker;

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::worker::Shared;
pub use self::worker::{Permission, Worker};
use crate::claim::{Claim, LockOutcome};
use crate::control::{Command, CommandKind};
use crate::history::{History, HistoryError};
use crate::keeper;
use crate::redis::{Redis, RedisError, Subscription};
use crate::settings::{Settings, WithoutRedis};
use crate::state::{WorkerState, WorkerStatus};

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
        permission: watch::Sender::new(Permission::Alone),
        state,
        publish_now: Notify::new(),
        overdue_at: Mutex::new(None),
        stop: stop.child_token(),
        settings,
    });
    let link = match connect(&shared).await? {
        Connected::Stopped => return Ok(Ended::Stopped),
        Connected::Alone => None,
        Connected::With(link) => Some(link),
    };
    let history = match open_history(&shared.settings).await {
        Ok(history) => history,
        Err(error) => {
            // Or the next one waits out the whole time to live of a lock that nobody uses.
            if let Some(link) = link {
                let _ = link.claim.release().await;
            }
            return Err(error.into());
        }
    };
    let worker = Worker { shared: Arc::clone(&shared), history };
    tracing::info!(worker = %shared.settings.id, incarnation = shared.settings.incarnation, "worker started");
    let ended = live(&worker, work, link).await;
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
struct RedisLink {
    claim: Claim,
    control: Subscription,
}

enum Connected {
    Alone,
    With(Box<RedisLink>),
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
    shared.permission.send_replace(Permission::Away(None));
    let mut warned = false;
    loop {
        let refused = match claim.take().await {
            Ok(LockOutcome::Ours(held)) => {
                shared.permission.send_replace(Permission::Held(held));
                shared.change(|state| state.fencing_token = Some(held.token));
                break;
            }
            Ok(LockOutcome::Busy(by)) => RuntimeError::Busy { id: settings.id.to_string(), by },
            Ok(LockOutcome::Refused(by)) => RuntimeError::Refused { id: settings.id.to_string(), by },
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
        if !warned {
            tracing::warn!(worker = %settings.id, reason = &refused as &dyn Error, "waiting for the lock");
            warned = true;
        }
        let pause = keeper::retry_pause(&settings.timing);
        if shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return Ok(Connected::Stopped);
        }
    }
    Ok(Connected::With(Box::new(RedisLink { claim, control })))
}

/// Runs heartbeats, control and the work side by side, and ends them in order.
async fn live<F, Fut>(
    worker: &Worker,
    work: F,
    mut link: Option<Box<RedisLink>>,
) -> Result<Ended, RuntimeError>
where
    F: FnOnce(Worker) -> Fut,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let shared = &worker.shared;
    let (mut ended, mut stopping) = (Ended::Stopped, false);
    let mut task = tokio::spawn(work(worker.clone()));
    let keeper = link.as_ref().map(|link| tokio::spawn(keeper::keep(Arc::clone(shared), link.claim.clone())));
    let pruner = worker.history.clone().map(|history| tokio::spawn(prune_daily(history)));
    let mut lost = worker.shared.permission.subscribe();
    let result = loop {
        tokio::select! {
            result = &mut task => break result,
            () = shared.stop.cancelled(), if !stopping => {
                stopping = true;
                shared.change(|state| state.status = WorkerStatus::Stopping);
                shared.publish_now.notify_one();
            }
            () = gone(&mut lost) => {
                shared.stop.cancel();
                break within_grace(&mut task).await;
            }
            message = next_message(link.as_deref_mut()) => {
                let Some(kind) = command_for(&message, worker) else { continue };
                tracing::info!(worker = %shared.settings.id, order = ?kind, "command received on the control channel");
                if kind == CommandKind::Restart && let Some(link) = &link {
                    ended = Ended::Restart;
                    if let Err(error) = link.claim.ask_for_restart().await {
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
    if let Some(link) = link {
        // Only when Redis is there; else the lock ends by itself.
        let _ = link.claim.release().await;
    }
    if let Permission::Lost(by) = &*shared.permission.borrow() {
        return Err(RuntimeError::Lost { id: shared.settings.id.to_string(), by: by.clone() });
    }
    result.map_err(RuntimeError::Panic)?.map_err(RuntimeError::Body)?;
    Ok(ended)
}

async fn gone(permission: &mut watch::Receiver<Permission>) {
    // The sender lives in what the caller shares.
    let _ = permission.wait_for(|permission| matches!(permission, Permission::Lost(_))).await;
}

async fn next_message(link: Option<&mut RedisLink>) -> String {
    match link {
        Some(link) => link.control.next().await,
        None => std::future::pending().await,
    }
}

fn command_for(message: &str, worker: &Worker) -> Option<CommandKind> {
    let command = Command::parse(message);
    if command.is_none() {
        tracing::warn!(message, "not a command; ignored");
    }
    command.filter(|command| command.concerns(&worker.shared.settings.id)).map(|command| command.kind)
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
