//! Waking sleepers at once when there is work, through LISTEN and NOTIFY.
//!
//! Owns the one listening connection of a process, which serves every subscription on every topic and is made anew whenever it
//! is lost. A notification never carries work: it ends a sleep, and the subscription looks for itself.
//!
//! NOTIFY is dear: committing transactions that notify wait for one another's flush, on the whole server. So writers notify
//! only when somebody sleeps, which a subscription shows through a shared advisory lock on the topic, held by the listening
//! connection. The order is: show it, look once more, sleep. What was committed before the look is found by it; a
//! transaction that found nobody asleep and commits after the look is found by the first, short sleeps.
//!
//! Invariant: no wake-up is relied on. Every sleep has an end, and losing the connection ends all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{PgConnection, PgPool};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Ends the sleeps on a topic when the transaction commits, if anybody sleeps there. For what is neither a queue nor the
/// outbox, which wake by themselves.
pub async fn wake_in(tx: &mut PgConnection, topic: &str) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("../queries/wake.sql")).bind(topic).execute(tx).await.map(|_| ())
}

/// The channel; the payload is the topic. The statements that notify spell it out.
const CHANNEL: &str = "bursar_wake";
/// The first half of the advisory lock's key, "Burs" in ASCII; the second is the topic's hash. Also spelled out there.
const LOCK_CLASS: i32 = 1_114_993_267;
/// How long the listener waits for a connection, and a statement of it may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The listening connection is asked for a sign of life this often: a peer that vanished says nothing by itself.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// Sleeps while nobody listens for us, and how long a subscription waits to be shown.
const UNHEARD: Duration = Duration::from_millis(250);
/// The first sleeps after falling asleep, for transactions that were under way just then.
const FIRST_SLEEPS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];
/// Pauses between attempts to connect: from the first to the second.
const RECONNECT: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Why a sleep ended. The subscription looks for work in every case but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Nobody slept yet: look once more, now that writers know of us.
    LookAgain,
    /// Somebody wrote something, or the connection was lost and something may have been missed.
    Notified,
    /// The time was up.
    Elapsed,
    /// The waker is gone: shut down.
    Closed,
}

#[derive(Debug)]
struct Topic {
    sleepers: usize,
    /// Grows with every wake-up.
    calls: watch::Sender<u64>,
    /// Whether writers can see that somebody sleeps here.
    shown: watch::Sender<bool>,
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
    /// Starts listening in the background, with a connection of its own beside the pool's. Comes back at once; sleeps are
    /// short until the connection stands.
    #[must_use]
    pub fn start(pool: &PgPool) -> Self {
        let topics = Arc::new(Topics::default());
        let closed = CancellationToken::new();
        tokio::spawn({
            let (topics, closed, pool) = (Arc::clone(&topics), closed.clone(), pool.clone());
            async move {
                closed.run_until_cancelled(listen_for_ever(&pool, &topics)).await;
                topics.call_all();
            }
        });
        Self { topics, closed: closed.clone(), _listener: Arc::new(closed.drop_guard()) }
    }

    /// A subscription on a topic: a queue's name, or `outbox::TOPIC`. Each loop has one of its own.
    #[must_use]
    pub fn subscribe(&self, topic: &str) -> WakeSubscription {
        let topic: Arc<str> = topic.into();
        let mut by_name = self.topics.lock();
        let entry = by_name.entry(Arc::clone(&topic)).or_insert_with(|| Topic {
            sleepers: 0,
            calls: watch::Sender::new(0),
            shown: watch::Sender::new(false),
        });
        let (calls, shown) = (entry.calls.subscribe(), entry.shown.subscribe());
        drop(by_name);
        WakeSubscription { waker: self.clone(), topic, calls, shown, asleep: false, sleeps: 0 }
    }
}

/// One loop's way to sleep until there is work:
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
    calls: watch::Receiver<u64>,
    shown: watch::Receiver<bool>,
    asleep: bool,
    sleeps: usize,
}

impl WakeSubscription {
    /// To be called when there was nothing to do. The first time it shows the subscription to the writers and returns at once, so
    /// that the caller looks again; after that it sleeps until notified, for `longest` at most.
    pub async fn wait(&mut self, longest: Duration) -> Wake {
        if self.waker.closed.is_cancelled() {
            return Wake::Closed;
        }
        if !self.asleep {
            self.fall_asleep().await;
            return Wake::LookAgain;
        }
        let heard = if *self.shown.borrow() { longest } else { longest.min(UNHEARD) };
        let span = FIRST_SLEEPS.get(self.sleeps).map_or(heard, |first| heard.min(*first));
        self.sleeps = self.sleeps.saturating_add(1);
        match timeout(span, self.calls.changed()).await {
            Ok(Ok(())) if self.waker.closed.is_cancelled() => Wake::Closed,
            Ok(Ok(())) => {
                self.found_work();
                Wake::Notified
            }
            Ok(Err(_)) => Wake::Closed,
            Err(_) => Wake::Elapsed,
        }
    }

    /// Whether the next wait is short whatever it is told, so that nobody need ask for how long it could be.
    #[must_use]
    pub const fn next_wait_is_short(&self) -> bool {
        !self.asleep || self.sleeps == 0
    }

    /// To be called when work was found: writers need not notify this subscription any more.
    pub fn found_work(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.waker.topics.change_sleepers(&self.topic, |count| count.saturating_sub(1));
        }
    }

    async fn fall_asleep(&mut self) {
        // Calls from before belong to work that the coming look finds.
        self.calls.mark_unchanged();
        self.asleep = true;
        self.sleeps = 0;
        self.waker.topics.change_sleepers(&self.topic, |count| count.saturating_add(1));
        // Unshown after all that patience is no reason to fail: sleeps are then short.
        let _ = timeout(UNHEARD, self.shown.wait_for(|shown| *shown)).await;
    }
}

impl Drop for WakeSubscription {
    fn drop(&mut self) {
        self.found_work();
    }
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Topic>> {
        // Counts and channels only: nothing a panic elsewhere could have left half done.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_sleepers(&self, topic: &str, change: impl FnOnce(usize) -> usize) {
        if let Some(entry) = self.lock().get_mut(topic) {
            entry.sleepers = change(entry.sleepers);
        }
        self.changed.notify_one();
    }

    fn call(&self, topic: &str) {
        if let Some(entry) = self.lock().get(topic) {
            entry.calls.send_modify(|calls| *calls = calls.wrapping_add(1));
        }
    }

    fn call_all(&self) {
        for entry in self.lock().values() {
            entry.calls.send_modify(|calls| *calls = calls.wrapping_add(1));
        }
    }

    /// Nobody is shown any more: the connection that held the locks is gone.
    fn hide_all(&self) {
        for entry in self.lock().values() {
            entry.shown.send_replace(false);
        }
    }

    /// A topic whose lock does not say what it should, and whether it should be held.
    fn next_difference(&self) -> Option<(Arc<str>, bool)> {
        let by_name = self.lock();
        let differs = |(name, topic): (&Arc<str>, &Topic)| {
            let wanted = topic.sleepers > 0;
            (wanted != *topic.shown.borrow()).then(|| (Arc::clone(name), wanted))
        };
        by_name.iter().find_map(differs)
    }

    fn set_shown(&self, topic: &str, shown: bool) {
        if let Some(entry) = self.lock().get(topic) {
            entry.shown.send_replace(shown);
        }
    }
}

async fn listen_for_ever(pool: &PgPool, topics: &Topics) {
    let mut pause = RECONNECT[0];
    loop {
        match connect(pool).await {
            Ok(mut listener) => {
                pause = RECONNECT[0];
                // What was notified while nobody listened is lost; let everyone look.
                topics.call_all();
                let error = serve(&mut listener, topics).await;
                tracing::warn!(error = %error, "the listening connection was lost; connecting again");
                metrics::counter!("bursar_wake_reconnects_total").increment(1);
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot listen for notifications; trying again");
            }
        }
        topics.hide_all();
        topics.call_all();
        sleep(pause).await;
        pause = (pause * 2).min(RECONNECT[1]);
    }
}

async fn connect(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    // A pool of one, apart: the listener must never wait behind the service's own statements, nor take one's place.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(pool.connect_options().as_ref().clone());
    let mut listener = PgListener::connect_with(&own).await?;
    // Reconnecting is done by the loop above, since the locks must be taken again too.
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
            topics.set_shown(&topic, wanted);
        }
        tokio::select! {
            // Safe to drop half-way: the driver takes a message off its buffer only when it is whole.
            received = listener.try_recv() => match received {
                Ok(Some(notification)) => topics.call(notification.payload()),
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
    timeout(PATIENCE, statement).await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(|_| ())
}
