//! Keeps the right loops running: for each chain that is ours to work on, its withdrawal loops, its resends, its
//! lanes and its balances. Chains come and go with the catalogue, without a restart.
//!
//! Invariant: a loop that ends without being told to is started again and said to have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use db::Waker;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::ChainName;
use worker::{Loop, Tick};

use super::WorkerConfig;
use super::balances::BalanceWorker;
use super::lanes::LaneWorker;
use super::resend::ResendWorker;
use super::withdrawal::WithdrawalWorker;
use crate::chains::Chains;
use crate::job::{JobQueue, Jobs};
use crate::signer::Signer;
use crate::wallet::Wallets;

/// How often the catalogue is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The longest a withdrawal loop sleeps; it is woken when there is work.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

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

/// Which chains this process works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    Only(Vec<ChainName>),
}

impl Scope {
    fn includes(&self, chain: &ChainName) -> bool {
        match self {
            Self::All => true,
            Self::Only(chains) => chains.contains(chain),
        }
    }
}

#[derive(Debug)]
struct Running {
    stop: CancellationToken,
    loops: Vec<(String, JoinHandle<()>)>,
}

/// Starts and stops loops until told to stop, then lets the running ticks finish.
pub async fn run(parts: Parts, scope: Scope, stop: CancellationToken) {
    let mut running: BTreeMap<ChainName, Running> = BTreeMap::new();
    while !stop.is_cancelled() {
        match parts.chains.reload().await {
            Ok(chains) => {
                let wanted: Vec<ChainName> = chains
                    .iter()
                    // Disabled ones too: what is under way there goes on; new payments are held up when they are priced.
                    .filter(|chain| scope.includes(&chain.settings.name))
                    .map(|chain| chain.settings.name.clone())
                    .collect();
                reconcile(&parts, &wanted, &mut running, &stop).await;
            }
            Err(error) => {
                tracing::warn!(error = %error, "the catalogue cannot be read; workers go on as they are")
            }
        }
        stop.run_until_cancelled(tokio::time::sleep(EVERY)).await;
    }
    for (_, chain) in running {
        end(chain).await;
    }
}

async fn reconcile(
    parts: &Parts,
    wanted: &[ChainName],
    running: &mut BTreeMap<ChainName, Running>,
    stop: &CancellationToken,
) {
    let gone: Vec<ChainName> = running.keys().filter(|chain| !wanted.contains(chain)).cloned().collect();
    for chain in gone {
        tracing::info!(%chain, "chain no longer worked on");
        if let Some(chain) = running.remove(&chain) {
            end(chain).await;
        }
    }
    for chain in wanted {
        let ended = running.get(chain).and_then(|on| on.loops.iter().find(|(_, task)| task.is_finished()));
        if let Some((name, _)) = ended {
            tracing::error!(worker = name, "a worker ended by itself; starting again");
            metrics::counter!("bursar_execution_workers_restarted_total").increment(1);
            if let Some(chain) = running.remove(chain) {
                end(chain).await;
            }
        }
        if !running.contains_key(chain) {
            running.insert(chain.clone(), begin(parts, chain, stop));
        }
    }
}

fn begin(parts: &Parts, chain: &ChainName, stop: &CancellationToken) -> Running {
    crate::metrics::begin(chain);
    let stop = stop.child_token();
    let mut loops = Vec::new();
    let queue = JobQueue::Withdrawal.on(chain);
    for index in 0..parts.config.concurrency.max(1) {
        let owner = format!("{}-{index}", owner());
        let edges = (parts.chains.clone(), parts.jobs.clone(), parts.signer.clone());
        let worker = WithdrawalWorker::new(chain.clone(), owner, edges, Arc::clone(&parts.config));
        let sleeper = parts.waker.subscribe(queue.name());
        let round = Loop::new(format!("withdrawal/{chain}/{index}"), LONGEST_SLEEP).woken_by(sleeper);
        loops.push(start(format!("withdrawal/{chain}/{index}"), round, worker, &stop));
    }
    let pool = parts.jobs.hot().clone();
    let resend =
        ResendWorker::new(pool.clone(), chain.clone(), parts.chains.clone(), Arc::clone(&parts.config));
    loops.push(plain("resend", chain, ResendWorker::EVERY, resend, &stop));
    let lanes = LaneWorker::new(pool.clone(), chain.clone(), parts.chains.clone(), parts.gap_patience);
    loops.push(plain("lanes", chain, LaneWorker::EVERY, lanes, &stop));
    let balances =
        BalanceWorker::new(pool, chain.clone(), parts.wallets.clone(), parts.config.balances_every);
    loops.push(plain("balances", chain, BalanceWorker::EVERY, balances, &stop));
    Running { stop, loops }
}

fn plain(
    name: &str,
    chain: &ChainName,
    every: Duration,
    worker: impl Tick + 'static,
    stop: &CancellationToken,
) -> (String, JoinHandle<()>) {
    let name = format!("{name}/{chain}");
    start(name.clone(), Loop::new(name, every), worker, stop)
}

fn start(
    name: String,
    round: Loop,
    worker: impl Tick + 'static,
    stop: &CancellationToken,
) -> (String, JoinHandle<()>) {
    (name, tokio::spawn(round.run(worker, stop.clone())))
}

async fn end(chain: Running) {
    chain.stop.cancel();
    for (name, task) in chain.loops {
        if let Err(error) = task.await {
            tracing::error!(worker = name, error = %error, "a worker broke down");
        }
    }
}

/// A name for leases that no other process has: leases are told apart by token, people by this.
fn owner() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "execution".to_owned());
    format!("{host}/{}", std::process::id())
}
