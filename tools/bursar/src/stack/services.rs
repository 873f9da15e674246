//! Finding, migrating and starting the six services.
//!
//! Each is a program beside `bursar` itself (or in `BURSAR_BIN_DIR`), started with one configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use devstack::{Lifetime, Service, ServiceOptions};
use futures::future::join_all;

use super::config::{self, Facts};
use super::file::{Kind, Part};
use super::keys::Keys;
use super::launcher::Running;
use super::workers::{self, Workers};
use super::{Layout, databases, http_port};
use crate::progress::Step;

/// In the order in which they start; they stop in the opposite one, so that a caller goes before whom it calls.
pub const SERVICES: [&str; 6] =
    ["signer-gateway", "confirmation", "execution", "intent", "indexer", "worker-control"];

/// The one with a port of its own for JSON over HTTP.
const WITH_HTTP: &str = "worker-control";

pub(super) const DEVNET: &str = "tron-devnet";

const READY_LIMIT: Duration = Duration::from_secs(60);
/// A migration of a development database takes seconds; one that waits for a lock would wait for ever.
const MIGRATE_LIMIT: Duration = Duration::from_secs(120);
/// How often all ports are chosen anew because a stranger took one of them.
const PORT_TRIES: usize = 3;
const TAIL_LINES: usize = 15;

pub(super) type Programs = BTreeMap<&'static str, PathBuf>;

/// The servers that services need, and the keys they know each other by.
#[derive(Debug)]
pub(super) struct Backends<'a> {
    pub(super) keys: &'a Keys,
    pub(super) databases: BTreeMap<String, String>,
    pub(super) mongodb: String,
    pub(super) redis: String,
    pub(super) workers: Workers,
}

/// Writes the configurations, migrates, starts all six and waits until they serve.
pub(super) async fn start(
    layout: &Layout,
    lifetime: &Lifetime,
    programs: &Programs,
    backends: &Backends<'_>,
    ports: &mut BTreeMap<String, u16>,
) -> Result<Vec<Running>> {
    let mut tries_left = PORT_TRIES;
    loop {
        tries_left -= 1;
        for name in SERVICES.into_iter().map(str::to_owned).chain(backends.workers.port_names()) {
            let port = devstack::claim_port(ports.get(&name).copied())?;
            ports.insert(name, port);
        }
        let held = http_port::claim(layout, ports)?;
        let facts = Facts {
            layout,
            keys: backends.keys,
            databases: &backends.databases,
            mongodb: &backends.mongodb,
            redis: &backends.redis,
            ports,
            workers: &backends.workers,
        };
        config::write_all(&facts)?;
        migrate(layout, programs).await?;
        drop(held);
        match serve(layout, lifetime, programs, ports).await {
            Ok(running) => return Ok(running),
            Err(error)
                if tries_left > 0 && error.to_string().to_lowercase().contains("address already in use") => {}
            Err(error) => return Err(error),
        }
    }
}

async fn serve(
    layout: &Layout,
    lifetime: &Lifetime,
    programs: &Programs,
    ports: &BTreeMap<String, u16>,
) -> Result<Vec<Running>> {
    let start = async |service: &'static str| {
        let program = programs.get(service).with_context(|| format!("no program for {service}"))?;
        let port = ports.get(service).copied().with_context(|| format!("no port for {service}"))?;
        layout.rotate_log(service);
        let config = layout.config(service).display().to_string();
        let options = ServiceOptions {
            name: service.to_owned(),
            command: vec![program.display().to_string(), "serve".to_owned(), "--config".to_owned(), config],
            env: BTreeMap::new(),
            dir: layout.root().to_owned(),
            log: layout.log(service),
            url: format!("http://127.0.0.1:{port}"),
            lifetime: lifetime.clone(),
            ready_limit: READY_LIMIT,
        };
        let http = ports.get(workers::HTTP).filter(|_| service == WITH_HTTP);
        let http = http.map(|port| format!("http://127.0.0.1:{port}"));
        run(layout, options, port, http).await
    };
    let mut running = Vec::new();
    let mut failures = Vec::new();
    for result in join_all(SERVICES.into_iter().map(|service| Box::pin(start(service)))).await {
        match result {
            Ok(part) => running.push(part),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    if failures.is_empty() {
        return Ok(running);
    }
    for part in &mut running {
        part.process.stop().await?;
    }
    Err(anyhow!(failures.join("\n\n")))
}

/// Starts a service again as its part records it.
pub(super) async fn start_again(
    layout: &Layout,
    lifetime: Lifetime,
    name: &str,
    part: &Part,
) -> Result<Running> {
    layout.rotate_log(name);
    let options = ServiceOptions {
        name: name.to_owned(),
        command: part.command.clone(),
        env: part.env.clone(),
        dir: layout.root().to_owned(),
        log: part.log.clone(),
        url: part.url.clone(),
        lifetime,
        ready_limit: READY_LIMIT,
    };
    let port = part.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    run(layout, options, port, part.http.clone()).await
}

async fn run(layout: &Layout, options: ServiceOptions, port: u16, http: Option<String>) -> Result<Running> {
    let step = Step::new(&options.name);
    let started = Service::start(&options).await;
    let ServiceOptions { name, url, .. } = options;
    let process = started.with_context(|| {
        format!("{name} did not start (its configuration: {})", layout.config(&name).display())
    })?;
    step.done(format_args!("ready on 127.0.0.1:{port}"));
    Ok(Running { name, kind: Kind::Service, url, http, port, process: process.into_process() })
}

/// Every service's schema, all at once: each has a database of its own.
async fn migrate(layout: &Layout, programs: &Programs) -> Result<()> {
    let step = Step::new("databases");
    // The indexer has no schema to bring up to date: MongoDB takes documents as they come.
    let all = programs
        .iter()
        .filter(|(service, _)| !["indexer", DEVNET].contains(service))
        .map(|(service, program)| migrate_one(layout, service, program));
    let failures: Vec<String> =
        join_all(all).await.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if !failures.is_empty() {
        bail!(failures.join("\n\n"));
    }
    step.done(format_args!("{} migrated", databases::DATABASES.len()));
    Ok(())
}

async fn migrate_one(layout: &Layout, service: &str, program: &Path) -> Result<()> {
    let config = layout.config(service);
    let mut command = tokio::process::Command::new(program);
    command.args(["migrate", "--config"]).arg(&config).current_dir(layout.root()).stdin(Stdio::null());
    command.kill_on_drop(true);
    let finished = tokio::time::timeout(MIGRATE_LIMIT, command.output()).await;
    let output = finished
        .with_context(|| format!("migrating {service} was not finished after {} s", MIGRATE_LIMIT.as_secs()))?
        .with_context(|| format!("cannot run {}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
    bail!(
        "migrating {service} failed ({}); fix the cause, then `bursar up` tries again:\n{tail}",
        output.status
    )
}

/// The programs of the services and of the development network; all that are missing are named at once.
pub(super) fn programs() -> Result<Programs> {
    let dir = match std::env::var_os("BURSAR_BIN_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            let own = std::env::current_exe().context("cannot tell where bursar itself lies")?;
            own.parent().map(Path::to_owned).context("bursar lies in no directory")?
        }
    };
    let dir = dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))?;
    let names = || SERVICES.into_iter().chain([DEVNET]);
    let missing: Vec<&str> = names().filter(|name| !dir.join(name).is_file()).collect();
    if !missing.is_empty() {
        bail!(
            "no {} in {}; build them with `cargo build --workspace --bins`, or name their directory in BURSAR_BIN_DIR",
            missing.join(", "),
            dir.display()
        );
    }
    Ok(names().map(|name| (name, dir.join(name))).collect())
}
