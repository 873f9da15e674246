//! What operators watch of the database: open watches by status, how long the oldest has waited, delays and halts.
//!
//! Runs once in each process that serves and in no loop over a chain, so that it is shown wherever chains are followed.

use std::time::Duration;

use sqlx::{PgPool, Row as _};
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(5);

/// The loop that sets the gauges.
#[derive(Debug, Clone)]
pub struct Gauges {
    pool: PgPool,
}

impl Gauges {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Sets the gauges until told to stop. A database that is away leaves them as they were.
    pub async fn run(&self, stop: CancellationToken) {
        let keep = async {
            loop {
                if let Err(error) = self.tick().await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "cannot count watches");
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        stop.run_until_cancelled(keep).await;
    }

    /// Counts once.
    pub async fn tick(&self) -> Result<(), sqlx::Error> {
        let rows = sqlx::query(include_str!("../../queries/watch_gauges.sql")).fetch_all(&self.pool).await?;
        for row in rows {
            let (chain, status): (String, String) = (row.try_get("chain")?, row.try_get("status")?);
            let halted = if row.try_get("halted")? { 1.0 } else { 0.0 };
            metrics::gauge!("bursar_confirmation_chain_halted", "chain" => chain.clone()).set(halted);
            let labels = [("chain", chain), ("status", status)];
            metrics::gauge!("bursar_confirmation_watches", &labels).set(row.try_get::<f64, _>("count")?);
            metrics::gauge!("bursar_confirmation_oldest_watch_seconds", &labels)
                .set(row.try_get::<f64, _>("oldest_seconds")?);
            metrics::gauge!("bursar_confirmation_delayed_watches", &labels)
                .set(row.try_get::<f64, _>("delayed")?);
        }
        Ok(())
    }
}
