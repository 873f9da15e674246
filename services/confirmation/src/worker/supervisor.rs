//! Runs one loop for each known chain, with the supervisor of `libs/worker`.
//!
//! A loop whose tick fails goes on after a pause, so that a chain whose nodes are away does not affect the others.

use std::collections::BTreeMap;
use std::time::Duration;

use ::worker::supervisor::{KeyedLoops, LoopEnded, Loops, Supervisor};
use db::Waker;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use types::ChainName;

use super::chain_loop::{ChainLoop, LoopContext, TickOutcome};
use super::edge::{self, EdgeError};
use crate::chains::{self, Settings};
use crate::error::Error;
use crate::heads::{self, NodeStatus};
use crate::wake;

/// How often chains are read when no notification says that they changed.
const REREAD: Duration = Duration::from_secs(5);
/// The pause after a failure, so that a database that is starting is not flooded.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

struct ChainLoops {
    context: LoopContext,
    waker: Waker,
    /// Other chains are followed by other processes.
    only: Option<ChainName>,
}

impl KeyedLoops for ChainLoops {
    type Key = ChainName;
    type Settings = Settings;
    type Error = Error;

    async fn wanted(&mut self) -> Result<BTreeMap<ChainName, Settings>, Error> {
        let all = chains::repo::list(&self.context.pool).await?;
        let ours = |settings: &Settings| self.only.as_ref().is_none_or(|only| *only == settings.name);
        Ok(all.into_iter().filter(ours).map(|settings| (settings.name.clone(), settings)).collect())
    }

    fn start(&mut self, chain: &ChainName, settings: watch::Receiver<Settings>, loops: &mut Loops) {
        let (context, waker, stop) = (self.context.clone(), self.waker.clone(), loops.stop());
        loops.spawn(format!("chain/{chain}"), async move {
            drive(context, settings, waker, stop).await;
            Ok(())
        });
    }
}

/// Runs until stopped; then every loop releases its chain. With `only`, other chains are left to other processes.
///
/// # Errors
/// When a loop panics. The process ends with it, and its supervisor starts it again.
pub async fn run(
    context: LoopContext,
    waker: Waker,
    only: Option<ChainName>,
    stop: CancellationToken,
) -> Result<(), LoopEnded> {
    let chains = waker.subscribe(wake::CHAINS);
    let loops = ChainLoops { context, waker, only };
    Supervisor::new(loops, REREAD).woken_by(chains).failing_with_loops().run(stop).await
}

async fn drive(
    context: LoopContext,
    mut settings: watch::Receiver<Settings>,
    waker: Waker,
    stop: CancellationToken,
) {
    let first = settings.borrow_and_update().clone();
    let mut new_watches = waker.subscribe(&wake::watches(&first.name));
    let (poll, node_timeout) = (context.follow.poll, context.follow.node_timeout);
    let Some(mut chain_loop) = begin(&context, &mut settings, &stop).await else { return };
    let mut trouble = String::new();
    while !stop.is_cancelled() {
        if settings.has_changed().unwrap_or(false) {
            let new = settings.borrow_and_update().clone();
            match edge::build(&new, node_timeout) {
                Ok(edge) => chain_loop.replace(new, edge),
                Err(error) => {
                    tracing::error!(chain = %new.name, %error, "new settings refused, old ones kept")
                }
            }
        }
        // Dropping a tick half-way is safe, because it is the same as a crash between two transactions.
        let Some(outcome) = stop.run_until_cancelled(chain_loop.tick()).await else { break };
        let pause = match outcome {
            Ok(TickOutcome::Busy) => Duration::ZERO,
            Ok(TickOutcome::Idle | TickOutcome::NotOurs) => {
                trouble.clear();
                poll
            }
            Err(error) => {
                report(&first.name, &error, &mut trouble);
                poll.max(FAILED_PAUSE)
            }
        };
        if !pause.is_zero() {
            let _ = stop.run_until_cancelled(new_watches.wait(pause)).await;
        }
    }
    if let Err(error) = chain_loop.release().await {
        tracing::warn!(chain = %first.name, error = rpc::error::chain(&error), "the chain was not released; its lease will expire");
    }
}

/// Waits until there are settings that can be followed.
async fn begin(
    context: &LoopContext,
    settings: &mut watch::Receiver<Settings>,
    stop: &CancellationToken,
) -> Option<ChainLoop> {
    loop {
        let now = settings.borrow_and_update().clone();
        match edge::build(&now, context.follow.node_timeout) {
            Ok(edge) => return Some(ChainLoop::new(context.clone(), now, edge)),
            Err(error) => refuse(context, &now, &error).await,
        }
        match stop.run_until_cancelled(settings.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// Stores on every node why the chain is not followed.
async fn refuse(context: &LoopContext, settings: &Settings, error: &EdgeError) {
    tracing::error!(chain = %settings.name, %error, "the chain cannot be followed");
    let nodes: Vec<NodeStatus> = chains::domain::node_names(&settings.nodes)
        .into_iter()
        .map(|node| NodeStatus { node, number: 0, hash: None, problem: error.to_string() })
        .collect();
    let written = async {
        let mut tx = db::begin(&context.pool).await?;
        heads::repo::save_nodes_in(&mut tx, &settings.name, &nodes).await?;
        tx.commit().await?;
        Ok::<(), Error>(())
    };
    if let Err(error) = written.await {
        tracing::warn!(chain = %settings.name, error = rpc::error::chain(&error), "cannot store why the chain is not followed");
    }
}

/// Logs a failure once, and again when it changes.
fn report(chain: &ChainName, error: &Error, trouble: &mut String) {
    let text = rpc::error::chain(error);
    metrics::counter!("bursar_confirmation_loop_errors_total", "chain" => chain.to_string()).increment(1);
    if *trouble == text {
        tracing::debug!(%chain, error = text, "still failing");
    } else {
        tracing::warn!(%chain, error = text, "following the chain failed; it is retried");
        *trouble = text;
    }
}
