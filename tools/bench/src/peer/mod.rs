//! Other queues on PostgreSQL, driven as their authors advise, on the same server.

mod graphile_node;
mod graphile_rust;

use std::path::PathBuf;

use anyhow::Result;

use crate::Mode;
use crate::server::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Each job fetched and completed by itself, by this many clients.
    Each { clients: u32 },
    /// In batches, with the settings of the peer's own benchmark.
    Batches,
}

impl Style {
    fn database(self, peer: &str) -> String {
        match self {
            Style::Each { .. } => format!("{peer}_each"),
            Style::Batches => format!("{peer}_batches"),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Peer {
    Rust { url: String, style: Style },
    Node { url: String, style: Style, prefix: PathBuf },
}

impl Peer {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Peer::Rust { .. } => "graphile_worker",
            Peer::Node { .. } => "graphile-worker, Node",
        }
    }

    /// Jobs a second, from the start until none of these is left in its table.
    pub(crate) async fn rate(&self, jobs: usize) -> Result<f64> {
        match self {
            Peer::Rust { url, style } => Box::pin(graphile_rust::rate(url, *style, jobs)).await,
            Peer::Node { url, style, prefix } => graphile_node::rate(url, *style, prefix, jobs).await,
        }
    }
}

/// The peers of this run, each with a database of its own. Those that need Node are left to the full mode.
pub(crate) async fn all(server: &Server, mode: Mode, style: Style) -> Result<Vec<Peer>> {
    let mut peers = vec![Peer::Rust { url: server.database(&style.database("rust_peer")).await?, style }];
    if mode == Mode::Full {
        match graphile_node::install().await {
            Ok(prefix) => {
                let url = server.database(&style.database("node_peer")).await?;
                peers.push(Peer::Node { url, style, prefix });
            }
            Err(error) => eprintln!("    without graphile-worker of Node: {error:#}"),
        }
    }
    Ok(peers)
}
