//! Execution: pays approved withdrawals on chain, exactly once.
//!
//! Owns the catalogue, the operation wallets and what they hold, the jobs and every transaction signed for them, and the
//! nonces of each wallet. It approves nothing, holds no keys and decides no finality: intent, the signer and confirmation
//! do. This file is wiring only; `README.md` says what must never happen and where a crash could make it happen.

pub mod catalogue;
pub mod chains;
pub mod config;
pub(crate) mod confirmation;
pub mod engine;
pub mod job;
pub mod lane;
mod metrics;
pub mod outbox;
pub mod queue;
mod row;
mod rpc;
pub mod signer;
pub mod wallet;
pub mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::rpc::connect_lazy;
use ::worker::{Loop, Settings, WithoutRedis, Worker, runtime};
use db::Waker;
use db::outbox::{Relay, RelayConfig};
use service::clap;
use service::{BoxError, Context, Service};
use tokio_util::sync::CancellationToken;
use types::ChainName;

use crate::catalogue::Catalogue;
use crate::chains::Chains;
use crate::config::Config;
use crate::job::{Jobs, JobsConfig};
use crate::queue::JobQueue;
use crate::signer::Signer;
use crate::wallet::Wallets;
use crate::worker::delivery::MessageDelivery;
use crate::worker::gauges::Gauges;
use crate::worker::supervisor::{self, Parts, Scope};

/// How often the catalogue is read where no worker does.
const CATALOGUE_EVERY: Duration = Duration::from_secs(1);

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/execution");

/// The service.
#[derive(Debug)]
pub struct Execution;

impl Service for Execution {
    const NAME: &'static str = "execution";
    const HAS_OUTBOX: bool = true;

    type Config = Config;

    fn read(reader: &service::config::Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn migrator() -> Option<&'static sqlx::migrate::Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let config = ctx.config();
        let parts = parts(&ctx)?;
        let deliver =
            MessageDelivery::new(connect_lazy(&config.confirmation)?, connect_lazy(&config.intent)?);
        let relay = Relay::new(db::dedicated_pool(&ctx.pool(), 3), deliver, RelayConfig::default());
        let waker = parts.waker.clone();
        ctx.spawn("outbox relay", move |stop| async move {
            relay.run(&waker, stop).await;
            Ok::<(), BoxError>(())
        });
        // Only processes that serve show gauges, because workers may run in this process, in others or in none.
        let gauges = Gauges::new(ctx.pool());
        ctx.spawn("gauges", move |stop| async move {
            Loop::new("gauges", Gauges::EVERY).run(gauges, stop).await;
            Ok::<(), BoxError>(())
        });
        if let Some(scope) = config.workers.clone() {
            let parts = parts.clone();
            ctx.spawn("workers", move |stop| supervisor::run(parts, scope, stop));
        } else {
            let chains = parts.chains.clone();
            ctx.spawn("catalogue", move |stop| follow(chains, stop));
        }
        let server = self::rpc::services(ctx.server(), &ctx.pool(), &parts);
        ctx.serve(server).await
    }

    fn commands() -> Vec<clap::Command> {
        let chain = clap::Arg::new("chain").long("chain").required(true).help("Name of the chain");
        let queue = clap::Arg::new("queue")
            .long("queue")
            .default_value(JobQueue::WITHDRAWAL.name())
            .value_parser(JobQueue::worked().map(|(queue, _)| queue.name()).collect::<Vec<_>>())
            .help("Queue to work on");
        vec![
            clap::Command::new("work")
                .about("Run the workers of one chain and queue alone")
                .arg(chain)
                .arg(queue)
                .arg(service::listen_arg()),
        ]
    }

    async fn command(name: &str, arguments: &clap::ArgMatches, ctx: Context<Config>) -> Result<(), BoxError> {
        if name != "work" {
            return Err(format!("there is no subcommand {name}").into());
        }
        let text = |name: &str| arguments.get_one::<String>(name).map(String::as_str).unwrap_or_default();
        let chain: ChainName = text("chain").parse()?;
        let queue: JobQueue = text("queue").parse()?;
        let id = format!("execution-{queue}-{chain}").parse()?;
        let settings = Settings {
            // Each job is leased and fenced by the database: payments go on without Redis.
            without_redis: WithoutRedis::GoOn,
            data_dir: None,
            ..Settings::from_env(&id)?
        };
        ctx.probes(arguments, |server| server);
        let parts = parts(&ctx)?;
        let work = move |worker: Worker| async move {
            let run = move |stop| {
                let scope = Scope(BTreeMap::from([(queue, vec![chain.clone()])]));
                supervisor::run(parts.clone(), scope, stop)
            };
            worker.while_permitted(run).await
        };
        runtime::run(settings, ctx.shutdown(), work).await?;
        Ok(())
    }
}

/// Keeps the chains up to date where no worker does.
async fn follow(chains: Chains, stop: CancellationToken) -> Result<(), BoxError> {
    while !stop.is_cancelled() {
        if let Err(error) = chains.reload().await {
            tracing::warn!(error = %error, "the catalogue cannot be read; the known chains stay in use");
        }
        stop.run_until_cancelled(tokio::time::sleep(CATALOGUE_EVERY)).await;
    }
    Ok(())
}

/// What handlers and workers share.
fn parts(ctx: &Context<Config>) -> Result<Parts, BoxError> {
    let config = ctx.config();
    let pool = ctx.pool();
    let chains = Chains::new(pool.clone(), config.node_timeout, config.window);
    let jobs_config = JobsConfig {
        schedules: config.worker.schedules.clone(),
        halt_on_foreign: config.worker.halt_on_foreign,
    };
    Ok(Parts {
        jobs: Jobs::start(pool.clone(), jobs_config),
        wallets: Wallets::new(pool.clone(), chains.clone()),
        signer: Signer::new(connect_lazy(&config.signer)?, config.sign_timeout),
        waker: Waker::start(&pool),
        config: Arc::new(config.worker.clone()),
        gap_patience: config.gap_patience,
        chains,
    })
}

fn catalogue(pool: &sqlx::PgPool) -> Catalogue {
    Catalogue::new(pool.clone())
}
