//! Streams the history of a request as it grows.
//!
//! Owns the hub that wakes watchers, and what a watcher has read so far. Watchers read the history from the database, in order and
//! without gaps, each entry with a request that is at least as new; a wake-up carries no data. So a watch that resumes after any
//! sequence, on any instance, misses nothing.
//!
//! One loop serves all watchers of a process: on each wake-up it queries the sequences of all watched requests at once, instead
//! of one query for each watcher.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use db::wake::{Wake, Waker};
use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use types::WithdrawalId;

use super::domain::Transition;
use super::error::WithdrawalError;
use super::repo;
use super::request::Withdrawal;

/// What the hub waits for; `transition_append.sql` notifies it.
pub const TOPIC: &str = "intent_transitions";
/// Notifications may be lost, so the hub looks this often without one.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How often a watcher tries to read. That is enough for a failover of the database; if it stays unreachable the watch ends, and
/// the client resumes on another instance.
const READ_TRIES: u32 = 5;
/// Entries read at once.
const BATCH: u32 = 100;

#[derive(Debug)]
struct Watched {
    watchers: usize,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Registry {
    by_id: Mutex<HashMap<WithdrawalId, Watched>>,
    joined: Notify,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<WithdrawalId, Watched>> {
        // A panic elsewhere cannot have left counts and channels half changed.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes watchers when their request has changed. Clones share the registry.
#[derive(Debug, Clone)]
pub struct Hub {
    pool: PgPool,
    registry: Arc<Registry>,
}

impl Hub {
    pub fn new(pool: PgPool) -> Self {
        Self { pool, registry: Arc::default() }
    }

    pub async fn run(&self, waker: &Waker, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.run_for_ever(waker)).await;
    }

    async fn run_for_ever(&self, waker: &Waker) {
        let mut wakeups = waker.subscribe(TOPIC);
        loop {
            match self.tick().await {
                Ok(0) => {
                    // Writers need not notify while there are no watchers.
                    wakeups.found_work();
                    self.registry.joined.notified().await;
                }
                Ok(_) => {
                    if wakeups.wait(LONGEST_SLEEP).await == Wake::Closed {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot query the watched requests; retrying"
                    );
                    tokio::time::sleep(FAILED_PAUSE).await;
                }
            }
        }
    }

    /// Queries once for all watchers. Returns how many requests are watched.
    pub async fn tick(&self) -> Result<usize, WithdrawalError> {
        let ids: Vec<WithdrawalId> = self.registry.lock().keys().copied().collect();
        metrics::gauge!("bursar_intent_watched_requests")
            .set(f64::from(u32::try_from(ids.len()).unwrap_or(u32::MAX)));
        if ids.is_empty() {
            return Ok(0);
        }
        let mut connection = self.pool.acquire().await?;
        let sequences = repo::newest_sequences_in(&mut connection, &ids).await?;
        let registered = self.registry.lock();
        for (id, sequence) in sequences {
            if let Some(watched) = registered.get(&id) {
                watched
                    .newest
                    .send_if_modified(|newest| sequence > std::mem::replace(newest, sequence.max(*newest)));
            }
        }
        Ok(ids.len())
    }

    /// Watches a request, from after a sequence on.
    pub async fn watch(&self, id: WithdrawalId, after: u64) -> Result<Watcher, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::find_in(&mut connection, id).await?;
        let newest = {
            let mut registered = self.registry.lock();
            let new = || Watched { watchers: 0, newest: watch::Sender::new(0) };
            let watched = registered.entry(id).or_insert_with(new);
            watched.watchers += 1;
            watched.newest.subscribe()
        };
        self.registry.joined.notify_one();
        Ok(Watcher { hub: self.clone(), id, after, newest, waiting: VecDeque::new(), ended: false })
    }
}

/// One watcher. It is registered before it first reads, so that it is woken for everything that comes after that.
#[derive(Debug)]
pub struct Watcher {
    hub: Hub,
    id: WithdrawalId,
    after: u64,
    newest: watch::Receiver<u64>,
    waiting: VecDeque<(Transition, Withdrawal)>,
    ended: bool,
}

impl Watcher {
    /// The next entry with the current request; `None` after the terminal one.
    pub async fn next(&mut self) -> Result<Option<(Transition, Withdrawal)>, WithdrawalError> {
        loop {
            if let Some((transition, withdrawal)) = self.waiting.pop_front() {
                self.after = transition.sequence;
                self.ended = transition.to.is_terminal();
                return Ok(Some((transition, withdrawal)));
            }
            if self.ended {
                return Ok(None);
            }
            self.read().await?;
            if self.waiting.is_empty() && !self.ended {
                let after = self.after;
                // The registry keeps the sender as long as this watcher is counted there.
                self.newest.wait_for(|newest| *newest > after).await.ok();
            }
        }
    }

    async fn read(&mut self) -> Result<(), WithdrawalError> {
        for _ in 1..READ_TRIES {
            match self.read_once().await {
                Err(error) if error.retry() => tokio::time::sleep(FAILED_PAUSE).await,
                read => return read,
            }
        }
        self.read_once().await
    }

    async fn read_once(&mut self) -> Result<(), WithdrawalError> {
        let mut connection = self.hub.pool.acquire().await?;
        // The request is read first, and later entries of the history are dropped: an entry that was committed between the two
        // reads would otherwise be sent with a request that does not show it, and the end of a watch with one that has not ended.
        // The next read returns it, when the hub wakes this watcher.
        let withdrawal = repo::find_in(&mut connection, self.id).await?;
        let mut transitions = repo::transitions_in(&mut connection, self.id, self.after, BATCH).await?;
        transitions.retain(|transition| transition.sequence <= withdrawal.sequence);
        // A watch that resumes at or after the end gets nothing more.
        self.ended = transitions.is_empty() && withdrawal.state.status().is_terminal();
        self.waiting.extend(transitions.into_iter().map(|transition| (transition, withdrawal.clone())));
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut registered = self.hub.registry.lock();
        if let Some(watched) = registered.get_mut(&self.id) {
            watched.watchers = watched.watchers.saturating_sub(1);
            if watched.watchers == 0 {
                registered.remove(&self.id);
            }
        }
    }
}
