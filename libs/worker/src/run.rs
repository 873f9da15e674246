//! The loop around a tick: look, sleep, be woken.

use std::error::Error;
use std::time::{Duration, Instant};

use db::WakeSubscription;
use tokio_util::sync::CancellationToken;
use types::Backoff;

/// What a tick found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickOutcome {
    /// Something was done; there may be more: look again at once.
    Worked,
    /// Nothing to do. `next` says when there will be, if that is known.
    Idle { next: Option<Duration> },
}

/// One bounded round of work. Takes no input: it re-reads what it needs, and is safe to run at any time.
pub trait Tick: Send {
    type Error: Error + Send + 'static;

    fn tick(&mut self) -> impl Future<Output = Result<TickOutcome, Self::Error>> + Send;
}

/// A named loop.
#[derive(Debug)]
pub struct Loop {
    name: String,
    longest_pause: Duration,
    backoff: Backoff,
    subscription: Option<WakeSubscription>,
}

impl Loop {
    /// A loop that looks at least once every `longest_pause`.
    #[must_use]
    pub fn new(name: impl Into<String>, longest_pause: Duration) -> Self {
        let backoff = Backoff {
            base: Duration::from_millis(100),
            cap: Some(Duration::from_secs(10)),
            max_tries: u32::MAX,
        };
        Self { name: name.into(), longest_pause, backoff, subscription: None }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Also looks as soon as somebody writes to the subscription's topic.
    #[must_use]
    pub fn woken_by(mut self, subscription: WakeSubscription) -> Self {
        self.subscription = Some(subscription);
        self
    }

    /// Runs until `stop`. The tick under way then is finished, never dropped half-way.
    pub async fn run(mut self, mut worker: impl Tick, stop: CancellationToken) {
        tracing::info!(worker = self.name, "worker started");
        let mut failures = 0u32;
        while !stop.is_cancelled() {
            let began = Instant::now();
            let ticked = worker.tick().await;
            self.measure(began, &ticked);
            let pause = match ticked {
                Ok(TickOutcome::Worked) => {
                    failures = 0;
                    if let Some(subscription) = &mut self.subscription {
                        subscription.found_work();
                    }
                    continue;
                }
                Ok(TickOutcome::Idle { next }) => {
                    failures = 0;
                    next.unwrap_or(self.longest_pause).min(self.longest_pause)
                }
                Err(error) => {
                    let pause = self.backoff.delay(failures);
                    failures = failures.saturating_add(1);
                    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(
                        worker = self.name,
                        error = telemetry::causes(&error),
                        failures,
                        pause_ms,
                        "tick failed"
                    );
                    stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                    continue;
                }
            };
            stop.run_until_cancelled(self.sleep(pause)).await;
        }
        tracing::info!(worker = self.name, "worker stopped");
    }

    async fn sleep(&mut self, pause: Duration) {
        match &mut self.subscription {
            Some(subscription) => {
                subscription.wait(pause).await;
            }
            None => tokio::time::sleep(pause).await,
        }
    }

    fn measure<E>(&self, began: Instant, ticked: &Result<TickOutcome, E>) {
        let outcome = match ticked {
            Ok(TickOutcome::Worked) => "worked",
            Ok(TickOutcome::Idle { .. }) => "idle",
            Err(_) => "failed",
        };
        metrics::counter!("bursar_worker_ticks_total", "worker" => self.name.clone(), "outcome" => outcome)
            .increment(1);
        if outcome != "idle" {
            metrics::histogram!("bursar_worker_tick_seconds", "worker" => self.name.clone())
                .record(began.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Counting {
        ticks: Arc<AtomicU32>,
        stop: CancellationToken,
        finished: Arc<AtomicU32>,
    }

    impl Tick for Counting {
        type Error = std::io::Error;

        async fn tick(&mut self) -> Result<TickOutcome, std::io::Error> {
            match self.ticks.fetch_add(1, Ordering::SeqCst) {
                0 => Err(std::io::Error::other("once")),
                1 => Ok(TickOutcome::Worked),
                _ => {
                    self.stop.cancel();
                    tokio::task::yield_now().await;
                    self.finished.fetch_add(1, Ordering::SeqCst);
                    Ok(TickOutcome::Idle { next: None })
                }
            }
        }
    }

    #[tokio::test]
    async fn a_failed_tick_is_tried_again_and_a_stop_lets_the_running_one_finish() {
        let (ticks, finished) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let stop = CancellationToken::new();
        let worker =
            Counting { ticks: Arc::clone(&ticks), stop: stop.clone(), finished: Arc::clone(&finished) };
        Loop::new("counting", Duration::from_secs(60)).run(worker, stop).await;
        assert_eq!(ticks.load(Ordering::SeqCst), 3);
        assert_eq!(finished.load(Ordering::SeqCst), 1);
    }
}
