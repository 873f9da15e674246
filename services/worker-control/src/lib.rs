//! Worker control: the processes that do Bursar's work, and the one that keeps them alive.
//!
//! Owns workers, their configuration, heartbeats and control in Redis, and on-chain activities in PostgreSQL. Never runs business
//! logic.
//!
//! At present it holds its place: it starts, watches its stores, and answers every method with UNIMPLEMENTED.

mod config;
mod redis;
mod rpc_service;

use proto::workercontrol::v1::activity_service_server::ActivityServiceServer;
use proto::workercontrol::v1::executor_service_server::ExecutorServiceServer;
use proto::workercontrol::v1::worker_service_server::WorkerServiceServer;
use service::config::Reader;
use service::{BoxError, Context};
use sqlx::migrate::Migrator;

pub use config::Config;

static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/worker-control");

/// The service, as `libs/service` runs it.
#[derive(Debug)]
pub struct WorkerControl;

impl service::Service for WorkerControl {
    const NAME: &'static str = "worker-control";
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn migrator() -> Option<&'static Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let redis = redis::Redis::connect(&ctx.config().redis).await?;
        let server = ctx
            .server()
            .service(WorkerServiceServer::new(rpc_service::WorkerRpc))
            .service(ActivityServiceServer::new(rpc_service::ActivityRpc))
            .service(ExecutorServiceServer::new(rpc_service::ExecutorRpc))
            .check("redis", true, move || {
                let redis = redis.clone();
                async move { redis.ping().await }
            });
        ctx.serve(server).await
    }
}
