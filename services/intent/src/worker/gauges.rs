//! Sets the gauges: open requests, and the statistics of the last day.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::withdrawal::domain::Status;
use crate::withdrawal::{WithdrawalError, Withdrawals};

const EVERY: Duration = Duration::from_secs(10);
/// The statistics read every row of a day, and change little within a minute.
const DAY_EVERY: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone)]
pub struct Gauges {
    withdrawals: Withdrawals,
}

impl Gauges {
    pub fn new(withdrawals: Withdrawals) -> Self {
        metrics::describe_gauge!("bursar_intent_pending_approvals", "Requests waiting for approval");
        metrics::describe_gauge!("bursar_intent_open_requests", "Unfinished requests, by status");
        metrics::describe_gauge!(
            "bursar_intent_day_requests",
            "Requests created in the last 24 hours, by status"
        );
        metrics::describe_gauge!(
            "bursar_intent_average_approval_seconds",
            "Creation to quorum, last 24 hours"
        );
        metrics::describe_gauge!(
            "bursar_intent_average_completion_seconds",
            "Quorum to payment, last 24 hours"
        );
        metrics::describe_gauge!(
            "bursar_intent_completion_rate_basis_points",
            "Completed among those finished in the last 24 hours, in parts of ten thousand"
        );
        Self { withdrawals }
    }

    /// While the database is unreachable the gauges stay as they were.
    pub async fn run(&self, shutdown: CancellationToken) {
        let keep = async {
            let mut day_at: Option<Instant> = None;
            loop {
                let day_is_due = day_at.is_none_or(|at| at.elapsed() >= DAY_EVERY);
                if day_is_due {
                    day_at = Some(Instant::now());
                }
                if let Err(error) = self.tick(day_is_due).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "cannot count withdrawals");
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        shutdown.run_until_cancelled(keep).await;
    }

    /// Counts the open requests, and the last day if `day`.
    pub async fn tick(&self, day: bool) -> Result<(), WithdrawalError> {
        for (status, count) in self.withdrawals.count_open().await? {
            metrics::gauge!("bursar_intent_open_requests", "status" => status.into_str()).set(float(count));
            if status == Status::Pending {
                metrics::gauge!("bursar_intent_pending_approvals").set(float(count));
            }
        }
        if day { self.tick_day().await } else { Ok(()) }
    }

    async fn tick_day(&self) -> Result<(), WithdrawalError> {
        let day = self.withdrawals.statistics(WINDOW).await?;
        for (status, count) in day.by_status {
            metrics::gauge!("bursar_intent_day_requests", "status" => status.into_str()).set(float(count));
        }
        let seconds = |average: Option<Duration>| average.unwrap_or_default().as_secs_f64();
        metrics::gauge!("bursar_intent_average_approval_seconds").set(seconds(day.average_approval));
        metrics::gauge!("bursar_intent_average_completion_seconds").set(seconds(day.average_completion));
        metrics::gauge!("bursar_intent_completion_rate_basis_points")
            .set(f64::from(day.completion_rate_basis_points));
        Ok(())
    }
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
