//! A TRON network in one process, for tests.
//!
//! It has java-tron's HTTP API over a chain in memory, with real protobuf, real ids and signatures, java-tron's order of checks,
//! resources and fees, TRC-20 ledgers, several nodes, faults on demand and an oracle that says how often a payment was made.
//!
//! It has no virtual machine (tokens are native), no gRPC, no peer protocol and no customer's key, and stores nothing but an
//! optional journal. It is only for tests and demonstrations.
//!
//! Layers, inward: `http` -> `admission`, `network`, `oracle` -> `node`, `chain` -> `ledger` -> `wire`,
//! `crypto`. One lock guards the network; no await happens under it.

pub mod admission;
pub mod chain;
pub mod config;
pub mod crypto;
pub mod fault;
pub mod http;
pub mod journal;
pub mod ledger;
pub mod network;
pub mod node;
pub mod oracle;
pub mod order;
pub mod render;
pub mod wire;

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use config::Config;
use http::{AppState, NodeChoice};
use journal::Journal;
use network::{Network, wall_ms};

/// A running devnet.
#[derive(Debug)]
pub struct Devnet {
    /// One address for each node.
    pub nodes: Vec<SocketAddr>,
    /// The address behind which all nodes answer in turn.
    pub balancer: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Devnet {
    /// Binds every listener and begins to produce blocks.
    pub async fn start(config: Config) -> Result<Self> {
        let count = usize::from(config.nodes.max(1));
        let mut listeners = Vec::with_capacity(count + 1);
        let last = if config.one_port { 0 } else { count };
        for offset in 0..=last {
            let port = match config.listen.port() {
                0 => 0,
                first => first.checked_add(u16::try_from(offset)?).context("too many nodes for this port")?,
            };
            let at = SocketAddr::new(config.listen.ip(), port);
            listeners.push(TcpListener::bind(at).await.with_context(|| format!("cannot listen on {at}"))?);
        }
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<_>>()?;
        // On one port the first node's address stands for all.
        let nodes = addresses.iter().copied().take(count).collect();
        let balancer = addresses[last];
        let network = match &config.state {
            Some(path) => Journal::open(path, config.setup()?)?,
            None => Network::new(config.setup()?),
        };
        let network = Arc::new(Mutex::new(network));
        let (stop, ending) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let choice = if number < count {
                NodeChoice::One(number)
            } else {
                NodeChoice::RoundRobin(Arc::new(AtomicUsize::new(0)))
            };
            let app = AppState { network: Arc::clone(&network), choice, ending: ending.clone() };
            tasks.spawn(serve(listener, app, ending.clone()));
        }
        tasks.spawn(produce(network, ending));
        Ok(Self { nodes, balancer, stop, tasks })
    }

    /// The base address of a node.
    pub fn url(&self, node: usize) -> String {
        format!("http://{}", self.nodes[node])
    }

    /// Answers the requests in progress, then ends.
    pub async fn stop(mut self) {
        // Fails only when every task has ended already.
        let _ = self.stop.send(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn serve(listener: TcpListener, app: AppState, mut ending: watch::Receiver<bool>) {
    let until = async move {
        // An error means the sender is gone: time to end as well.
        let _ = ending.wait_for(|ending| *ending).await;
    };
    if let Err(error) = axum::serve(listener, http::router(app)).with_graceful_shutdown(until).await {
        tracing::error!(%error, "a listener failed");
    }
}

/// Produces blocks as their slots come.
async fn produce(network: Arc<Mutex<Network>>, mut ending: watch::Receiver<bool>) {
    let slot_ms = network.lock().unwrap_or_else(PoisonError::into_inner).slot_ms.unsigned_abs();
    // Often enough that a block is late by no more than a tenth of its slot.
    let mut ticks = tokio::time::interval(Duration::from_millis((slot_ms / 10).clamp(1, 100)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => network.lock().unwrap_or_else(PoisonError::into_inner).tick(wall_ms()),
            _ = ending.wait_for(|ending| *ending) => return,
        }
    }
}
