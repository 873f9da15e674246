//! Starts a loop for each chain that is known and hands it new settings.
//!
//! Owns the tasks. A loop that fails goes on after a pause: a chain whose nodes are away must not take the others along.

use std::collections::BTreeMap;
use std::time::Duration;

use db::{Wake, Waker};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::ChainName;

use super::chain_loop::{ChainLoop, LoopContext, TickOutcome};
use super::edge::{self, EdgeError};
use crate::chains::{self, Settings};
use crate::error::Error;
use crate::wake;

/// How often chains are read when nobody says that they changed.
const REREAD: Duration = Duration::from_secs(5);
/// After a failure; long enough not to drown a database that is starting.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// A loop ended by itself, which it never should.
#[derive(Debug, thiserror::Error)]
#[error("a loop over a chain broke down")]
pub struct LoopDied(#[source] tokio::task::JoinError);

/// Runs until told to stop; then every loop gives its chain up. With `only`, other chains are left to others.
pub async fn run(
    context: LoopContext,
    waker: Waker,
    only: Option<ChainName>,
    stop: CancellationToken,
) -> Result<(), LoopDied> {
    let mut sleeper = waker.subscribe(wake::CHAINS);
    let mut senders: BTreeMap<ChainName, watch::Sender<Settings>> = BTreeMap::new();
    let mut loops: JoinSet<()> = JoinSet::new();
    while !stop.is_cancelled() {
        match chains::repo::list(&context.pool).await {
            Ok(all) => {
                let ours = |settings: &Settings| only.as_ref().is_none_or(|only| *only == settings.name);
                for settings in all.into_iter().filter(ours) {
                    match senders.get(&settings.name) {
                        Some(sender) => {
                            sender.send_if_modified(|known| {
                                let newer = settings.revision > known.revision;
                                if newer {
                                    *known = settings;
                                }
                                newer
                            });
                        }
                        None => {
                            let (sender, receiver) = watch::channel(settings.clone());
                            senders.insert(settings.name.clone(), sender);
                            loops.spawn(drive(context.clone(), receiver, waker.clone(), stop.clone()));
                        }
                    }
                }
            }
            Err(error) => {
                tracing::warn!(error = rpc::error::chain(&error), "cannot read the chains; going on")
            }
        }
        tokio::select! {
            woken = sleeper.wait(REREAD) => if woken == Wake::Closed { break },
            () = stop.cancelled() => break,
            Some(ended) = loops.join_next() => ended.map_err(LoopDied)?,
        }
    }
    while let Some(ended) = loops.join_next().await {
        ended.map_err(LoopDied)?;
    }
    Ok(())
}

/// Follows one chain until told to stop.
async fn drive(
    context: LoopContext,
    mut settings: watch::Receiver<Settings>,
    waker: Waker,
    stop: CancellationToken,
) {
    let first = settings.borrow_and_update().clone();
    let mut sleeper = waker.subscribe(&wake::watches(&first.name));
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
        // Dropping a tick half-way is safe: it is a crash between two transactions.
        let Some(ticked) = stop.run_until_cancelled(chain_loop.tick()).await else { break };
        let pause = match ticked {
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
            let _ = stop.run_until_cancelled(sleeper.wait(pause)).await;
        }
    }
    if let Err(error) = chain_loop.release().await {
        tracing::warn!(chain = %first.name, error = rpc::error::chain(&error), "the chain was not given up; its lease will end");
    }
}

/// Waits for settings that can be followed.
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

/// Shows on every node why the chain is not followed.
async fn refuse(context: &LoopContext, settings: &Settings, error: &EdgeError) {
    tracing::error!(chain = %settings.name, %error, "the chain cannot be followed");
    let nodes: Vec<crate::heads::NodeStatus> = chains::domain::node_names(&settings.nodes)
        .into_iter()
        .map(|node| crate::heads::NodeStatus { node, number: 0, hash: None, problem: error.to_string() })
        .collect();
    let written = async {
        let mut tx = db::begin(&context.pool).await?;
        crate::heads::repo::save_nodes_in(&mut tx, &settings.name, &nodes).await?;
        tx.commit().await?;
        Ok::<(), Error>(())
    };
    if let Err(error) = written.await {
        tracing::warn!(chain = %settings.name, error = rpc::error::chain(&error), "cannot write that down");
    }
}

/// Says what is wrong once, and again when it is something else.
fn report(chain: &ChainName, error: &Error, trouble: &mut String) {
    let text = rpc::error::chain(error);
    metrics::counter!("bursar_confirmation_loop_errors_total", "chain" => chain.to_string()).increment(1);
    if *trouble == text {
        tracing::debug!(%chain, error = text, "still failing");
    } else {
        tracing::warn!(%chain, error = text, "following the chain failed; going on");
        *trouble = text;
    }
}
