//! Confirmation: what really happened on chain.
//!
//! ```text
//! rpc/      protobuf <-> app            chains/   settings of chains
//! worker/   loops over chains           heads/    recent blocks, leases, the status of chains
//! delivery  outbox -> other services    watch/    watches and their transactions
//!                                       verdict/  evidence, observations, signed findings
//! ```
//!
//! Invariants, as absences: it signs and sends no transaction; it holds no key that could pay; it decides no retry; and
//! nothing here ends a watch because something is missing.

pub mod chains;
mod columns;
pub mod config;
pub mod delivery;
mod error;
pub mod heads;
pub mod rpc;
pub mod verdict;
pub mod wake;
pub mod watch;
pub mod worker;

use ::worker::{Settings, WithoutRedis, Worker, runtime};
use db::Waker;
use db::outbox::{Relay, RelayConfig};
use proto::confirmation::v1::confirmation_service_server::ConfirmationServiceServer;
use service::clap;
use service::config::Reader;
use service::{BoxError, Context};
use sqlx::PgPool;
use types::ChainName;

use crate::chains::ChainApp;
use crate::config::Config;
use crate::delivery::MessageDelivery;
use crate::rpc::ConfirmationRpc;
use crate::watch::WatchApp;
use crate::worker::{LoopContext, gauges, supervisor};

pub use crate::error::Error;

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/confirmation");

/// The service, for `service::main` and tests.
#[derive(Debug, Clone, Copy)]
pub struct Confirmation;

impl service::Service for Confirmation {
    const NAME: &'static str = "confirmation";
    const HAS_OUTBOX: bool = true;
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn migrator() -> Option<&'static sqlx::migrate::Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let (config, pool) = (ctx.config(), ctx.pool());
        let waker = Waker::start(&pool);
        let (execution, intent) =
            (::rpc::connect_lazy(&config.execution)?, ::rpc::connect_lazy(&config.intent)?);
        let delivery = MessageDelivery::new(execution, intent);
        let relay = Relay::new(db::dedicated_pool(&pool, 3), delivery, RelayConfig::default());
        ctx.spawn("outbox relay", {
            let waker = waker.clone();
            move |stop| async move {
                relay.run(&waker, stop).await;
                Ok::<(), BoxError>(())
            }
        });
        let counted = pool.clone();
        ctx.spawn("gauges", move |stop| async move {
            gauges::run(counted, stop).await;
            Ok::<(), BoxError>(())
        });
        if config.workers {
            let context = loop_context(&ctx, owner(ctx.common().server.listen));
            ctx.spawn("chains", move |stop| supervisor::run(context, waker, None, stop));
        }

        let app = ConfirmationRpc::new(
            WatchApp::new(pool.clone()),
            ChainApp::new(pool.clone()),
            config.attestation.public(),
        );
        // There is one check for all chains, and one for each chain as soon as it is added.
        let (named, asked) = (pool.clone(), pool.clone());
        let server = ctx
            .server()
            .service(ConfirmationServiceServer::new(app))
            .check("chains", false, move || check(pool.clone(), None))
            .check_each(
                "chain",
                false,
                move || Box::pin(names(named.clone())),
                move |name| Box::pin(check(asked.clone(), Some(name))),
            );
        ctx.serve(server).await
    }

    fn commands() -> Vec<clap::Command> {
        let chain = clap::Arg::new("chain").long("chain").required(true).help("Name of the chain");
        vec![clap::Command::new("work").about("Follow one chain alone").arg(chain).arg(service::listen_arg())]
    }

    async fn command(name: &str, arguments: &clap::ArgMatches, ctx: Context<Config>) -> Result<(), BoxError> {
        if name != "work" {
            return Err(format!("there is no subcommand {name}").into());
        }
        let chain: ChainName =
            arguments.get_one::<String>("chain").map(String::as_str).unwrap_or_default().parse()?;
        let settings = Settings {
            // Chains are leased in the database, so verdicts go on without Redis.
            without_redis: WithoutRedis::GoOn,
            data_dir: None,
            ..Settings::from_env(&format!("confirmation-{chain}").parse()?)?
        };
        ctx.probes(arguments, |server| server);
        let (context, waker) = (loop_context(&ctx, work_owner(&settings)), Waker::start(&ctx.pool()));
        let work = move |worker: Worker| async move {
            let run = move |stop| supervisor::run(context.clone(), waker.clone(), Some(chain.clone()), stop);
            worker.while_permitted(run).await
        };
        runtime::run(settings, ctx.shutdown(), work).await?;
        Ok(())
    }
}

fn loop_context(ctx: &Context<Config>, owner: String) -> LoopContext {
    let config = ctx.config();
    LoopContext {
        pool: db::dedicated_pool(&ctx.pool(), 6),
        key: config.attestation.clone(),
        follow: config.follow.clone(),
        owner,
    }
}

/// Under an orchestrator one incarnation of a worker runs at a time. Its id is then a name that no other process has, and the
/// process has it again after a restart.
fn work_owner(settings: &Settings) -> String {
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) if settings.supervised => format!("{} {}", host.trim(), settings.id),
        Ok(_) | Err(_) => settings.incarnation.clone(),
    }
}

/// A name that no other process has at the same time and that the process has again after a restart, so that it need not wait
/// for its own lease. Without a fixed port there is no such name.
fn owner(listen: std::net::SocketAddr) -> String {
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) if listen.port() != 0 => format!("{} {listen}", host.trim()),
        Ok(_) | Err(_) => uuid::Uuid::now_v7().to_string(),
    }
}

async fn names(pool: PgPool) -> Result<Vec<String>, String> {
    let known = chains::repo::list(&pool).await.map_err(|error| ::rpc::error::chain(&error))?;
    Ok(known.into_iter().map(|settings| settings.name.to_string()).collect())
}

/// Whether a chain, or every chain, can be followed and gives verdicts.
async fn check(pool: PgPool, chain: Option<String>) -> Result<(), String> {
    let statuses = ChainApp::new(pool).statuses().await.map_err(|error| ::rpc::error::chain(&error))?;
    let asked = statuses
        .iter()
        .filter(|status| chain.as_ref().is_none_or(|name| name.as_str() == status.chain.as_str()));
    let problems: Vec<String> = asked.filter_map(heads::ChainStatus::problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
