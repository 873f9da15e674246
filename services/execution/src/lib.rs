//! Execution: pays approved withdrawals on chain, exactly once.
//!
//! Owns the catalogue, the operation wallets and what they hold, the jobs and every transaction signed for them, and the
//! nonces of each wallet. It approves nothing, holds no keys and decides no finality: intent, the signer and confirmation
//! do. This file is wiring only; `README.md` says what must never happen and where a crash could make it happen.

pub mod catalogue;
pub mod chains;
pub mod config;
pub mod job;
pub mod lane;
mod metrics;
pub mod outbox;
mod rpc;
pub mod signer;
mod sql;
pub mod wallet;
pub mod worker;

use std::sync::Arc;

use ::rpc::connect_lazy;
use db::Waker;
use db::outbox::{Relay, RelayConfig};
use service::clap;
use service::{BoxError, Context, Service};

use crate::catalogue::Catalogue;
use crate::chains::Chains;
use crate::config::Config;
use crate::job::{Jobs, JobsConfig};
use crate::signer::Signer;
use crate::wallet::Wallets;
use crate::worker::relay::Delivering;
use crate::worker::supervisor::{self, Parts, Scope};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/execution");

/// The service.
#[derive(Debug)]
pub struct Execution;

impl Service for Execution {
    const NAME: &'static str = "execution";

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
        let deliver = Delivering::new(connect_lazy(&config.confirmation)?, connect_lazy(&config.intent)?);
        let relay = Relay::new(ctx.pool(), deliver, RelayConfig::default());
        let waker = parts.waker.clone();
        ctx.spawn("outbox relay", move |stop| async move {
            relay.run(&waker, stop).await;
            Ok::<(), BoxError>(())
        });
        if let Some(scope) = config.workers.clone() {
            let parts = parts.clone();
            ctx.spawn("workers", move |stop| async move {
                supervisor::run(parts, scope, stop).await;
                Ok::<(), BoxError>(())
            });
        }
        // Loaded before the server is made, so that each chain has a health check of its own name.
        parts.chains.reload().await?;
        let server = self::rpc::services(ctx.server(), &ctx.pool(), &parts);
        ctx.serve(server).await
    }

    fn commands() -> Vec<clap::Command> {
        let chain = clap::Arg::new("chain").long("chain").required(true).help("Name of the chain");
        let queue = clap::Arg::new("queue")
            .long("queue")
            .default_value("withdrawal")
            .value_parser(["withdrawal"])
            .help("Queue to work on");
        vec![
            clap::Command::new("work")
                .about("Run the workers of one chain and queue alone")
                .arg(chain)
                .arg(queue),
        ]
    }

    async fn command(name: &str, arguments: &clap::ArgMatches, ctx: Context<Config>) -> Result<(), BoxError> {
        if name != "work" {
            return Err(format!("there is no subcommand {name}").into());
        }
        let chain = arguments.get_one::<String>("chain").map(String::as_str).unwrap_or_default().parse()?;
        let parts = parts(&ctx)?;
        supervisor::run(parts, Scope::Only(vec![chain]), ctx.shutdown()).await;
        Ok(())
    }
}

/// What handlers and workers share.
fn parts(ctx: &Context<Config>) -> Result<Parts, BoxError> {
    let config = ctx.config();
    let pool = ctx.pool();
    let chains = Chains::new(pool.clone(), config.node_timeout);
    let jobs_config =
        JobsConfig { schedule: config.worker.schedule, halt_on_foreign: config.worker.halt_on_foreign };
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

/// The catalogue, for whoever serves it.
fn catalogue(pool: &sqlx::PgPool) -> Catalogue {
    Catalogue::new(pool.clone())
}
