//! Following a request as it changes.
//!
//! Owns the hub that calls watchers, and one watcher's way through the history. The history in the database is what a watcher
//! gets, in order and without gaps, each entry with a request that is at least as new; a call only tells it to look. So a watch
//! resumed after any sequence, on any instance, misses nothing.
//!
//! One loop serves all watchers of a process: on each wake-up it asks once for the sequences of all watched requests, instead
//! of having every watcher ask for itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use db::wake::{Wake, Waker};
use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use types::WithdrawalId;
use uuid::Uuid;

use super::error::WithdrawalError;
use super::repo::{self, Transition};
use super::request::Withdrawal;

/// What the hub sleeps on; `transition_append.sql` wakes it.
pub const TOPIC: &str = "intent_transitions";
/// No wake-up is relied on.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How often a watcher tries to read. A database that fails over is back by then and no watch has ended; one that stays away
/// ends them, and clients resume on another instance.
const READ_TRIES: u32 = 5;
/// Entries read at once.
const BATCH: u32 = 100;

#[derive(Debug)]
struct Watched {
    watchers: usize,
    /// The newest sequence that is known.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Registry {
    by_id: Mutex<HashMap<WithdrawalId, Watched>>,
    joined: Notify,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<WithdrawalId, Watched>> {
        // Counts and channels only: nothing a panic elsewhere could have left half done.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls watchers when their request has changed. Clones share the registry.
#[derive(Debug, Clone)]
pub struct Hub {
    pool: PgPool,
    registry: Arc<Registry>,
}

impl Hub {
    pub fn new(pool: PgPool) -> Self {
        Self { pool, registry: Arc::default() }
    }

    /// Serves watchers until told to stop.
    pub async fn run(&self, waker: &Waker, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.run_for_ever(waker)).await;
    }

    async fn run_for_ever(&self, waker: &Waker) {
        let mut sleeper = waker.subscribe(TOPIC);
        loop {
            match self.tick().await {
                Ok(0) => {
                    // Writers need not notify while nobody watches.
                    sleeper.found_work();
                    self.registry.joined.notified().await;
                }
                Ok(_) => {
                    if sleeper.wait(LONGEST_SLEEP).await == Wake::Closed {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot look for watchers; going on"
                    );
                    tokio::time::sleep(FAILED_PAUSE).await;
                }
            }
        }
    }

    /// Looks once for all watchers. Says how many requests are watched.
    pub async fn tick(&self) -> Result<usize, WithdrawalError> {
        let ids: Vec<Uuid> = self.registry.lock().keys().map(WithdrawalId::as_uuid).collect();
        metrics::gauge!("bursar_intent_watched_requests")
            .set(f64::from(u32::try_from(ids.len()).unwrap_or(u32::MAX)));
        if ids.is_empty() {
            return Ok(0);
        }
        let rows: Vec<(Uuid, i64)> =
            sqlx::query_as("SELECT id, last_sequence FROM withdrawal_requests WHERE id = ANY ($1)")
                .bind(&ids)
                .fetch_all(&self.pool)
                .await?;
        let watched = self.registry.lock();
        for (id, sequence) in rows {
            if let Some(entry) = watched.get(&id.into()) {
                let sequence = sequence.unsigned_abs();
                entry
                    .newest
                    .send_if_modified(|newest| sequence > std::mem::replace(newest, sequence.max(*newest)));
            }
        }
        Ok(ids.len())
    }

    /// Follows a request from after a sequence on.
    ///
    /// # Errors
    /// When there is no such request.
    pub async fn watch(&self, id: WithdrawalId, after: u64) -> Result<Watcher, WithdrawalError> {
        let mut connection = self.pool.acquire().await?;
        repo::find_in(&mut connection, id).await?;
        let newest = {
            let mut watched = self.registry.lock();
            let fresh = || Watched { watchers: 0, newest: watch::Sender::new(0) };
            let entry = watched.entry(id).or_insert_with(fresh);
            entry.watchers += 1;
            entry.newest.subscribe()
        };
        self.registry.joined.notify_one();
        Ok(Watcher { hub: self.clone(), id, after, newest, waiting: VecDeque::new(), ended: false })
    }
}

/// One watcher. Registered before it first reads, so that what comes after the read is called out.
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
    /// The next entry with the request as it stands; `None` after the terminal one.
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
                // The sender lives in the registry for as long as this watcher is counted there.
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
        // The request first, and of the history only what led to it: an entry that was committed between the two reads would
        // otherwise go out with a request that does not show it, and the end of a watch with one that has not ended. It comes
        // with the next read, which the hub's call brings about.
        let withdrawal = repo::find_in(&mut connection, self.id).await?;
        let mut transitions = repo::transitions_in(&mut connection, self.id, self.after, BATCH).await?;
        transitions.retain(|transition| transition.sequence <= withdrawal.sequence);
        // Resumed at or after the end: nothing will follow.
        self.ended = transitions.is_empty() && withdrawal.state.status().is_terminal();
        self.waiting.extend(transitions.into_iter().map(|transition| (transition, withdrawal.clone())));
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut watched = self.hub.registry.lock();
        if let Some(entry) = watched.get_mut(&self.id) {
            entry.watchers = entry.watchers.saturating_sub(1);
            if entry.watchers == 0 {
                watched.remove(&self.id);
            }
        }
    }
}
