//! Confirmation: what really happened on chain.
//!
//! ```text
//! rpc       protobuf <-> app            chains/   settings of chains
//! worker/   loops over chains           heads/    recent blocks, leases, where chains stand
//! delivery  outbox -> other services    watch/    watches, evidence, verdicts
//! ```
//!
//! Invariants, as absences: it signs no transaction and sends none; it holds no key that could pay; it decides no retry;
//! and nothing here ends a watch because something is missing.

pub mod chains;
pub mod config;
pub mod delivery;
pub mod heads;
mod parse;
pub mod rpc;
pub mod wake;
pub mod watch;
pub mod worker;

use db::Waker;
use db::outbox::{Relay, RelayConfig};
use proto::confirmation::v1::confirmation_service_server::ConfirmationServiceServer;
use service::config::Reader;
use service::{BoxError, Context};
use sqlx::PgPool;
use types::ChainName;

use crate::chains::ChainApp;
use crate::config::Config;
use crate::delivery::Courier;
use crate::rpc::ConfirmationRpc;
use crate::watch::WatchApp;
use crate::worker::{Parts, supervisor};

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/confirmation");

/// The service, for `service::main` and tests.
#[derive(Debug, Clone, Copy)]
pub struct Confirmation;

impl service::Service for Confirmation {
    const NAME: &'static str = "confirmation";
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
        let courier =
            Courier::new(::rpc::connect_lazy(&config.execution)?, ::rpc::connect_lazy(&config.intent)?);
        let relay = Relay::new(pool.clone(), courier, RelayConfig::default());
        ctx.spawn("outbox relay", {
            let waker = waker.clone();
            move |stop| async move {
                relay.run(&waker, stop).await;
                Ok::<(), BoxError>(())
            }
        });
        let owner = owner(ctx.common().server.listen);
        let parts = Parts {
            pool: pool.clone(),
            key: config.attestation.clone(),
            follow: config.follow.clone(),
            owner,
        };
        ctx.spawn("chains", move |stop| supervisor::run(parts, waker, stop));

        let app = ConfirmationRpc::new(
            WatchApp::new(pool.clone()),
            ChainApp::new(pool.clone()),
            config.attestation.public(),
        );
        let mut server = ctx.server().service(ConfirmationServiceServer::new(app));
        // One check for all, because chains come and go while the service runs; and one for each that is known now.
        server = server.check("chains", false, check(pool.clone(), None));
        for settings in chains::repo::list(&pool).await? {
            let name = format!("chain/{}", settings.name);
            server = server.check(name, false, check(pool.clone(), Some(settings.name)));
        }
        ctx.serve(server).await
    }
}

/// What no other process is called at the same time, and the same again after a restart, so that a restarted process need
/// not wait for its own lease. Without a fixed port there is no such name.
fn owner(listen: std::net::SocketAddr) -> String {
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) if listen.port() != 0 => format!("{} {listen}", host.trim()),
        Ok(_) | Err(_) => uuid::Uuid::now_v7().to_string(),
    }
}

/// Whether a chain, or every chain, can be followed and gives verdicts.
fn check(
    pool: PgPool,
    chain: Option<ChainName>,
) -> impl Fn() -> futures::future::BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
    move || {
        let (app, chain) = (ChainApp::new(pool.clone()), chain.clone());
        Box::pin(async move {
            let standings = app.standings().await.map_err(|error| ::rpc::error::chain(&error))?;
            let asked =
                standings.iter().filter(|standing| chain.as_ref().is_none_or(|name| *name == standing.chain));
            let problems: Vec<String> = asked.filter_map(heads::ChainStanding::problem).collect();
            if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
        })
    }
}
