//! Keeps the gauges: what waits, and how the last day went.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::withdrawal::domain::Status;
use crate::withdrawal::{WithdrawalError, Withdrawals};

const EVERY: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(24 * 3600);

/// The loop that sets the gauges.
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

    /// Sets the gauges until told to stop. A database that is away leaves them as they were.
    pub async fn run(&self, shutdown: CancellationToken) {
        let keep = async {
            loop {
                if let Err(error) = self.tick().await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "cannot count withdrawals");
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        shutdown.run_until_cancelled(keep).await;
    }

    /// Counts once.
    pub async fn tick(&self) -> Result<(), WithdrawalError> {
        for (status, count) in self.withdrawals.open().await? {
            metrics::gauge!("bursar_intent_open_requests", "status" => status.as_str()).set(float(count));
            if status == Status::Pending {
                metrics::gauge!("bursar_intent_pending_approvals").set(float(count));
            }
        }
        let day = self.withdrawals.statistics(WINDOW).await?;
        for (status, count) in day.by_status {
            metrics::gauge!("bursar_intent_day_requests", "status" => status.as_str()).set(float(count));
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
