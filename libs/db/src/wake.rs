//! Wakes waiting loops as soon as there is work, through LISTEN and NOTIFY.
//!
//! Owns the one listening connection of a process, which serves every subscription on every topic and is reconnected whenever
//! it is lost. A notification never carries work: it ends a wait, and the loop looks for work itself.
//!
//! NOTIFY is expensive, because committing transactions that notify wait for one another's flush on the whole server. So writers
//! notify only when somebody waits, which the listening connection announces by a shared advisory lock on the topic. The
//! order is: announce, look once more, wait. Work committed before that look is found by it; work of a transaction that
//! saw nobody waiting and commits after the look is found because the first waits are short.
//!
//! Invariant: nothing relies on a notification. Every wait has an end, and losing the connection ends all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{PgConnection, PgPool};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Wakes the subscriptions of a topic when the transaction commits, if any of them waits. For what is neither a queue nor the
/// outbox, which do this themselves.
pub async fn wake_in(tx: &mut PgConnection, topic: &str) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("../queries/wake.sql")).bind(topic).execute(tx).await.map(|_| ())
}

/// The channel; the payload is the topic. The statements that notify spell it out.
const CHANNEL: &str = "bursar_wake";
/// The first half of the advisory lock's key, "Burs" in ASCII; the second is the topic's hash. Also spelled out there.
const LOCK_CLASS: i32 = 1_114_993_267;
/// How long the listener waits for a connection, and how long one of its statements may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The listening connection is checked this often, because a server that vanished does not report it.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// The longest wait while the topic is not announced, and how long a subscription waits to be announced.
const UNANNOUNCED_WAIT: Duration = Duration::from_millis(250);
/// The first waits after the announcement, for transactions that were under way then.
const FIRST_WAITS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];
/// Pauses between attempts to connect: from the first to the second.
const RECONNECT: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Why a wait ended. The loop looks for work in every case but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The topic has just been announced: look once more before waiting.
    LookAgain,
    /// Somebody wrote something, or the connection was lost and something may have been missed.
    Notified,
    /// The time was up.
    Elapsed,
    /// The waker has ended.
    Closed,
}

#[derive(Debug)]
struct Topic {
    /// How many subscriptions wait.
    waiting: usize,
    /// Grows with every notification.
    notifications: watch::Sender<u64>,
    /// Whether writers can see that somebody waits.
    announced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: Mutex<HashMap<Arc<str>, Topic>>,
    changed: Notify,
}

/// The listener of a process. Clones share it; the last one to go ends it.
#[derive(Debug, Clone)]
pub struct Waker {
    topics: Arc<Topics>,
    closed: CancellationToken,
    _listener: Arc<DropGuard>,
}

impl Waker {
    /// Starts listening in the background, on a separate connection. Returns at once; waits are short until the connection is
    /// made.
    #[must_use]
    pub fn start(pool: &PgPool) -> Self {
        let topics = Arc::new(Topics::default());
        let closed = CancellationToken::new();
        tokio::spawn({
            let (topics, closed, pool) = (Arc::clone(&topics), closed.clone(), pool.clone());
            async move {
                closed.run_until_cancelled(keep_listening(&pool, &topics)).await;
                topics.notify_all();
            }
        });
        Self { topics, closed: closed.clone(), _listener: Arc::new(closed.drop_guard()) }
    }

    /// A subscription on a topic: a queue's name, or `outbox::TOPIC`. Each loop has one of its own.
    pub fn subscribe(&self, topic: &str) -> WakeSubscription {
        let topic: Arc<str> = topic.into();
        let mut by_name = self.topics.lock();
        let known = by_name.entry(Arc::clone(&topic)).or_insert_with(|| Topic {
            waiting: 0,
            notifications: watch::Sender::new(0),
            announced: watch::Sender::new(false),
        });
        let (notifications, announced) = (known.notifications.subscribe(), known.announced.subscribe());
        drop(by_name);
        WakeSubscription { waker: self.clone(), topic, notifications, announced, is_waiting: false, waits: 0 }
    }
}

/// Lets one loop wait until there is work:
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn work(pool: sqlx::PgPool, queue: db::Queue, waker: db::Waker) -> Result<(), db::QueueError> {
/// const LONGEST: Duration = Duration::from_secs(10);
/// let mut subscription = waker.subscribe(queue.name());
/// loop {
///     let leases = queue.claim(&pool, "worker-1", 100, Duration::from_secs(60)).await?;
///     if leases.is_empty() {
///         let next = queue.next_due(&pool).await?.unwrap_or(LONGEST);
///         subscription.wait(next.min(LONGEST)).await;
///         continue;
///     }
///     subscription.found_work();
///     // Here the work is done, and each lease completed.
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct WakeSubscription {
    waker: Waker,
    topic: Arc<str>,
    notifications: watch::Receiver<u64>,
    announced: watch::Receiver<bool>,
    is_waiting: bool,
    waits: usize,
}

impl WakeSubscription {
    /// Call it when there was nothing to do. The first time it announces the topic to writers and returns at once, so that the
    /// caller looks again; after that it waits until notified, for `longest` at most.
    pub async fn wait(&mut self, longest: Duration) -> Wake {
        if self.waker.closed.is_cancelled() {
            return Wake::Closed;
        }
        if !self.is_waiting {
            self.announce().await;
            return Wake::LookAgain;
        }
        let longest = if *self.announced.borrow() { longest } else { longest.min(UNANNOUNCED_WAIT) };
        let span = FIRST_WAITS.get(self.waits).map_or(longest, |first| longest.min(*first));
        self.waits = self.waits.saturating_add(1);
        match timeout(span, self.notifications.changed()).await {
            Ok(Ok(())) if self.waker.closed.is_cancelled() => Wake::Closed,
            Ok(Ok(())) => {
                self.found_work();
                Wake::Notified
            }
            Ok(Err(_)) => Wake::Closed,
            Err(_) => Wake::Elapsed,
        }
    }

    /// Whether the next wait is short anyway, so that the caller need not find out how long it could be.
    pub const fn next_wait_is_short(&self) -> bool {
        !self.is_waiting || self.waits == 0
    }

    /// Call it when work was found: writers need not notify this subscription any more.
    pub fn found_work(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.waker.topics.change_waiting(&self.topic, |count| count.saturating_sub(1));
        }
    }

    async fn announce(&mut self) {
        // Earlier notifications belong to work that the caller's next look finds.
        self.notifications.mark_unchanged();
        self.is_waiting = true;
        self.waits = 0;
        self.waker.topics.change_waiting(&self.topic, |count| count.saturating_add(1));
        // A topic that is still not announced is no error: its waits are short.
        let _ = timeout(UNANNOUNCED_WAIT, self.announced.wait_for(|announced| *announced)).await;
    }
}

impl Drop for WakeSubscription {
    fn drop(&mut self) {
        self.found_work();
    }
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Topic>> {
        // The map holds only counts and channels, which a panic elsewhere cannot leave half changed.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_waiting(&self, topic: &str, change: impl FnOnce(usize) -> usize) {
        if let Some(known) = self.lock().get_mut(topic) {
            known.waiting = change(known.waiting);
        }
        self.changed.notify_one();
    }

    fn notify(&self, topic: &str) {
        if let Some(known) = self.lock().get(topic) {
            known.notifications.send_modify(|notifications| *notifications = notifications.wrapping_add(1));
        }
    }

    fn notify_all(&self) {
        for known in self.lock().values() {
            known.notifications.send_modify(|notifications| *notifications = notifications.wrapping_add(1));
        }
    }

    /// The connection that held the locks is gone, so no topic is announced any more.
    fn withdraw_all(&self) {
        for known in self.lock().values() {
            known.announced.send_replace(false);
        }
    }

    /// A topic whose lock has to change, and whether it is to be held.
    fn next_difference(&self) -> Option<(Arc<str>, bool)> {
        let by_name = self.lock();
        let differs = |(name, topic): (&Arc<str>, &Topic)| {
            let wanted = topic.waiting > 0;
            (wanted != *topic.announced.borrow()).then(|| (Arc::clone(name), wanted))
        };
        by_name.iter().find_map(differs)
    }

    fn set_announced(&self, topic: &str, announced: bool) {
        if let Some(known) = self.lock().get(topic) {
            known.announced.send_replace(announced);
        }
    }
}

async fn keep_listening(pool: &PgPool, topics: &Topics) {
    let mut pause = RECONNECT[0];
    loop {
        match connect(pool).await {
            Ok(mut listener) => {
                pause = RECONNECT[0];
                // Notifications sent while nobody listened are lost, so everybody looks.
                topics.notify_all();
                let error = serve(&mut listener, topics).await;
                tracing::warn!(error = %error, "the listening connection was lost; connecting again");
                metrics::counter!("bursar_wake_reconnects_total").increment(1);
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot listen for notifications; trying again");
            }
        }
        topics.withdraw_all();
        topics.notify_all();
        sleep(pause).await;
        pause = (pause * 2).min(RECONNECT[1]);
    }
}

async fn connect(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    // A separate pool of one, so that the listener and the service's own statements never wait for each other.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(STATEMENT_TIMEOUT)
        .connect_lazy_with(pool.connect_options().as_ref().clone());
    let mut listener = PgListener::connect_with(&own).await?;
    // The loop above reconnects, because the locks must be taken again too.
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Serves until the connection fails.
async fn serve(listener: &mut PgListener, topics: &Topics) -> sqlx::Error {
    loop {
        while let Some((topic, wanted)) = topics.next_difference() {
            if let Err(error) = set_lock(listener, &topic, wanted).await {
                return error;
            }
            topics.set_announced(&topic, wanted);
        }
        tokio::select! {
            // Safe to cancel: the driver takes a message off its buffer only when it is complete.
            received = listener.try_recv() => match received {
                Ok(Some(notification)) => topics.notify(notification.payload()),
                Ok(None) => return sqlx::Error::PoolClosed,
                Err(error) => return error,
            },
            () = topics.changed.notified() => {}
            () = sleep(HEARTBEAT) => {
                if let Err(error) = limited(sqlx::query("SELECT 1").execute(&mut *listener)).await {
                    return error;
                }
            }
        }
    }
}

async fn set_lock(listener: &mut PgListener, topic: &str, held: bool) -> Result<(), sqlx::Error> {
    let sql = if held {
        "SELECT pg_advisory_lock_shared($1, hashtext($2))"
    } else {
        "SELECT pg_advisory_unlock_shared($1, hashtext($2))"
    };
    limited(sqlx::query(sql).bind(LOCK_CLASS).bind(topic).execute(listener)).await
}

async fn limited<T>(statement: impl Future<Output = Result<T, sqlx::Error>>) -> Result<(), sqlx::Error> {
    timeout(STATEMENT_TIMEOUT, statement).await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(|_| ())
}
