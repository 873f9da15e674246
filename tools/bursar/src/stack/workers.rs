//! Who runs the workers of a development stack: the services themselves, or the orchestrator as processes of their own.
//!
//! Owns the worker file and the few settings by which services and orchestrator agree on it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use toml::{Table, Value};

use super::config::{Facts, set};
use super::layout::write_private;
use super::services::Programs;
use super::{BSC, Layout, TRON};

/// The name under which the port of worker control's JSON API is kept.
pub(super) const HTTP: &str = "worker-control-http";
/// Below the time after which the launcher kills a service that does not stop.
const GRACE_MS: i64 = 10_000;

/// Where workers run.
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
    /// Whether workers stop when the orchestrator dies without a word, as they must when the stack dies with its launcher.
    pub(super) die_with_orchestrator: bool,
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
            set(table, section, "data_dir", facts.layout.root().join(".data").display().to_string());
            set(table, section, "shutdown_grace_ms", GRACE_MS);
            let orphans = if facts.workers.die_with_orchestrator { "exit" } else { "stay" };
            set(table, section, "orphans", orphans);
        }
        _ => {}
    }
}

/// Writes the worker file; an empty one when the services work themselves.
pub(super) fn write(facts: &Facts<'_>) -> Result<()> {
    let mut workers: Vec<Value> = Vec::new();
    if facts.workers.place == Place::Orchestrated {
        for chain in [BSC, TRON] {
            workers.push(entry(
                facts,
                &format!("execution-withdrawal-{chain}"),
                "execution",
                &["--chain", chain, "--queue", "withdrawal"],
            )?);
            workers.push(entry(
                facts,
                &format!("confirmation-{chain}"),
                "confirmation",
                &["--chain", chain],
            )?);
        }
        workers.push(entry(facts, "indexer", "indexer", &[])?);
    }
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

fn entry(facts: &Facts<'_>, id: &str, service: &str, arguments: &[&str]) -> Result<Value> {
    let program = facts.workers.programs.get(service).with_context(|| format!("no program for {service}"))?;
    let config = facts.layout.config(service).display().to_string();
    let mut command = vec![program.display().to_string(), "work".to_owned()];
    command.extend(arguments.iter().map(|word| (*word).to_owned()));
    command.extend(["--config".to_owned(), config]);
    let mut worker = Table::new();
    set(&mut worker, &[], "id", id);
    set(&mut worker, &[], "command", command.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(Value::Table(worker))
}
