//! What the work of a worker process is given: whether it may go on, who it is, where it writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{BoxError, DAY};
use crate::claim::HeldLock;
use crate::history::History;
use crate::settings::{Settings, WithoutRedis};
use crate::state::{WorkerState, WorkerStatus};

/// Where a worker stands with its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// There is no Redis to stand with.
    Alone,
    Held(HeldLock),
    /// Redis does not answer. What was held last, if anything.
    Away(Option<HeldLock>),
    /// Another incarnation has the lock.
    Lost(String),
}

/// What the runtime's tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) permission: watch::Sender<Permission>,
    pub(crate) state: Mutex<WorkerState>,
    /// Publishes the state before the next heartbeat is due.
    pub(crate) publish_now: Notify,
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
        self.permission.send_if_modified(|permission| {
            let last = match permission {
                Permission::Held(held) => Some(*held),
                Permission::Away(_) | Permission::Lost(_) | Permission::Alone => return false,
            };
            *permission = Permission::Away(last);
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
        match &*self.shared.permission.borrow() {
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
        match &*self.shared.permission.borrow() {
            Permission::Alone => true,
            Permission::Held(held) => self.within(held),
            Permission::Away(last) => match last {
                Some(held) => self.within(held),
                None => self.shared.settings.without_redis == WithoutRedis::GoOn,
            },
            Permission::Lost(_) => false,
        }
    }

    fn within(&self, held: &HeldLock) -> bool {
        self.shared.settings.without_redis == WithoutRedis::GoOn || Instant::now() < held.until
    }

    /// The token of the lock held now or last.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        match &*self.shared.permission.borrow() {
            Permission::Held(held) | Permission::Away(Some(held)) => Some(held.token),
            Permission::Alone | Permission::Away(None) | Permission::Lost(_) => None,
        }
    }

    /// Publishes fields of the worker's own beside the runtime's, at once.
    pub fn publish(&self, own: Map<String, Value>) {
        self.shared.change(|state| state.own = own);
        self.shared.publish_now.notify_one();
    }

    /// Waits until something new may be started; false when the worker is to stop instead.
    pub async fn permit(&self) -> bool {
        let mut permission = self.shared.permission.subscribe();
        loop {
            if self.shared.stop.is_cancelled() {
                return false;
            }
            if self.may_start() {
                return true;
            }
            self.shared.change(|state| state.status = WorkerStatus::Waiting);
            let changed = self.shared.stop.run_until_cancelled(permission.changed()).await;
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
                state.status = WorkerStatus::Working;
                state.epoch += 1;
                state.last_cycle_at = Some(chrono::Utc::now());
            });
            self.shared.publish_now.notify_one();
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
        let mut permission = self.shared.permission.subscribe();
        while self.may_start() {
            let lock_ends = match &*permission.borrow_and_update() {
                Permission::Held(held) => held.until.saturating_duration_since(Instant::now()),
                Permission::Alone | Permission::Away(_) | Permission::Lost(_) => DAY,
            };
            // Whichever comes first; an expired wait only looks again.
            let _ = tokio::time::timeout(lock_ends.max(Duration::from_millis(1)), permission.changed()).await;
        }
    }
}
