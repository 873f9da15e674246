//! Worker control: the processes that do Bursar's work, and the one that keeps them alive.
//!
//! Owns workers, their configuration, heartbeats and control in Redis, what operators asked of them in PostgreSQL, and on-chain
//! activities. Never runs business logic: a worker is a command, in whatever language, that keeps the keys.
//!
//! This file is wiring only. `fleet` holds the orchestrator; `rpc` and `http` are its API.

mod config;
pub mod fleet;
mod http;
mod rpc;

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
use fleet::{Fleet, Orchestrator, Settings};

pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/worker-control");

/// Our own settings in the environment; no worker needs to know them.
const OWN_VARIABLES: &str = "BURSAR_WORKER_CONTROL__";

/// The service, as `libs/service` runs it.
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
        // Workers may take longer to stop than requests take to drain: the process stays until they have.
        ctx.shutdown().cancel();
        if let Some((_, stopped)) = orchestrated {
            stopped.cancelled().await;
        }
        served
    }
}

/// Starts the orchestrator and its HTTP API, if there shall be one. The token fires when it has stopped.
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
    // With the settings of the other port, TLS among them: the same keys travel here.
    let http = ctx
        .server_at(config.http.listen)
        .http(http::health(fleet.clone()))
        .http_for([Role::Operator, Role::Auditor], http::reading(fleet.clone()))
        .http_for([Role::Operator], http::acting(fleet.clone()));
    // Before any worker runs and before the other port answers: who sees this service serve can use both.
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

/// The same error with the setting of this port.
fn named(error: ServerError) -> BoxError {
    match error {
        ServerError::Listen { listen, reason } => {
            format!("cannot listen on {listen}: {reason} (http.listen)").into()
        }
        other @ (ServerError::Tls(_) | ServerError::Reflection(_)) => other.into(),
    }
}
