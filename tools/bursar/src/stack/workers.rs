//! Who runs the workers of a development stack: the services themselves, or the orchestrator as processes of their own.
//!
//! Owns the worker file, the few settings by which services and orchestrator agree on it, and where each worker shows its health
//! and metrics.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use toml::{Table, Value};

use super::config::{Facts, set};
use super::file::WorkerPart;
use super::layout::write_private;
use super::services::Programs;
use super::{BSC, Layout, TRON};

/// The name under which the port of worker control's JSON API is kept.
pub(super) const HTTP: &str = "worker-control-http";
/// Below the time after which the launcher kills a service that does not stop.
const GRACE_MS: i64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// Inside the services; killing a service kills its workers
    Inline,
    /// As processes under the orchestrator, which starts them again when they end
    Orchestrated,
}

/// What configurations need to know of the workers.
#[derive(Debug, Clone)]
pub struct Workers {
    pub(super) place: Place,
    pub(super) programs: Programs,
    /// Whether workers stop when the orchestrator dies without notice, as they must when the stack dies with its launcher.
    pub(super) die_with_orchestrator: bool,
}

impl Workers {
    /// What the orchestrator runs; nothing when the services work themselves.
    fn configured(&self) -> Vec<ConfiguredWorker> {
        if self.place == Place::Inline {
            return Vec::new();
        }
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let of_chain = |chain: &str| {
            [
                ConfiguredWorker {
                    id: format!("execution-withdrawal-{chain}"),
                    service: "execution",
                    arguments: words(&["--chain", chain, "--queue", "withdrawal"]),
                },
                ConfiguredWorker {
                    id: format!("confirmation-{chain}"),
                    service: "confirmation",
                    arguments: words(&["--chain", chain]),
                },
            ]
        };
        let indexer =
            ConfiguredWorker { id: "indexer".to_owned(), service: "indexer", arguments: Vec::new() };
        [BSC, TRON].into_iter().flat_map(of_chain).chain([indexer]).collect()
    }

    /// The names under which the ports of health and metrics are kept, one for each worker.
    pub(super) fn port_names(&self) -> Vec<String> {
        self.configured().iter().map(ConfiguredWorker::port_name).collect()
    }

    /// Where each worker shows health and metrics, by its id.
    pub(super) fn parts(&self, ports: &BTreeMap<String, u16>) -> BTreeMap<String, WorkerPart> {
        let part = |worker: ConfiguredWorker| {
            let url = format!("http://127.0.0.1:{}", ports.get(&worker.port_name())?);
            Some((worker.id, WorkerPart { url }))
        };
        self.configured().into_iter().filter_map(part).collect()
    }
}

#[derive(Debug)]
struct ConfiguredWorker {
    id: String,
    service: &'static str,
    arguments: Vec<String>,
}

impl ConfiguredWorker {
    /// Not the id alone: a worker may be called as a service is.
    fn port_name(&self) -> String {
        format!("worker/{}", self.id)
    }
}

/// Sets what a service needs to know of it.
pub(super) fn configure(facts: &Facts<'_>, service: &str, table: &mut Table) {
    let orchestrated = facts.workers.place == Place::Orchestrated;
    match service {
        "execution" | "confirmation" if orchestrated => set(table, &["workers"], "enabled", false),
        "indexer" if orchestrated => set(table, &["collect"], "enabled", false),
        "worker-control" => {
            let port = facts.ports.get(HTTP).copied().unwrap_or(0);
            set(table, &["http"], "listen", format!("127.0.0.1:{port}"));
            let section = &["orchestrator"];
            set(table, section, "workers_file", file(facts.layout).display().to_string());
            set(table, section, "data_dir", facts.layout.worker_data().display().to_string());
            set(table, section, "shutdown_grace_ms", GRACE_MS);
            let orphans = if facts.workers.die_with_orchestrator { "exit" } else { "stay" };
            set(table, section, "orphans", orphans);
        }
        _ => {}
    }
}

/// Writes the worker file; an empty one when the services work themselves.
pub(super) fn write(facts: &Facts<'_>) -> Result<()> {
    let configured = facts.workers.configured();
    let workers: Vec<Value> = configured.iter().map(|worker| table(facts, worker)).collect::<Result<_>>()?;
    let mut table = Table::new();
    set(&mut table, &[], "workers", workers);
    let text = format!(
        "# Written by `bursar up`; changes are overwritten. `bursar worker reload` takes them until then.\n\n{}",
        toml::to_string_pretty(&table)?
    );
    write_private(&file(facts.layout), &text)
}

fn file(layout: &Layout) -> PathBuf {
    layout.config("workers")
}

fn table(facts: &Facts<'_>, worker: &ConfiguredWorker) -> Result<Value> {
    let service = worker.service;
    let program = facts.workers.programs.get(service).with_context(|| format!("no program for {service}"))?;
    let config = facts.layout.config(service).display().to_string();
    let listen = format!("127.0.0.1:{}", facts.port(&worker.port_name())?);
    let mut command = vec![program.display().to_string(), "work".to_owned()];
    command.extend(worker.arguments.iter().cloned());
    command.extend(["--listen".to_owned(), listen, "--config".to_owned(), config]);
    let mut table = Table::new();
    set(&mut table, &[], "id", worker.id.as_str());
    set(&mut table, &[], "command", command.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(Value::Table(table))
}
