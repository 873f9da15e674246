//! Protobuf to application and back, and nothing else. Each handler: identify (the server has), parse, call, convert.

mod catalogue;
mod consolidation;
mod execution;
mod parse;
mod wallet;

use std::sync::Arc;

use proto::execution::v1::catalogue_service_server::CatalogueServiceServer;
use proto::execution::v1::consolidation_service_server::ConsolidationServiceServer;
use proto::execution::v1::execution_service_server::ExecutionServiceServer;
use proto::execution::v1::wallet_service_server::WalletServiceServer;
use rpc::Server;
use sqlx::PgPool;

use crate::worker::supervisor::Parts;

/// Adds the services and the health checks to a server.
pub(crate) fn services(server: Server, pool: &PgPool, parts: &Parts) -> Server {
    let (signer, chains) = (parts.signer.clone(), parts.chains.clone());
    server
        .service(CatalogueServiceServer::new(catalogue::CatalogueRpc::new(crate::catalogue(pool))))
        .service(WalletServiceServer::new(wallet::WalletRpc::new(parts.wallets.clone())))
        .service(ExecutionServiceServer::new(execution::ExecutionRpc::new(parts.jobs.clone())))
        .service(ConsolidationServiceServer::new(consolidation::ConsolidationRpc))
        .check("signer", false, move || {
            let signer = signer.clone();
            async move { signer.probe().await }
        })
        .check("chains", false, move || {
            let chains = chains.clone();
            async move { probe_chains(&chains).await }
        })
}

/// Every chain in use must have a node that answers; each node that does not is named.
async fn probe_chains(chains: &crate::chains::Chains) -> Result<(), String> {
    let loaded: Vec<Arc<crate::chains::ChainHandle>> = chains.loaded();
    let mut problems = Vec::new();
    for chain in loaded.iter().filter(|chain| chain.settings.enabled) {
        for node in chain.edge.probe().await {
            let name = format!("{}/{}", chain.settings.name, node.name);
            ::metrics::gauge!("bursar_execution_node_usable", "node" => name.clone())
                .set(if node.usable { 1.0 } else { 0.0 });
            if !node.usable {
                let why = node.last_error.map(|error| error.to_string()).unwrap_or_default();
                problems.push(format!("chain/{name}: {why}"));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
