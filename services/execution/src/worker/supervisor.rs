//! Which loops run: for each chain that this process works on, the loops of its queues, its resends, its lanes and its
//! balances. Chains come and go with the catalogue, without a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use db::Waker;
use service::BoxError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use types::ChainName;
use worker::{KeyedLoops, Loop, Loops, Supervisor};

use super::WorkerConfig;
use super::balances::BalanceWorker;
use super::lanes::LaneWorker;
use super::resend::ResendWorker;
use crate::chains::{Chains, ChainsError};
use crate::engine::{Edges, QueueWorker};
use crate::job::Jobs;
use crate::queue::JobQueue;
use crate::signer::Signer;
use crate::wallet::Wallets;

/// How often the catalogue is read.
const EVERY: Duration = Duration::from_secs(1);
/// The longest pause of a queue's loop; it is woken when there is work.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Everything the loops need.
#[derive(Debug, Clone)]
pub struct Parts {
    pub chains: Chains,
    pub jobs: Jobs,
    pub wallets: Wallets,
    pub signer: Signer,
    pub waker: Waker,
    pub config: Arc<WorkerConfig>,
    /// How long a gap in a lane waits for a payment.
    pub gap_patience: Duration,
}

/// What this process works on: the queues, each with its chains (empty: all of them).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope(pub BTreeMap<JobQueue, Vec<ChainName>>);

impl Scope {
    /// The queues to work on for a chain; none if the chain is not ours.
    fn queues(&self, chain: &ChainName) -> Vec<JobQueue> {
        let ours = |chains: &Vec<ChainName>| chains.is_empty() || chains.contains(chain);
        self.0.iter().filter(|(_, chains)| ours(chains)).map(|(queue, _)| *queue).collect()
    }
}

/// Starts and stops loops until `stop`, then lets the running ticks finish.
pub async fn run(parts: Parts, scope: Scope, stop: CancellationToken) -> Result<(), BoxError> {
    Supervisor::new(ChainLoops { parts, scope }, EVERY)
        .counting_restarts_as("bursar_execution_workers_restarted_total")
        .restarting_on_change()
        .run(stop)
        .await?;
    Ok(())
}

struct ChainLoops {
    parts: Parts,
    scope: Scope,
}

impl KeyedLoops for ChainLoops {
    type Key = ChainName;
    type Settings = Vec<JobQueue>;
    type Error = ChainsError;

    async fn wanted(&mut self) -> Result<BTreeMap<ChainName, Vec<JobQueue>>, ChainsError> {
        let chains = self.parts.chains.reload().await?;
        // Disabled chains too: what is under way there goes on; new payments are blocked when they are priced.
        let wanted = chains.iter().map(|chain| {
            let name = chain.settings.name.clone();
            let queues = self.scope.queues(&name);
            (name, queues)
        });
        Ok(wanted.filter(|(_, queues)| !queues.is_empty()).collect())
    }

    fn start(&mut self, chain: &ChainName, queues: watch::Receiver<Vec<JobQueue>>, loops: &mut Loops) {
        crate::metrics::begin(chain);
        for queue in queues.borrow().iter() {
            self.start_queue(*queue, chain, loops);
        }
        let Parts { chains, jobs, wallets, config, gap_patience, .. } = &self.parts;
        let pool = jobs.hot().clone();
        let named = |name: &str, every| Loop::new(format!("{name}/{chain}"), every);
        let resend = ResendWorker::new(pool.clone(), chain.clone(), chains.clone(), Arc::clone(config));
        loops.spawn_ticks(named("resend", ResendWorker::EVERY), resend);
        let lanes = LaneWorker::new(pool.clone(), chain.clone(), chains.clone(), *gap_patience);
        loops.spawn_ticks(named("lanes", LaneWorker::EVERY), lanes);
        let balances = BalanceWorker::new(pool, chain.clone(), wallets.clone(), config.balances_every);
        loops.spawn_ticks(named("balances", BalanceWorker::EVERY), balances);
    }
}

impl ChainLoops {
    fn start_queue(&self, queue: JobQueue, chain: &ChainName, loops: &mut Loops) {
        let Parts { chains, jobs, signer, waker, config, .. } = &self.parts;
        for index in 0..config.concurrency.max(1) {
            let edges = Edges { chains: chains.clone(), jobs: jobs.clone(), signer: signer.clone() };
            let owner = format!("{}-{index}", owner());
            let Some(worker) = QueueWorker::new(queue, chain.clone(), owner, edges, Arc::clone(config))
            else {
                return;
            };
            let subscription = waker.subscribe(queue.on(chain).name());
            let looping = Loop::new(format!("{queue}/{chain}/{index}"), LONGEST_PAUSE).woken_by(subscription);
            loops.spawn_ticks(looping, worker);
        }
    }
}

/// A name for leases that no other process has: code tells leases apart by token, people by this name.
fn owner() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "execution".to_owned());
    format!("{host}/{}", std::process::id())
}
