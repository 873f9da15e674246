//! Which sources run in this process: all sources of the store that are not paused, as they are added and changed. Each has as
//! many collectors as it may read ranges at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use worker::{KeyedLoops, Loops, Supervisor, Tick as _, TickOutcome};

use super::collector::Collector;
use super::context::SourceContext;
use super::fault::Fatal;
use crate::config::{CollectConfig, Config};
use crate::legacy;
use crate::node::{CheckError, Nodes, Reader};
use crate::range::RangeRepo;
use crate::source::{Source, SourceApp, SourceError, SourceRepo};
use crate::store::{Store, StoreError};

/// How often new and changed sources are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause before nodes that failed their check are checked again.
const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// Why the configured sources cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigureError {
    #[error(transparent)]
    Legacy(#[from] legacy::LegacyError),
    #[error("source {name}: {source}")]
    Source { name: String, source: SourceError },
}

/// Stores and checks the sources of the configuration. The process does not start with a mistake here.
pub(crate) async fn configure(store: &Store, config: &Config) -> Result<(), ConfigureError> {
    let mut specs = config.sources.clone();
    if let Some(variables) = &config.fee_collector {
        specs.push(legacy::source(variables)?);
    }
    let app = SourceApp::new(store.clone());
    for spec in specs {
        let name = spec.name.clone();
        app.add(spec).await.map_err(|source| ConfigureError::Source { name, source })?;
    }
    Ok(())
}

/// Keeps the collectors of all sources running. A changed source starts anew, because its nodes may have changed.
pub(crate) fn supervisor(store: Store, config: CollectConfig) -> Supervisor<Sources> {
    let worker = config.worker_id.clone().unwrap_or_else(worker_name);
    let sources = Sources { repo: SourceRepo::new(store.clone()), store, config, worker };
    Supervisor::new(sources, POLL_INTERVAL).restarting_on_change()
}

/// A name for this process's workers that shows where they run.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}-{}", if host.is_empty() { "indexer" } else { host }, std::process::id())
}

#[derive(Debug)]
pub(crate) struct Sources {
    store: Store,
    repo: SourceRepo,
    config: CollectConfig,
    worker: String,
}

impl KeyedLoops for Sources {
    type Key = String;
    type Settings = Source;
    type Error = StoreError;

    async fn wanted(&mut self) -> Result<BTreeMap<String, Source>, StoreError> {
        let sources = self.store.retry("list sources", || self.repo.all()).await?;
        let active = sources.into_iter().filter(|source| !source.spec.paused);
        Ok(active.map(|source| (source.name().to_owned(), source)).collect())
    }

    fn start(&mut self, name: &String, source: watch::Receiver<Source>, loops: &mut Loops) {
        let source = source.borrow().clone();
        // The first collector prepares the source for all of them.
        let context: Arc<OnceCell<Arc<SourceContext>>> = Arc::default();
        for slot in 0..self.config.slots_of(&source.spec) {
            let (context, stop, source) = (Arc::clone(&context), loops.stop(), source.clone());
            let (store, config) = (self.store.clone(), self.config.clone());
            let worker = format!("{}/{slot}", self.worker);
            loops.spawn(format!("{name}/{slot}"), async move {
                let prepare = context.get_or_try_init(|| prepare(&store, source, &config));
                let Some(context) = stop.run_until_cancelled(prepare).await else { return Ok(()) };
                let collector = Collector::new(store.clone(), Arc::clone(context?), config.clone(), worker);
                Ok(collect(collector, stop).await?)
            });
        }
    }
}

async fn collect(mut collector: Collector, stop: CancellationToken) -> Result<(), Fatal> {
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

/// Checks the source's nodes and creates its cursor.
async fn prepare(store: &Store, source: Source, config: &CollectConfig) -> Result<Arc<SourceContext>, Fatal> {
    let nodes = checked_nodes(&source, config).await;
    // A process that died while it added the source may have left it without a cursor, and nothing would ever be read.
    let ranges = RangeRepo::new(store.clone());
    store.retry("create the cursor", || ranges.seed(&source)).await.map_err(Fatal)?;
    let (batch, slots) = (config.batch_of(&source.spec), config.slots_of(&source.spec));
    let reader = Reader::new(&source, nodes, batch, config.verify);
    tracing::info!(source = source.name(), slots, batch, "reading");
    Ok(Arc::new(SourceContext::new(store, source, reader, batch)))
}

/// The source's nodes, once they pass their check. Until then the source is checked again and again, without an effect on others.
async fn checked_nodes(source: &Source, config: &CollectConfig) -> Arc<Nodes> {
    loop {
        match check(source, config).await {
            Ok(nodes) => return Arc::new(nodes),
            Err(error) => {
                let error = rpc::error::chain(&error);
                tracing::error!(source = source.name(), error, "the source cannot be read");
                tokio::time::sleep(CHECK_PAUSE).await;
            }
        }
    }
}

/// The startup check: the nodes' chain id, and code at the contract.
async fn check(source: &Source, config: &CollectConfig) -> Result<Nodes, CheckError> {
    let nodes = Nodes::new(source.chain_id(), &source.spec.nodes, config.node_timeout())?;
    nodes.check(source.contract).await?;
    Ok(nodes)
}
