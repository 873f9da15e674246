//! What operators watch: open watches by status, how long the oldest has waited, delays and halts.

use std::time::{Duration, Instant};

use sqlx::Row as _;

use super::chain_loop::{ChainLoop, Held, LoopError};

const EVERY: Duration = Duration::from_secs(5);

impl ChainLoop {
    pub(super) async fn gauges(&self, held: &mut Held) -> Result<(), LoopError> {
        if held.gauges_at > Instant::now() {
            return Ok(());
        }
        held.gauges_at = Instant::now() + EVERY;
        let chain = self.settings.name.to_string();
        let rows = sqlx::query(include_str!("../../queries/watch_gauges.sql"))
            .bind(self.settings.name.as_str())
            .fetch_all(&self.parts.pool)
            .await?;
        for status in ["waiting", "included"] {
            let row =
                rows.iter().find(|row| row.try_get::<&str, _>("status").is_ok_and(|found| found == status));
            let read = |column: &str| row.map_or(Ok(0.0), |row| row.try_get::<f64, _>(column));
            let labels = [("chain", chain.clone()), ("status", status.to_owned())];
            metrics::gauge!("bursar_confirmation_watches", &labels).set(read("count")?);
            metrics::gauge!("bursar_confirmation_oldest_watch_seconds", &labels).set(read("oldest_seconds")?);
            metrics::gauge!("bursar_confirmation_delayed_watches", &labels).set(read("delayed")?);
        }
        let halted = if held.halted { 1.0 } else { 0.0 };
        metrics::gauge!("bursar_confirmation_chain_halted", "chain" => chain).set(halted);
        Ok(())
    }
}
