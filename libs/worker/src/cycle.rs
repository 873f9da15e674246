//! The scheduler loop: one cycle after another at a fixed interval.
//!
//! Invariants: never two cycles at once; cycle `n` is due at `start + n x interval` by the monotonic clock, whatever the ones
//! before took and whatever the wall clock does; a due time that was missed is left out, not made up for; a cycle that takes
//! longer than its deadline is given up and counted as failed; a failed cycle never ends the loop.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::history::CycleRow;
use crate::runtime::{BoxError, Worker};
use crate::state::WorkerStatus;

/// One bounded round of a worker's work.
pub trait Cycle: Send {
    type Error: Into<BoxError> + Send;

    /// Does one round and reports what came of it; the report is kept in the history. Must be safe to drop half-way, as a
    /// crash would, and to run again after that.
    fn cycle(&mut self, context: &CycleContext) -> impl Future<Output = Result<Value, Self::Error>> + Send;
}

/// What one cycle is given.
#[derive(Debug)]
pub struct CycleContext {
    worker: Worker,
    epoch: u64,
    deadline: Instant,
}

impl CycleContext {
    /// Which cycle this is, counted from 1 since the process started.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the cycle may still act on the outside world: its lock is held and its time not over.
    #[must_use]
    pub fn may_act(&self) -> bool {
        Instant::now() < self.deadline && self.worker.may_act()
    }

    /// Grows with every owner of the lock; for whoever can refuse an older one. Absent without Redis.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        self.worker.fencing_token()
    }

    /// Until when it must be done.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Who works: to publish, to read and write history, to see a stop coming.
    #[must_use]
    pub fn worker(&self) -> &Worker {
        &self.worker
    }
}

/// A cycle that was not done in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cycle was given up after {} ms", .0.as_millis())]
pub struct Overdue(pub Duration);

impl Worker {
    /// Runs cycles until the worker is to stop; the one under way then is finished.
    ///
    /// # Errors
    /// Never; a failed cycle is told in the log, the state and the history.
    pub async fn cycles(&self, mut cycle: impl Cycle) -> Result<(), BoxError> {
        let (start, interval) = (Instant::now(), self.settings().interval);
        let mut due = start;
        loop {
            let wait = tokio::time::sleep_until(due.into());
            if self.stopping().run_until_cancelled(wait).await.is_none() || !self.permit().await {
                return Ok(());
            }
            self.one(&mut cycle).await;
            due = next_due(start, interval, Instant::now());
        }
    }

    async fn one(&self, cycle: &mut impl Cycle) {
        let (began, began_at) = (Instant::now(), Utc::now());
        let deadline = began + self.settings().deadline;
        let mut epoch = 0;
        self.shared.change(|state| {
            state.epoch += 1;
            state.status = WorkerStatus::Working;
            epoch = state.epoch;
        });
        self.watch_over(Some(deadline));
        let context = CycleContext { worker: self.clone(), epoch, deadline };
        let result = match tokio::time::timeout_at(deadline.into(), cycle.cycle(&context)).await {
            Ok(result) => result.map_err(Into::into),
            Err(_) => Err(Overdue(self.settings().deadline).into()),
        };
        self.watch_over(None);
        self.record(epoch, began_at, began.elapsed(), result).await;
    }

    fn watch_over(&self, deadline: Option<Instant>) {
        *self.shared.overdue_at.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    async fn record(
        &self,
        epoch: u64,
        began_at: DateTime<Utc>,
        took: Duration,
        result: Result<Value, BoxError>,
    ) {
        let name = self.settings().id.to_string();
        let (outcome, report, error) = match result {
            Ok(report) => ("done", Some(report), None),
            Err(error) => ("failed", None, Some(telemetry::causes(&*error))),
        };
        if let Some(error) = &error {
            tracing::warn!(worker = name, epoch, error, "cycle failed");
        }
        self.shared.change(|state| {
            state.status = if error.is_some() { WorkerStatus::Error } else { WorkerStatus::Idle };
            state.last_cycle_at = Some(began_at);
            state.last_cycle_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            state.error.clone_from(&error);
        });
        self.shared.publish_now.notify_one();
        metrics::counter!("bursar_worker_cycles_total", "worker" => name.clone(), "outcome" => outcome)
            .increment(1);
        metrics::histogram!("bursar_worker_cycle_seconds", "worker" => name.clone())
            .record(took.as_secs_f64());
        if let Some(history) = self.history() {
            let row = CycleRow { epoch, began_at, took, report, error };
            if let Err(error) = history.cycle(&row).await {
                tracing::warn!(worker = name, error = %error, "the cycle is not in the history");
            }
        }
    }
}

/// The first due time after `now`.
fn next_due(start: Instant, interval: Duration, now: Instant) -> Instant {
    let interval = interval.max(Duration::from_millis(1));
    // What is left of the interval that runs now. Counted this way no number of intervals is too large.
    let gone = now.saturating_duration_since(start).as_nanos() % interval.as_nanos();
    let left = interval.as_nanos() - gone;
    // Never more than the interval itself, which was bounded when it was read.
    now.max(start) + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_drift_and_missed_ones_are_left_out() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let due = |late: Duration| next_due(start, second, start + late) - start;
        assert_eq!(due(Duration::ZERO), second);
        assert_eq!(due(Duration::from_millis(999)), second);
        assert_eq!(due(Duration::from_millis(1001)), second * 2);
        assert_eq!(due(Duration::from_millis(5400)), second * 6);
    }

    #[test]
    fn the_shortest_interval_still_waits_after_a_year() {
        let (start, interval) = (Instant::now(), Duration::from_millis(1));
        let now = start + Duration::from_secs(366 * 24 * 3600) + interval / 4;
        assert_eq!(next_due(start, interval, now) - now, interval * 3 / 4);
    }
}
