//! The stack as a whole: started in order, watched, stopped in order.
//!
//! Invariants: in the foreground every part dies with the launcher, however that dies; `stack.json` appears when all parts
//! are ready and goes with them; one launcher at a time works on a data directory.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use devstack::{Identity, Lifetime, Process};
use nix::fcntl::Flock;

use super::file::{Kind, Part, StackFile, stop_plan};
use super::keys::{Keys, PEOPLE};
use super::services::{self, Backends};
use super::workers::{Place, Workers};
use super::{Layout, MONGODB, POSTGRES, REDIS, SERVICES, databases, dependencies, sweep};
use crate::progress::{Step, say};

const WATCH: Duration = Duration::from_millis(200);
const TAIL_LINES: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Parts die with the launcher.
    Foreground,
    /// Parts live on when the launcher has gone.
    Detached,
}

impl Mode {
    fn lifetime(self) -> Lifetime {
        match self {
            Mode::Foreground => Lifetime::Owned,
            Mode::Detached => Lifetime::Detached,
        }
    }
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) url: String,
    pub(super) http: Option<String>,
    pub(super) port: u16,
    pub(super) process: Process,
}

impl Running {
    fn part(&self) -> Part {
        let launch = self.process.launch();
        let identity = self.process.identity();
        Part {
            kind: self.kind,
            url: self.url.clone(),
            http: self.http.clone(),
            pid: identity.pid,
            started: identity.started,
            log: launch.log.clone(),
            command: launch.command.clone(),
            env: launch.env.clone(),
        }
    }
}

#[derive(Debug)]
pub struct Launcher {
    layout: Layout,
    mode: Mode,
    running: Vec<Running>,
    file: StackFile,
    /// Names of parts whose end has been reported.
    reported: Vec<String>,
    _lock: Flock<File>,
}

impl Launcher {
    /// Starts every part. What was started is stopped again when one of them fails.
    pub async fn start(layout: &Layout, lock: Flock<File>, mode: Mode, workers: Place) -> Result<Launcher> {
        let started = Box::pin(Self::start_all(layout, mode, workers)).await;
        let (running, file) = match started {
            Ok(started) => started,
            Err(error) => {
                stop_everything(layout).await.context("and what had been started could not be stopped")?;
                return Err(error);
            }
        };
        file.write(&layout.partial_file())?;
        Ok(Launcher { layout: layout.clone(), mode, running, file, reported: Vec::new(), _lock: lock })
    }

    async fn start_all(layout: &Layout, mode: Mode, place: Place) -> Result<(Vec<Running>, StackFile)> {
        let lifetime = mode.lifetime();
        // Before anything is started: without the services there is nothing to start the rest for.
        let programs = services::programs()?;
        let keys = Keys::keep(&layout.keys_file())?;
        let mut ports = layout.ports();
        let mut running = dependencies::start(layout, &lifetime, &programs, &mut ports).await?;
        layout.keep_ports(&ports)?;
        let url = |name: &str| {
            let part = running.iter().find(|part| part.name == name);
            part.map(|part| part.url.clone()).with_context(|| format!("{name} was not started"))
        };
        let mut databases = databases::create(&url(POSTGRES)?, &keys).await?;
        let workers =
            Workers { place, programs: programs.clone(), die_with_orchestrator: mode == Mode::Foreground };
        let backends = Backends {
            keys: &keys,
            databases: databases.clone(),
            mongodb: url(MONGODB)?,
            redis: url(REDIS)?,
            workers,
        };
        databases.insert("indexer".to_owned(), backends.mongodb.replacen("/?", "/indexer?", 1));
        running.extend(services::start(layout, &lifetime, &programs, &backends, &mut ports).await?);
        layout.keep_ports(&ports)?;
        let people = PEOPLE.iter().filter_map(|(name, _)| keys.people.get_key_value(*name));
        let file = StackFile {
            parts: running.iter().map(|part| (part.name.clone(), part.part())).collect(),
            workers: backends.workers.parts(&ports),
            databases,
            api_keys: people.map(|(name, key)| (name.clone(), key.clone())).collect(),
            data: layout.root().to_owned(),
            launcher: if mode == Mode::Foreground { Identity::of(std::process::id()) } else { None },
        };
        Ok((running, file))
    }

    pub fn file(&self) -> &StackFile {
        &self.file
    }

    /// Says to the world that the stack is ready: `stack.json` appears.
    pub fn publish(&self) -> Result<()> {
        self.file.write(&self.layout.stack_file())?;
        std::fs::remove_file(self.layout.partial_file()).ok();
        Ok(())
    }

    /// Reports every part that ends. Never returns by itself.
    pub async fn watch(&mut self) {
        loop {
            for part in &mut self.running {
                let Some(status) = part.process.exited() else { continue };
                if self.reported.contains(&part.name) {
                    continue;
                }
                self.reported.push(part.name.clone());
                let log = part.process.log();
                say(format_args!("{} ended ({status}); last lines of {}:", part.name, log.display()));
                say(devstack::tail(log, TAIL_LINES));
                if part.kind == Kind::Service {
                    let data = self.layout.root().display();
                    say(format_args!("start it again with: bursar up --data {data} --restart {}", part.name));
                }
            }
            tokio::time::sleep(WATCH).await;
        }
    }

    /// Starts the service named in the request file again; how it went is left for whoever asked.
    pub async fn serve_restart(&mut self) {
        let request = self.layout.restart_request();
        let Ok(name) = std::fs::read_to_string(&request) else { return };
        let failure = self.layout.restart_failure();
        std::fs::remove_file(&failure).ok();
        if let Err(error) = Box::pin(self.restart(name.trim())).await {
            let text = format!("{error:#}");
            say(&text);
            std::fs::write(&failure, text).ok();
        }
        // Removed last, because its absence tells the asker that the answer is there.
        std::fs::remove_file(&request).ok();
    }

    async fn restart(&mut self, name: &str) -> Result<()> {
        let part = self.file.service(name)?;
        if let Some(index) = self.running.iter().position(|running| running.name == name) {
            self.running[index].process.stop().await?;
            self.running.remove(index);
        }
        stop_strays(&self.layout, name).await?;
        let again = services::start_again(&self.layout, self.mode.lifetime(), name, &part).await?;
        self.reported.retain(|reported| reported != name);
        self.file.parts.insert(name.to_owned(), again.part());
        self.running.push(again);
        self.file.write(&self.layout.stack_file())
    }

    /// Services in reverse order, each within its drain limit, then what they depend on.
    pub async fn stop(mut self) -> Result<()> {
        let place = |name: &str| SERVICES.iter().position(|service| *service == name);
        self.running.sort_by_key(|part| place(&part.name));
        // Dependencies sort first, as they have no place; from the end on they come last.
        let mut failures = Vec::new();
        while let Some(mut part) = self.running.pop() {
            let step = Step::new(&part.name);
            match part.process.stop().await {
                Ok(()) => step.done("stopped"),
                Err(error) => failures.push(error.to_string()),
            }
        }
        stop_everything(&self.layout).await?;
        forget(&self.layout)?;
        if failures.is_empty() { Ok(()) } else { bail!(failures.join("\n")) }
    }
}

/// Starts one service of a detached stack again, as `stack.json` records it.
pub async fn restart_detached(layout: &Layout, file: &mut StackFile, name: &str) -> Result<()> {
    let part = file.service(name)?;
    part.identity().stop(name, &stop_plan(name)).await?;
    stop_strays(layout, name).await?;
    let again = services::start_again(layout, Lifetime::Detached, name, &part).await?;
    file.parts.insert(name.to_owned(), again.part());
    file.write(&layout.stack_file())
}

/// Ends copies of a service that somebody else has started on this directory.
async fn stop_strays(layout: &Layout, name: &str) -> Result<()> {
    for (part, identity) in sweep::running(layout) {
        if part == name {
            identity.stop(&part, &stop_plan(&part)).await?;
        }
    }
    Ok(())
}

/// Ends whatever runs on the directory, services first; the names of what was ended.
pub async fn stop_everything(layout: &Layout) -> Result<Vec<String>> {
    let mut parts = sweep::running(layout);
    parts.sort_by_key(|(name, _)| std::cmp::Reverse(SERVICES.iter().position(|service| service == name)));
    let mut stopped = Vec::new();
    for (name, identity) in parts {
        // Workers end with the orchestrator, before their turn comes.
        if !identity.is_alive() {
            continue;
        }
        let step = Step::new(&name);
        identity.stop(&name, &stop_plan(&name)).await?;
        step.done("stopped");
        stopped.push(name);
    }
    Ok(stopped)
}

/// A stack that does not run has no `stack.json`: a script must not take it for one that does.
pub fn forget(layout: &Layout) -> Result<()> {
    for file in
        [layout.stack_file(), layout.partial_file(), layout.restart_request(), layout.restart_failure()]
    {
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", file.display()));
            }
            _ => {}
        }
    }
    Ok(())
}
