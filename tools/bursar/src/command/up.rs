//! `bursar up`: starts the stack, and in the foreground stays with it until a signal stops it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use devstack::{Health, Identity};
use futures::future::join_all;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::client::{Connection, Target};
use crate::command::demo::Demo;
use crate::output::{self, Output};
use crate::progress::{Step, say, seconds};
use crate::seed;
use crate::stack::workers::Place;
use crate::stack::{self, BSC, BSC_CHAIN_ID, Kind, Launcher, Layout, Mode, StackFile, TRON};

/// A restart drains, starts and waits for health; each of these has a limit of its own below this one.
const RESTART_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub struct Up {
    /// Start everything, then return and leave it running
    #[arg(long)]
    detach: bool,
    /// Start one service of a running stack again, in the way stack.json records
    #[arg(long, value_name = "SERVICE")]
    restart: Option<String>,
    /// Pay the first withdrawals once everything is ready
    #[arg(long)]
    demo: bool,
    /// Leave the development catalogue and wallets out
    #[arg(long)]
    no_seed: bool,
    /// Who runs the workers
    #[arg(long, value_enum, env = "BURSAR_WORKERS", default_value_t = Place::Orchestrated)]
    workers: Place,
}

/// The signals that end the stack, and the one that asks for a restart of a service.
struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
    restart: Stream,
}

enum Request {
    Stop,
    Restart,
}

impl Up {
    pub async fn run(self, target: Target, out: Output) -> Result<()> {
        if let Some(service) = &self.restart {
            return Box::pin(restart(&target.data, service)).await;
        }
        let layout = Layout::create(&target.data)?;
        if let Some(file) = running(&layout).await? {
            if !self.detach {
                let data = layout.root().display();
                bail!(
                    "the stack in {data} is already running; see `bursar status`, stop it with `bursar down`"
                );
            }
            say("already running");
            return print_parts(&file, out);
        }
        let mut signals = Signals::listen()?;
        let began = Instant::now();
        let mode = if self.detach { Mode::Detached } else { Mode::Foreground };
        let lock = layout.lock()?;
        say(format_args!("starting in {}", layout.root().display()));
        let launched = tokio::select! {
            launched = Box::pin(self.launch(&layout, lock, mode, target.clone())) => launched,
            () = signals.stop() => Err(anyhow::anyhow!("interrupted while starting")),
        };
        let launcher = match launched {
            Ok(launcher) => launcher,
            Err(error) => {
                // An interrupted start may have left parts that no launcher knows of.
                stack::stop_everything(&layout).await?;
                stack::forget(&layout)?;
                return Err(error);
            }
        };
        say(format_args!("ready in {}", seconds(began.elapsed())));
        print_parts(launcher.file(), out)?;
        match mode {
            Mode::Detached if self.demo => Box::pin(Demo {}.run(&Connection::open(target)?, out)).await,
            Mode::Detached => Ok(()),
            Mode::Foreground => Box::pin(self.stay(launcher, signals, target, out)).await,
        }
    }

    async fn launch(
        &self,
        layout: &Layout,
        lock: nix::fcntl::Flock<std::fs::File>,
        mode: Mode,
        target: Target,
    ) -> Result<Launcher> {
        let launcher = Box::pin(Launcher::start(layout, lock, mode, self.workers)).await?;
        if !self.no_seed {
            let step = Step::new("catalogue");
            let connection = Connection::open_file(target, &layout.partial_file())?;
            let url =
                |part: &str| launcher.file().parts.get(part).map(|part| part.url.clone()).unwrap_or_default();
            let nodes = seed::Nodes { bsc: url(BSC), bsc_chain_id: BSC_CHAIN_ID, tron: url(TRON) };
            let seeded = Box::pin(seed::development(&connection, &nodes)).await;
            seeded
                .context("cannot seed the development catalogue; `bursar up --no-seed` starts without it")?;
            step.done("seeded with development assets and wallets");
            let step = Step::new("events");
            Box::pin(seed::events::development(&connection, &nodes.bsc, BSC_CHAIN_ID)).await?;
            step.done("a fee collector emits, the indexer reads");
        }
        launcher.publish()?;
        Ok(launcher)
    }

    /// Watches over the parts until a signal comes, then stops them in order.
    async fn stay(
        self,
        mut launcher: Launcher,
        mut signals: Signals,
        target: Target,
        out: Output,
    ) -> Result<()> {
        // Beside the rest: whoever starts a service again while the first payments are made must be heard.
        let mut demo = Some(Box::pin(show(self.demo, target, out)));
        loop {
            let shown = async {
                match &mut demo {
                    Some(demo) => demo.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                request = signals.next() => match request {
                    Request::Restart => launcher.serve_restart().await,
                    Request::Stop => break,
                },
                () = shown => {
                    demo = None;
                    say("Ctrl-C stops everything");
                }
                () = launcher.watch() => {}
            }
        }
        drop(demo);
        say("stopping (once more to kill everything at once)");
        tokio::select! {
            stopped = Box::pin(launcher.stop()) => stopped,
            // The parts' lifelines break with us and end them all.
            () = signals.stop() => bail!("killed while stopping"),
        }
    }
}

/// Pays the first withdrawals if they are wanted. A payment that fails is reported, and the stack stays up for inspection.
async fn show(wanted: bool, target: Target, out: Output) {
    let paying = async { Box::pin(Demo {}.run(&Connection::open(target)?, out)).await };
    if wanted && let Err(error) = paying.await {
        say(format_args!("the demonstration failed: {}", output::explain(&error)));
    }
}

impl Signals {
    fn listen() -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            restart: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.terminate.recv() => Request::Stop,
            _ = self.hangup.recv() => Request::Stop,
            _ = self.restart.recv() => Request::Restart,
        }
    }

    async fn stop(&mut self) {
        while !matches!(self.next().await, Request::Stop) {}
    }
}

/// The stack that runs on this directory, if one does. One that runs in part is an error that says what to do.
async fn running(layout: &Layout) -> Result<Option<StackFile>> {
    let data = layout.root().display();
    let parts = stack::sweep::running(layout);
    let Some(file) = StackFile::read(&layout.stack_file())? else {
        if parts.is_empty() || layout.holder().is_some() {
            return Ok(None);
        }
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        bail!("left over in {data} from an earlier run: {}; `bursar down` clears it", names.join(", "));
    };
    if !file.any_alive() && parts.is_empty() {
        // A stack that was killed, or a machine that was restarted: the file is all that is left of it.
        stack::forget(layout)?;
        return Ok(None);
    }
    let health = join_all(file.parts.iter().map(|(name, part)| part.health(name))).await;
    let names = file.parts.keys().zip(&health).filter(|(_, health)| **health != Health::Serving);
    let failing: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    if !failing.is_empty() {
        bail!(
            "the stack in {data} runs only in part (not well: {}); `bursar up --restart SERVICE` starts a service again, \
             `bursar down` stops everything",
            failing.join(", ")
        );
    }
    Ok(Some(file))
}

async fn restart(data: &Path, service: &str) -> Result<()> {
    let none = || format!("no stack runs in {}; start one with `bursar up`", data.display());
    let layout = Layout::find(data).with_context(none)?;
    let mut file = StackFile::read(&layout.stack_file())?.with_context(none)?;
    if file.parts.get(service).is_none_or(|part| part.kind != Kind::Service) {
        let services: Vec<&str> = file
            .parts
            .iter()
            .filter(|(_, part)| part.kind == Kind::Service)
            .map(|(name, _)| name.as_str())
            .collect();
        bail!("{service} is no service of this stack; its services are {}", services.join(", "));
    }
    match file.launcher.filter(Identity::is_alive) {
        Some(launcher) => ask(&layout, launcher, service).await,
        None => {
            let _lock = layout.lock()?;
            stack::restart_detached(&layout, &mut file, service).await
        }
    }
}

/// A service of a stack in the foreground belongs to its launcher, so that it dies with it: the launcher does the work.
async fn ask(layout: &Layout, launcher: Identity, service: &str) -> Result<()> {
    let request = layout.restart_request();
    let mut file = std::fs::File::create_new(&request).context("another restart is under way")?;
    std::io::Write::write_all(&mut file, service.as_bytes())?;
    launcher.signal(Signal::SIGUSR1);
    let deadline = Instant::now() + RESTART_LIMIT;
    while request.exists() {
        if !launcher.is_alive() || Instant::now() > deadline {
            std::fs::remove_file(&request).ok();
            bail!("bursar (pid {}) did not start {service} again", launcher.pid);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    match std::fs::read_to_string(layout.restart_failure()) {
        Ok(failure) => bail!(failure),
        Err(_) => {
            say(format_args!("{service} was started again"));
            Ok(())
        }
    }
}

fn print_parts(file: &StackFile, out: Output) -> Result<()> {
    if out.json {
        return output::print(&serde_json::to_string_pretty(file)?);
    }
    let order = |kind: Kind| match kind {
        Kind::Service => 0,
        Kind::Chain => 1,
        Kind::Dependency => 2,
    };
    let mut parts: Vec<_> = file.parts.iter().collect();
    parts.sort_by_key(|(name, part)| (order(part.kind), (*name).clone()));
    let rows = parts.into_iter().flat_map(|(name, part)| {
        let row = |name: String, url: &str| [name, without_password(url), shown(&part.log)];
        let http = part.http.as_ref().map(|url| row(format!("{name} (JSON)"), url));
        std::iter::once(row(name.clone(), &part.url)).chain(http)
    });
    output::table(["PART", "ADDRESS", "LOG"], rows)?;
    output::print(&format!("\nAddresses, keys and databases: {}", shown(&file.data.join("stack.json"))))
}

/// Relative to the working directory, when that is shorter.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, address))) => format!("{scheme}://{address}"),
        _ => url.to_owned(),
    }
}
