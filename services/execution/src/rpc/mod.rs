//! Protobuf to application and back, and nothing else. Each handler: identify (the server has), parse, call, convert.

mod catalogue;
mod consolidation;
mod execution;
mod show;
mod wallet;

use proto::execution::v1::catalogue_service_server::CatalogueServiceServer;
use proto::execution::v1::consolidation_service_server::ConsolidationServiceServer;
use proto::execution::v1::execution_service_server::ExecutionServiceServer;
use proto::execution::v1::wallet_service_server::WalletServiceServer;
use rpc::Server;
use sqlx::PgPool;
use types::ChainName;

use crate::chains::{ChainHandle, Chains};
use crate::worker::supervisor::Parts;

/// Adds the services and the health checks to a server.
pub(crate) fn services(server: Server, pool: &PgPool, parts: &Parts) -> Server {
    let (signer, chains) = (parts.signer.clone(), parts.chains.clone());
    let (named, probed) = (parts.chains.clone(), parts.chains.clone());
    // `chains` speaks for all of them at once; each also has a name of its own, from when it is added.
    server
        .check_each(
            "chain",
            false,
            move || Box::pin(chain_names(named.clone())),
            move |name| Box::pin(probe_chain(probed.clone(), name)),
        )
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
            async move { probe_chains(&chains, None).await }
        })
}

async fn chain_names(chains: Chains) -> Result<Vec<String>, String> {
    let known = chains.names().await.map_err(|error| ::rpc::error::chain(&error))?;
    Ok(known.iter().map(ChainName::to_string).collect())
}

async fn probe_chain(chains: Chains, name: String) -> Result<(), String> {
    let name: ChainName = name.parse().map_err(|error| format!("{error}"))?;
    probe_chains(&chains, Some(&name)).await
}

/// Asks the nodes of one chain, or of all that are enabled; each one that does not answer is named.
async fn probe_chains(chains: &Chains, only: Option<&ChainName>) -> Result<(), String> {
    let mut problems = Vec::new();
    let wanted = |chain: &ChainHandle| {
        let settings = &chain.settings;
        only.map_or(settings.enabled, |name| settings.name == *name)
    };
    let asked: Vec<_> = chains.loaded().into_iter().filter(|chain| wanted(chain)).collect();
    if let (Some(name), true) = (only, asked.is_empty()) {
        return Err(format!("chain/{name}: cannot be used as it is configured"));
    }
    for chain in asked {
        for node in chain.edge.probe().await {
            let name = format!("{}/{}", chain.settings.name, node.name);
            ::metrics::gauge!("bursar_execution_node_usable", "node" => name.clone()).set(if node.usable {
                1.0
            } else {
                0.0
            });
            if !node.usable {
                let why = node.last_error.map(|error| error.to_string()).unwrap_or_default();
                problems.push(format!("chain/{name}: {why}"));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
