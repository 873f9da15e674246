//! Keeps the loops of each wanted key running: one key is a chain, a source, or whatever a service works on side by side.
//!
//! A service implements [`KeyedLoops`]: which keys are wanted now, and how the loops of one key are started. The
//! [`Supervisor`] reads the wanted keys on a timer (and when it is woken), starts the loops of a new key, hands changed
//! settings to running ones, ends those of a key that is gone, and restarts what ended by itself.
//!
//! ```
//! # use std::collections::BTreeMap;
//! # use std::time::Duration;
//! # use tokio::sync::watch;
//! # use worker::supervisor::{KeyedLoops, Loops, Supervisor};
//! struct Chains { interval: Duration }
//!
//! impl KeyedLoops for Chains {
//!     type Key = String;
//!     type Settings = u64; // the depth of a chain
//!     type Error = std::io::Error;
//!
//!     async fn wanted(&mut self) -> Result<BTreeMap<String, u64>, std::io::Error> {
//!         Ok(BTreeMap::from([("bsc".to_owned(), 15)])) // usually read from a table
//!     }
//!
//!     fn start(&mut self, chain: &String, settings: watch::Receiver<u64>, loops: &mut Loops) {
//!         let (stop, interval) = (loops.stop(), self.interval);
//!         loops.spawn(format!("follow/{chain}"), async move {
//!             while !stop.is_cancelled() {
//!                 let _depth = *settings.borrow(); // always the newest
//!                 stop.run_until_cancelled(tokio::time::sleep(interval)).await;
//!             }
//!             Ok(())
//!         });
//!     }
//! }
//!
//! # async fn serve(stop: tokio_util::sync::CancellationToken) -> Result<(), worker::supervisor::LoopEnded> {
//! Supervisor::new(Chains { interval: Duration::from_secs(1) }, Duration::from_secs(5)).run(stop).await
//! # }
//! ```
//!
//! Invariants: the loops of one key never run twice in a process, also not while the old ones are still finishing; one key
//! that is slow to end or that keeps failing delays no other key; wanted keys that cannot be read change nothing.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::time::Duration;

use db::{Wake, WakeSubscription};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::runtime::BoxError;
use crate::{Loop, Tick};

const RESTART_PAUSE: Duration = Duration::from_secs(1);
const RESTARTS_METRIC: &str = "bursar_worker_loops_restarted_total";

/// What a supervisor needs to know about the loops it keeps.
pub trait KeyedLoops: Send {
    type Key: Ord + Clone + fmt::Display + Send + 'static;
    type Settings: PartialEq + Send + Sync + 'static;
    type Error: Error + Send + Sync + 'static;

    /// The keys that shall run now, each with its settings. The future is dropped half-way when the supervisor stops.
    fn wanted(
        &mut self,
    ) -> impl Future<Output = Result<BTreeMap<Self::Key, Self::Settings>, Self::Error>> + Send;

    /// Starts the loops of one key with [`Loops::spawn`]. Each loop must end soon after [`Loops::stop`] fires.
    fn start(&mut self, key: &Self::Key, settings: watch::Receiver<Self::Settings>, loops: &mut Loops);
}

/// A loop ended although nobody had told it to stop.
#[derive(Debug, thiserror::Error)]
#[error("the loop {name} ended by itself")]
pub struct LoopEnded {
    pub name: String,
    /// The loop's own error, or its panic. A loop that just returned has none.
    #[source]
    pub cause: Option<BoxError>,
}

/// The running loops of one key.
#[derive(Debug)]
pub struct Loops {
    tasks: JoinSet<Result<(), BoxError>>,
    names: HashMap<Id, String>,
    stop: CancellationToken,
}

impl Loops {
    fn new(stop: CancellationToken) -> Self {
        Self { tasks: JoinSet::new(), names: HashMap::new(), stop }
    }

    /// Fires when the loops of this key shall end.
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub fn spawn(
        &mut self,
        name: impl Into<String>,
        work: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(work).id();
        self.names.insert(id, name.into());
    }

    /// Runs a worker's ticks in a [`Loop`] of the same name until the key is stopped.
    pub fn spawn_ticks(&mut self, looping: Loop, worker: impl Tick + 'static) {
        let (name, stop) = (looping.name().to_owned(), self.stop());
        self.spawn(name, async move {
            looping.run(worker, stop).await;
            Ok(())
        });
    }

    /// Waits until all loops have ended. The first one that ends by itself stops the others of its key: a key with half of
    /// its loops would look healthy and be slow or stuck.
    async fn finished(mut self) -> Option<LoopEnded> {
        let mut first = None;
        while let Some(joined) = self.tasks.join_next_with_id().await {
            let (id, result) = match joined {
                Ok((id, result)) => (id, result),
                Err(panic) => (panic.id(), Err(panic.into())),
            };
            let name = self.names.remove(&id).unwrap_or_default();
            if !self.stop.is_cancelled() {
                self.stop.cancel();
                first = Some(LoopEnded { name, cause: result.err() });
            } else if let Err(error) = result {
                tracing::error!(
                    worker = name,
                    error = telemetry::causes(&*error),
                    "a loop failed while it was stopping"
                );
            }
        }
        first
    }
}

#[derive(Debug)]
struct Running<S> {
    settings: watch::Sender<S>,
    stop: CancellationToken,
}

/// What happens to a running key whose settings changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnChange {
    HandOver,
    Restart,
}

/// Starts, stops and restarts the loops of all wanted keys.
#[derive(Debug)]
pub struct Supervisor<K: KeyedLoops> {
    keyed: K,
    interval: Duration,
    subscription: Option<WakeSubscription>,
    on_change: OnChange,
    fails_with_loops: bool,
    restarts_metric: &'static str,
    /// The pause before loops that ended by themselves are started again.
    restart_pause: Duration,
    running: BTreeMap<K::Key, Running<K::Settings>>,
    tasks: JoinSet<(K::Key, Option<LoopEnded>)>,
    /// Keys whose loops ended by themselves, and when they may be started again.
    resting: BTreeMap<K::Key, Instant>,
}

impl<K: KeyedLoops> Supervisor<K> {
    /// Reads the wanted keys at least once every `interval`.
    #[must_use]
    pub fn new(keyed: K, interval: Duration) -> Self {
        Self {
            keyed,
            interval,
            subscription: None,
            on_change: OnChange::HandOver,
            fails_with_loops: false,
            restarts_metric: RESTARTS_METRIC,
            restart_pause: RESTART_PAUSE,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            resting: BTreeMap::new(),
        }
    }

    /// Also reads the wanted keys as soon as somebody writes to the subscription's topic.
    #[must_use]
    pub fn woken_by(self, subscription: WakeSubscription) -> Self {
        Self { subscription: Some(subscription), ..self }
    }

    /// Ends the loops of a key whose settings changed and starts them anew, instead of handing the settings to them.
    #[must_use]
    pub fn restarting_on_change(self) -> Self {
        Self { on_change: OnChange::Restart, ..self }
    }

    /// Ends with an error when a loop ends by itself, for processes that somebody else restarts.
    #[must_use]
    pub fn failing_with_loops(self) -> Self {
        Self { fails_with_loops: true, ..self }
    }

    /// The name of the counter of restarts.
    #[must_use]
    pub fn counting_restarts_as(self, metric: &'static str) -> Self {
        Self { restarts_metric: metric, ..self }
    }

    /// Runs until `stop`, then waits until every loop has ended.
    ///
    /// # Errors
    /// Only with [`Supervisor::failing_with_loops`]: the first loop that ended by itself. All others have ended too then.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), LoopEnded> {
        let loops_stop = stop.child_token();
        let mut outcome = Ok(());
        while !stop.is_cancelled() && outcome.is_ok() {
            match stop.run_until_cancelled(self.keyed.wanted()).await {
                None => break,
                Some(Ok(wanted)) => self.adjust(wanted, &loops_stop),
                Some(Err(error)) => {
                    tracing::warn!(
                        error = telemetry::causes(&error),
                        "cannot read what to work on; the running loops go on"
                    );
                }
            }
            outcome = self.rest(&stop).await;
        }
        loops_stop.cancel();
        while let Some(joined) = self.tasks.join_next().await {
            if let Ok((_, Some(ended))) = joined {
                tracing::error!(
                    worker = ended.name,
                    error = telemetry::causes(&ended),
                    "a loop ended by itself"
                );
            }
        }
        outcome
    }

    /// Brings what runs in line with what is wanted. It only tells loops to stop and does not wait for them; a key whose
    /// loops are still ending is started when they have ended.
    fn adjust(&mut self, wanted: BTreeMap<K::Key, K::Settings>, stop: &CancellationToken) {
        let now = Instant::now();
        self.resting.retain(|key, until| *until > now && wanted.contains_key(key));
        for (key, running) in &self.running {
            if !wanted.contains_key(key) && !running.stop.is_cancelled() {
                tracing::info!(%key, "no longer wanted; its loops end");
                running.stop.cancel();
            }
        }
        for (key, settings) in wanted {
            match self.running.get(&key) {
                Some(running) => self.change(running, settings),
                None if self.resting.contains_key(&key) => {}
                None => self.begin(key, settings, stop.child_token()),
            }
        }
    }

    fn change(&self, running: &Running<K::Settings>, new: K::Settings) {
        if *running.settings.borrow() == new {
            return;
        }
        match self.on_change {
            OnChange::HandOver => drop(running.settings.send_replace(new)),
            OnChange::Restart => running.stop.cancel(),
        }
    }

    fn begin(&mut self, key: K::Key, settings: K::Settings, stop: CancellationToken) {
        let settings = watch::Sender::new(settings);
        let mut loops = Loops::new(stop.clone());
        self.keyed.start(&key, settings.subscribe(), &mut loops);
        self.running.insert(key.clone(), Running { settings, stop });
        self.tasks.spawn(async move { (key, loops.finished().await) });
    }

    /// Waits until the wanted keys are to be read again.
    async fn rest(&mut self, stop: &CancellationToken) -> Result<(), LoopEnded> {
        let interval_ends = Instant::now() + self.interval;
        loop {
            let until = self.resting.values().copied().fold(interval_ends, Instant::min);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(until) => return Ok(()),
                () = woken(&mut self.subscription, self.interval) => return Ok(()),
                Some(joined) = self.tasks.join_next() => {
                    // The task only waits for loops, whose panics it catches.
                    let Ok((key, ended)) = joined else { continue };
                    self.running.remove(&key);
                    let Some(ended) = ended else { return Ok(()) };
                    if self.fails_with_loops {
                        return Err(ended);
                    }
                    tracing::error!(worker = ended.name, error = telemetry::causes(&ended), "a worker ended by itself; it is started again");
                    metrics::counter!(self.restarts_metric).increment(1);
                    self.resting.insert(key, Instant::now() + self.restart_pause);
                }
            }
        }
    }
}

/// Ends when there may be something new to read. The first waits of a subscription are short, because a writer may have
/// committed just before it could see that somebody waits.
async fn woken(subscription: &mut Option<WakeSubscription>, longest: Duration) {
    if let Some(waiting) = subscription {
        match waiting.wait(longest).await {
            Wake::LookAgain | Wake::Notified | Wake::Elapsed => return,
            // The waker ends with the process; until then the timer is enough.
            Wake::Closed => *subscription = None,
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
