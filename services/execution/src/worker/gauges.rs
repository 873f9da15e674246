//! Keeps the gauges that are read from the database: jobs by status and age, lanes, queues, of every chain.
//!
//! Runs once in each process that serves and in no worker, so that they are shown wherever the workers are. Reads only, and a
//! bounded number of rows for each chain.

use std::time::Duration;

use sqlx::PgPool;
use worker::{Tick, TickOutcome};

use super::WorkError;
use crate::job::repo::statistics::job_gauges;
use crate::lane::repo::lane_gauges;
use crate::queue::JobQueue;

#[derive(Debug)]
pub struct Gauges {
    pool: PgPool,
}

impl Gauges {
    pub const EVERY: Duration = Duration::from_secs(5);

    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    async fn jobs(&self) -> Result<(), WorkError> {
        for gauge in job_gauges(&self.pool).await? {
            let labels = [
                ("chain", gauge.chain.to_string()),
                ("queue", gauge.queue.to_string()),
                ("status", gauge.status),
            ];
            metrics::gauge!("bursar_execution_jobs", &labels).set(gauge.count as f64);
            metrics::gauge!("bursar_execution_oldest_job_seconds", &labels).set(gauge.oldest_s as f64);
            metrics::gauge!("bursar_execution_blocked_jobs", &labels).set(gauge.blocked as f64);
        }
        Ok(())
    }

    /// The lanes of each chain, and its queues. Which chains there are is read here too.
    async fn lanes_and_queues(&self) -> Result<(), WorkError> {
        for gauge in lane_gauges(&self.pool).await? {
            let label = || gauge.chain.to_string();
            metrics::gauge!("bursar_execution_lanes_halted", "chain" => label()).set(gauge.halted as f64);
            metrics::gauge!("bursar_execution_foreign_nonces", "chain" => label())
                .set(gauge.foreign_seen as f64);
            metrics::gauge!("bursar_execution_spent_nonces", "chain" => label()).set(gauge.spent as f64);
            // Verdicts are counted in this process, wherever the workers are.
            crate::metrics::begin(&gauge.chain);
            for (queue, _) in JobQueue::worked() {
                let queue = queue.on(&gauge.chain);
                queue.depth(&self.pool).await?.record(&queue);
            }
        }
        Ok(())
    }
}

impl Tick for Gauges {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        self.jobs().await?;
        self.lanes_and_queues().await?;
        Ok(TickOutcome::Idle { next: None })
    }
}
