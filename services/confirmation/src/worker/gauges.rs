//! Gauges that are read from the database: open watches by status, the age of the oldest, delays and halts.
//!
//! They run once in each process that serves, not in the loops over chains, so that they are there wherever chains are
//! followed.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::watch::repo::list;

const EVERY: Duration = Duration::from_secs(5);

/// Sets the gauges until stopped. While the database is away they keep their values.
pub async fn run(pool: PgPool, stop: CancellationToken) {
    let keep = async {
        loop {
            if let Err(error) = tick(&pool).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot count watches");
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    stop.run_until_cancelled(keep).await;
}

pub async fn tick(pool: &PgPool) -> Result<(), Error> {
    for open in list::open_watches(pool).await? {
        let halted = if open.halted { 1.0 } else { 0.0 };
        metrics::gauge!("bursar_confirmation_chain_halted", "chain" => open.chain.clone()).set(halted);
        let labels = [("chain", open.chain), ("status", open.status)];
        metrics::gauge!("bursar_confirmation_watches", &labels).set(open.count);
        metrics::gauge!("bursar_confirmation_oldest_watch_seconds", &labels).set(open.oldest_seconds);
        metrics::gauge!("bursar_confirmation_delayed_watches", &labels).set(open.delayed);
    }
    Ok(())
}
