//! Which sources run in this process: all sources of the store that are not paused, as they are added and changed.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fault::Fatal;
use super::runner;
use crate::config::{CollectConfig, Config};
use crate::legacy;
use crate::source::{Source, SourceApp, SourceError, SourceRepo, SourceSpec};
use crate::store::Store;

/// How often new and changed sources are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Pause before a source whose workers ended is started again, where the process goes on without them.
const RESTART: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Running {
    spec: SourceSpec,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Fatal>>,
}

/// Starts and stops the runners of sources.
#[derive(Debug)]
pub(crate) struct Supervisor {
    store: Store,
    sources: SourceRepo,
    config: CollectConfig,
    worker: String,
    /// Whether the process ends with a worker that cannot go on.
    ends_with_workers: bool,
}

impl Supervisor {
    pub(crate) fn new(store: Store, config: CollectConfig, ends_with_workers: bool) -> Self {
        let worker = config.worker_id.clone().unwrap_or_else(worker_name);
        Self { sources: SourceRepo::new(store.clone()), store, config, worker, ends_with_workers }
    }

    /// Stores and checks the sources that the configuration names. A mistake here is a reason not to start.
    pub(crate) async fn configure(&self, config: &Config) -> Result<(), ConfigureError> {
        let mut specs = config.sources.clone();
        if let Some(variables) = &config.fee_collector {
            specs.push(legacy::source(variables)?);
        }
        let app = SourceApp::new(self.store.clone());
        for spec in specs {
            let name = spec.name.clone();
            app.add(spec).await.map_err(|source| ConfigureError::Source { name, source })?;
        }
        Ok(())
    }

    /// Runs until `stop`, then until every worker has finished what it holds.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Fatal> {
        let mut running: BTreeMap<String, Running> = BTreeMap::new();
        let mut outcome = Ok(());
        while !stop.is_cancelled() {
            let listed = self.store.retry("list sources", || self.sources.all());
            match stop.run_until_cancelled(listed).await {
                None => break,
                Some(Ok(sources)) => self.adjust(&mut running, sources, &stop).await,
                // The workers have retries of their own; new sources can wait.
                Some(Err(error)) => {
                    tracing::warn!(error = rpc::error::chain(&error), "sources could not be listed");
                }
            }
            if let Err(fatal) = self.reap(&mut running).await {
                if self.ends_with_workers {
                    outcome = Err(fatal);
                    break;
                }
                tracing::error!(error = rpc::error::chain(&fatal), "workers ended; they are started again");
                stop.run_until_cancelled(tokio::time::sleep(RESTART)).await;
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK)).await;
        }
        for one in running.values() {
            one.stop.cancel();
        }
        for (_, one) in running {
            // What a worker says while it is stopping changes nothing any more.
            let _ = one.task.await;
        }
        outcome
    }

    async fn adjust(
        &self,
        running: &mut BTreeMap<String, Running>,
        sources: Vec<Source>,
        stop: &CancellationToken,
    ) {
        let wanted: BTreeMap<String, Source> =
            sources.into_iter().filter(|s| !s.spec.paused).map(|s| (s.name().to_owned(), s)).collect();
        let outdated: Vec<String> = running
            .iter()
            .filter(|(name, one)| wanted.get(*name).is_none_or(|source| source.spec != one.spec))
            .map(|(name, _)| name.clone())
            .collect();
        for name in outdated {
            if let Some(one) = running.remove(&name) {
                one.stop.cancel();
                let _ = one.task.await;
            }
        }
        for (name, source) in wanted {
            running.entry(name).or_insert_with(|| {
                let (stop, spec) = (stop.child_token(), source.spec.clone());
                let run = runner::run(
                    self.store.clone(),
                    source,
                    self.config.clone(),
                    self.worker.clone(),
                    stop.clone(),
                );
                Running { spec, stop, task: tokio::spawn(run) }
            });
        }
    }

    /// Takes out the sources whose workers ended, and gives the first reason.
    async fn reap(&self, running: &mut BTreeMap<String, Running>) -> Result<(), Fatal> {
        let ended: Vec<String> =
            running.iter().filter(|(_, one)| one.task.is_finished()).map(|(name, _)| name.clone()).collect();
        let mut outcome = Ok(());
        for name in ended {
            let Some(one) = running.remove(&name) else { continue };
            match one.task.await {
                Ok(Ok(())) => {}
                Ok(Err(fatal)) => outcome = Err(fatal),
                Err(panic) => {
                    let text = format!("the runner of {name} panicked: {panic}");
                    outcome = Err(Fatal(crate::store::StoreError::Damaged(text)));
                }
            }
        }
        outcome
    }
}

/// Why the configured sources cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigureError {
    #[error(transparent)]
    Legacy(#[from] legacy::LegacyError),
    #[error("source {name}: {source}")]
    Source { name: String, source: SourceError },
}

/// A name for this process's workers that says where to look.
pub(crate) fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}-{}", if host.is_empty() { "indexer" } else { host }, std::process::id())
}
