//! The indexer: contract events, each once, complete to a known block.
//!
//! Owns sources, cursors, ranges, events and coverage in MongoDB. Never decides about money: what it stores is evidence for
//! others.
//!
//! At present it holds its place: it starts, watches its database, and answers every method with UNIMPLEMENTED.

mod config;
mod rpc_service;
mod store;

use proto::indexer::v1::indexer_service_server::IndexerServiceServer;
use service::config::Reader;
use service::{BoxError, Context};

pub use config::Config;

/// The service, as `libs/service` runs it.
#[derive(Debug)]
pub struct Indexer;

impl service::Service for Indexer {
    const NAME: &'static str = "indexer";
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        Config::read(reader)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let store = store::Store::connect(&ctx.config().mongo).await?;
        let server = ctx.server().service(IndexerServiceServer::new(rpc_service::IndexerRpc)).check(
            "database",
            true,
            move || {
                let store = store.clone();
                async move { store.ping().await }
            },
        );
        ctx.serve(server).await
    }
}
