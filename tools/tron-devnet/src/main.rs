//! Starts a devnet from the command line and ends it on SIGTERM or Ctrl-C.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tron_devnet::{Config, Devnet};

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let config = Config::parse();
    let mut term = signal(SignalKind::terminate())?;
    let devnet = Devnet::start(config.clone()).await?;
    tracing::info!(nodes = ?devnet.nodes, balancer = %devnet.balancer, "the devnet is ready");
    if let Some(path) = &config.port_file {
        write_ports(path, &devnet, &config)?;
    }
    tokio::select! {
        _ = term.recv() => {}
        interrupt = tokio::signal::ctrl_c() => interrupt?,
    }
    devnet.stop().await;
    Ok(())
}

/// Renamed into place, so that a reader never sees half of it.
fn write_ports(path: &Path, devnet: &Devnet, config: &Config) -> Result<()> {
    let nodes: Vec<String> = if config.one_port {
        (0..config.nodes).map(|node| format!("http://{}/nodes/{node}", devnet.nodes[0])).collect()
    } else {
        devnet.nodes.iter().map(|at| format!("http://{at}")).collect()
    };
    let tokens: serde_json::Map<String, serde_json::Value> =
        config.tokens()?.into_iter().map(|(symbol, _, address)| (symbol, address.base58().into())).collect();
    let balancer = format!("http://{}", devnet.balancer);
    let text = json!({ "nodes": nodes, "balancer": balancer, "tokens": tokens }).to_string();
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).with_context(|| format!("cannot write {}", draft.display()))?;
    std::fs::rename(&draft, path).with_context(|| format!("cannot write {}", path.display()))
}
