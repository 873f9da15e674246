//! Keeps the gauges that are read off the database: jobs by status and age, lanes, queues, of every chain.
//!
//! Runs once in each process that serves and in no worker, so that they are shown wherever the workers are, and by one process
//! where one process does both. Reads only, and a bounded number of rows for each chain.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row as _};
use types::ChainName;
use worker::{Tick, TickOutcome};

use super::WorkError;
use crate::job::JobQueue;
use crate::sql::{text, unsigned};

#[derive(Debug)]
pub struct Gauges {
    pool: PgPool,
}

impl Gauges {
    /// How often it counts.
    pub const EVERY: Duration = Duration::from_secs(5);

    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    async fn jobs(&self) -> Result<(), WorkError> {
        for row in &sqlx::query(include_str!("../../queries/job_gauges.sql")).fetch_all(&self.pool).await? {
            let labels = [
                ("chain", row.try_get::<String, _>("chain")?),
                ("queue", row.try_get("queue")?),
                ("status", row.try_get("status")?),
            ];
            metrics::gauge!("bursar_execution_jobs", &labels).set(number(row, "count")?);
            metrics::gauge!("bursar_execution_oldest_job_seconds", &labels).set(number(row, "oldest_s")?);
            metrics::gauge!("bursar_execution_blocked_jobs", &labels).set(number(row, "blocked")?);
        }
        Ok(())
    }

    /// The lanes of each chain, and its queue. Which chains there are is read here too.
    async fn lanes_and_queues(&self) -> Result<(), WorkError> {
        for row in &sqlx::query(include_str!("../../queries/lane_gauges.sql")).fetch_all(&self.pool).await? {
            let chain: ChainName = text(row, "chain")?;
            let label = || chain.to_string();
            metrics::gauge!("bursar_execution_lanes_halted", "chain" => label()).set(number(row, "halted")?);
            metrics::gauge!("bursar_execution_foreign_nonces", "chain" => label())
                .set(number(row, "foreign_seen")?);
            metrics::gauge!("bursar_execution_spent_nonces", "chain" => label()).set(number(row, "spent")?);
            // Verdicts are counted in this process, whoever works.
            crate::metrics::begin(&chain);
            let queue = JobQueue::Withdrawal.on(&chain);
            queue.depth(&self.pool).await?.record(&queue);
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

fn number(row: &PgRow, column: &str) -> Result<f64, sqlx::Error> {
    Ok(unsigned(row, column)? as f64)
}
