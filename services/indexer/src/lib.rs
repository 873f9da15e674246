//! The indexer stores contract events, each once, complete to a known block.
//!
//! Owns sources, cursors, ranges, events and coverage in MongoDB. Never decides about money.
//!
//! `serve` reads events and answers calls, `work` only reads, `api` only answers. Any number of processes may run of each.

mod config;
mod event;
mod http;
mod legacy;
mod node;
mod range;
mod rpc;
mod source;
mod store;
mod worker;

use ::rpc::Server;
use ::worker::{Settings, Worker, runtime};
use proto::indexer::v1::indexer_service_server::IndexerServiceServer;
use service::clap;
use service::config::Reader;
use service::{BoxError, Context};

pub use config::{CollectConfig, Config, MongoConfig, Verify};
pub use event::FEES_COLLECTED;

use crate::rpc::Watchers;
use crate::store::Store;

#[derive(Debug)]
pub struct Indexer;

impl service::Service for Indexer {
    const NAME: &'static str = "indexer";
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn variables(given: Vec<(String, String)>) -> Vec<(String, String)> {
        legacy::translate(given)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let config = ctx.config();
        config.fee_collector.as_ref().map_or(Ok(()), legacy::check)?;
        let store = Store::connect(&config.mongo).await?;
        if config.collect.enabled {
            // A process that also answers calls outlives its workers: they are restarted when the store is back.
            worker::configure(&store, &config).await?;
            let supervisor = worker::supervisor(store.clone(), config.collect.clone());
            ctx.spawn("workers", move |stop| supervisor.run(stop));
        }
        serve(&ctx, store).await
    }

    fn commands() -> Vec<clap::Command> {
        vec![
            clap::Command::new("work").about("Read events, and answer nobody").arg(service::listen_arg()),
            clap::Command::new("api").about("Answer, and read no events"),
        ]
    }

    async fn command(name: &str, arguments: &clap::ArgMatches, ctx: Context<Config>) -> Result<(), BoxError> {
        let config = ctx.config();
        config.fee_collector.as_ref().map_or(Ok(()), legacy::check)?;
        let store = Store::connect(&config.mongo).await?;
        match name {
            "work" => {
                ctx.probes(arguments, |server| checked(server, store.clone()));
                worker::configure(&store, &config).await?;
                // As the orchestrator's worker `indexer`, or alone: without Redis nothing new is read.
                let settings = Settings { data_dir: None, ..Settings::from_env(&"indexer".parse()?)? };
                let work = move |worker: Worker| async move {
                    let supervisor = move || worker::supervisor(store.clone(), config.collect.clone());
                    worker.while_permitted(move |stop| supervisor().failing_with_loops().run(stop)).await
                };
                runtime::run(settings, ctx.shutdown(), work).await?;
                Ok(())
            }
            _ => serve(&ctx, store).await,
        }
    }
}

async fn serve(ctx: &Context<Config>, store: Store) -> Result<(), BoxError> {
    let watchers = Watchers::new(&store);
    ctx.spawn("watchers", {
        let watchers = watchers.clone();
        move |stop| watchers.poll(stop)
    });
    let server: Server = ctx
        .server()
        .service(IndexerServiceServer::new(rpc::IndexerRpc::new(&store, watchers)))
        .http(http::router(&store));
    ctx.serve(checked(server, store)).await
}

/// Without its store the service can do nothing.
fn checked(server: Server, store: Store) -> Server {
    server.check("database", true, move || {
        let store = store.clone();
        async move { store.ping().await }
    })
}
