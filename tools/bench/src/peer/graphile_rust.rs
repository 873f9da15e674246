//! graphile_worker, the Rust crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::Style;
use crate::server;

const SCHEMA: &str = "graphile_worker";
/// The settings of the crate's own benchmark.
const BATCH_CONCURRENCY: usize = 500;
const BATCH_CONNECTIONS: u32 = 100;
const LOCAL_QUEUE: usize = 5_000;
const COMPLETION_DELAY: Duration = Duration::from_millis(5);
const ADDED_AT_ONCE: usize = 5_000;
/// A worker that fetches job by job does so once for each of its rounds: with the default of a second between them it
/// would mostly sleep.
const EACH_POLL: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
struct Nothing {
    number: usize,
}

#[derive(Debug, Clone)]
struct Done(Arc<AtomicUsize>);

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, ctx: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(done) = ctx.get_ext::<Done>() {
            done.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

pub(super) async fn rate(url: &str, style: Style, jobs: usize) -> Result<f64> {
    let connections = match style {
        Style::Each { clients } => clients + 2,
        Style::Batches => BATCH_CONNECTIONS,
    };
    let pool =
        PgPoolOptions::new().max_connections(connections).min_connections(connections).connect(url).await?;
    add(&pool, jobs).await?;
    let done = Done(Arc::new(AtomicUsize::new(0)));
    let worker = Arc::new(worker(pool.clone(), style, done.clone()).await?);
    let began = Instant::now();
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    let drained = drained(&pool, &done, jobs).await;
    let seconds = began.elapsed().as_secs_f64();
    worker.request_shutdown();
    running.await?.context("the worker failed")?;
    pool.close().await;
    drained?;
    Ok(jobs as f64 / seconds)
}

async fn worker(pool: PgPool, style: Style, done: Done) -> Result<Worker> {
    let options = WorkerOptions::default()
        .pg_pool(pool)
        .schema(SCHEMA)
        .listen_os_shutdown_signals(false)
        .add_extension(done)
        .define_job::<Nothing>();
    let options = match style {
        Style::Each { clients } => options.concurrency(clients as usize).poll_interval(EACH_POLL),
        Style::Batches => options
            .concurrency(BATCH_CONCURRENCY)
            .poll_interval(Duration::from_millis(5))
            .complete_job_batch_delay(COMPLETION_DELAY)
            .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE)),
    };
    Ok(options.init().await?)
}

async fn add(pool: &PgPool, jobs: usize) -> Result<()> {
    let utils = WorkerUtils::new(pool.clone(), SCHEMA);
    utils.migrate().await?;
    let mut number = 0;
    while number < jobs {
        let count = ADDED_AT_ONCE.min(jobs - number);
        let job = |number| {
            let payload = serde_json::to_value(Nothing { number })?;
            anyhow::Ok(RawJobSpec {
                identifier: Nothing::IDENTIFIER.to_owned(),
                payload,
                spec: JobSpec::default(),
            })
        };
        let batch = (number..number + count).map(job).collect::<Result<Vec<_>>>()?;
        utils.add_raw_jobs(&batch).await?;
        number += count;
    }
    sqlx::query("VACUUM ANALYZE graphile_worker._private_jobs").execute(pool).await?;
    server::settle(pool).await
}

/// A job counts once its row is gone: what the handler has seen may still be waiting for its completion.
async fn drained(pool: &PgPool, done: &Done, jobs: usize) -> Result<()> {
    let began = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let handled = done.0.load(Ordering::Relaxed);
        if handled >= jobs {
            let left =
                sqlx::query("SELECT FROM graphile_worker._private_jobs LIMIT 1").fetch_optional(pool).await?;
            if left.is_none() {
                return Ok(());
            }
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{handled} jobs of {jobs} were handled in {} s",
            PATIENCE.as_secs()
        );
    }
}
