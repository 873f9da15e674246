//! The slots of one source: as many collectors as it may read ranges at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::{Tick as _, TickOutcome};

use super::collector::{Collector, Reading};
use super::fault::Fatal;
use crate::config::CollectConfig;
use crate::node::{CheckError, Nodes, Reader};
use crate::range::RangeRepo;
use crate::source::Source;
use crate::store::Store;

/// Pause before nodes that failed their check are asked again.
const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// Runs a source until `stop`. The error means that the store is gone for longer than its retries last.
pub(super) async fn run(
    store: Store,
    source: Source,
    config: CollectConfig,
    worker: String,
    stop: CancellationToken,
) -> Result<(), Fatal> {
    let Some(nodes) = stop.run_until_cancelled(checked(&source, &config)).await else { return Ok(()) };
    // A process that died while it added the source may have left it without a cursor: nothing would ever be read.
    let ranges = RangeRepo::new(store.clone());
    store.retry("place the cursor", || ranges.seed(&source)).await.map_err(Fatal)?;
    let batch =
        u64::from(if source.spec.batch_size == 0 { config.batch_size } else { source.spec.batch_size });
    let slots = if source.spec.concurrency == 0 { config.concurrency } else { source.spec.concurrency };
    let reader = Reader::new(&source, nodes, batch, config.verify);
    tracing::info!(source = source.name(), slots, batch, "reading");
    let reading = Arc::new(Reading::new(&store, source.clone(), reader, batch));
    let mut tasks = JoinSet::new();
    for slot in 0..slots {
        let name = format!("{worker}/{slot}");
        let collector = Collector::new(store.clone(), Arc::clone(&reading), config.clone(), name);
        tasks.spawn(slot_loop(collector, stop.child_token()));
    }
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(fatal)) => outcome = Err(fatal),
            Err(panic) => {
                let text = format!("a worker of {} panicked: {panic}", source.name());
                outcome = Err(Fatal(crate::store::StoreError::Damaged(text)));
            }
        }
        if outcome.is_err() {
            // The others finish what they hold; a source with half of its workers would look well and be slow.
            stop.cancel();
        }
    }
    tracing::info!(source = source.name(), "stopped reading");
    outcome
}

async fn slot_loop(mut collector: Collector, stop: CancellationToken) -> Result<(), Fatal> {
    while !stop.is_cancelled() {
        match collector.tick().await? {
            TickOutcome::Worked => {}
            TickOutcome::Idle { next } => {
                let pause = next.unwrap_or_else(|| collector.pause());
                stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            }
        }
    }
    Ok(())
}

/// The source's nodes, once they pass their check. A source whose nodes do not keeps asking and troubles nobody else.
async fn checked(source: &Source, config: &CollectConfig) -> Arc<Nodes> {
    loop {
        match check(source, config).await {
            Ok(nodes) => return nodes,
            Err(error) => {
                tracing::error!(
                    source = source.name(),
                    error = rpc::error::chain(&error),
                    "the source cannot be read"
                );
                tokio::time::sleep(CHECK_PAUSE).await;
            }
        }
    }
}

/// The startup check: the node's chain id, and code at the contract.
pub(super) async fn check(source: &Source, config: &CollectConfig) -> Result<Arc<Nodes>, CheckError> {
    let nodes = Nodes::new(source.chain_id(), &source.spec.nodes, config.node_timeout())?;
    nodes.check(source.contract).await?;
    Ok(Arc::new(nodes))
}
