//! Worker control keeps the processes alive that do Bursar's work.
//!
//! Owns workers, their heartbeats and control in Redis, what operators asked for in PostgreSQL, and on-chain activities.
//! Never runs business logic: a worker is a command, in any language, that maintains its keys in Redis.
//!
//! This file is wiring only:
//!
//! ```text
//! rpc, http      the API
//! fleet          the API's handle to the orchestrator, and what it shows
//! orchestrator   the loop that starts, checks and ends workers
//! member         the rules of one worker (no I/O)
//! spec           what a worker runs: the worker file, the database
//! registry       Redis: the orchestrator's lock, admissions, heartbeats
//! process        operating system processes and their output
//! ```

mod config;
mod fleet;
mod http;
mod member;
mod orchestrator;
mod process;
mod registry;
mod rpc;
mod spec;

use ::rpc::{Role, server::ServerError};
use proto::workercontrol::v1::activity_service_server::ActivityServiceServer;
use proto::workercontrol::v1::executor_service_server::ExecutorServiceServer;
use proto::workercontrol::v1::worker_service_server::WorkerServiceServer;
use service::config::Reader;
use service::{BoxError, Context};
use sqlx::migrate::Migrator;
use tokio_util::sync::CancellationToken;
use worker::redis::Redis;

pub use config::{Config, HttpConfig, OrchestratorConfig, Orphans, RedisConfig};
use fleet::Fleet;
use orchestrator::{Orchestrator, Settings};

pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/worker-control");

/// Our own settings in the environment are not passed on to workers.
const OWN_VARIABLES: &str = "BURSAR_WORKER_CONTROL__";

#[derive(Debug)]
pub struct WorkerControl;

impl service::Service for WorkerControl {
    const NAME: &'static str = "worker-control";
    const LIVE: &'static [&'static str] = &["orchestrator"];
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn migrator() -> Option<&'static Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let redis = Redis::connect(&ctx.config().redis.client()).await?;
        let orchestrated = orchestrate(&ctx, &redis).await?;
        let fleet = orchestrated.as_ref().map(|(fleet, _)| fleet.clone());
        let server = ctx
            .server()
            .service(WorkerServiceServer::new(rpc::WorkerRpc::new(fleet)))
            .service(ActivityServiceServer::new(rpc::ActivityRpc))
            .service(ExecutorServiceServer::new(rpc::ExecutorRpc))
            .check("redis", true, move || {
                let redis = redis.clone();
                async move { redis.ping().await }
            });
        let served = ctx.serve(server).await;
        // Workers may take longer to stop than requests take to drain, and the process must outlive them.
        ctx.shutdown().cancel();
        if let Some((_, stopped)) = orchestrated {
            stopped.cancelled().await;
        }
        served
    }
}

/// Starts the orchestrator and its HTTP API, if they are enabled. The token fires when the orchestrator has stopped.
async fn orchestrate(
    ctx: &Context<Config>,
    redis: &Redis,
) -> Result<Option<(Fleet, CancellationToken)>, BoxError> {
    let config = ctx.config();
    let Some(orchestrator) = config.orchestrator.clone() else { return Ok(None) };
    let settings = Settings {
        config: orchestrator,
        redis: redis.clone(),
        redis_config: config.redis.client(),
        pool: ctx.pool(),
        withheld_prefix: OWN_VARIABLES.to_owned(),
    };
    let (orchestrator, fleet) = Orchestrator::start(settings).await?;
    // The same API keys are sent to this port, so it has the settings of the other one, TLS included.
    let http = ctx
        .server_at(config.http.listen)
        .http(http::health(fleet.clone()))
        .http_for([Role::Operator, Role::Auditor], http::reading(fleet.clone()))
        .http_for([Role::Operator], http::acting(fleet.clone()));
    // Bound before any worker runs and before the other port answers, so that a service that is up serves both.
    let http = http.bind().await.map_err(named)?;
    let stopped = CancellationToken::new();
    let (done, changes) = (stopped.clone(), ctx.config_changes());
    ctx.spawn("orchestrator", move |stop| async move {
        let _done = done.drop_guard();
        orchestrator.run(changes, stop).await
    });
    ctx.spawn("http", move |stop| async move {
        http.serve(stop).await;
        Ok::<(), BoxError>(())
    });
    Ok(Some((fleet, stopped)))
}

/// Names the setting of this port in the error.
fn named(error: ServerError) -> BoxError {
    match error {
        ServerError::Listen { listen, reason } => {
            format!("cannot listen on {listen}: {reason} (http.listen)").into()
        }
        other @ (ServerError::Tls(_) | ServerError::Reflection(_)) => other.into(),
    }
}
