//! A whole stack in a directory of its own, and the means to hurt it.
//!
//! Started by the real `bursar` and driven from its `stack.json`, as any stranger would. Methods take `&self`, so that several
//! services can be hurt at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use rpc::{Client, ClientConfig, Secret, connect_lazy};
use serde::Deserialize;
use testkit::{FaultProxy, Patience};
use types::Address;

/// How long a part may take to end or to answer again, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// One process of the stack, as `stack.json` records it.
#[derive(Debug, Clone, Deserialize)]
pub struct Part {
    pub url: String,
    pub pid: i32,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub log: PathBuf,
}

/// A worker under the orchestrator, as `stack.json` records it.
#[derive(Debug, Clone, Deserialize)]
struct Worker {
    url: String,
}

#[derive(Debug, Deserialize)]
struct File {
    parts: BTreeMap<String, Part>,
    #[serde(default)]
    workers: BTreeMap<String, Worker>,
    api_keys: BTreeMap<String, String>,
    databases: BTreeMap<String, String>,
}

/// Where customers asked money to go, noted before they ask. Kept with the stack, which tests hand on to each other.
#[derive(Debug, Clone, Default)]
pub struct Destinations(Arc<Mutex<BTreeSet<String>>>);

impl Destinations {
    pub fn note(&self, destination: &Address) {
        held(&self.0).insert(destination.to_string().to_lowercase());
    }

    /// Whether anybody asked for a payment to this address, written in lower case.
    pub fn hold(&self, address: &str) -> bool {
        held(&self.0).contains(address)
    }
}

/// A running stack; stopped, and its directory removed, when dropped.
#[derive(Debug)]
pub struct Stack {
    dir: tempfile::TempDir,
    file: Mutex<File>,
    /// What the test itself started, by the name of the part, or the name given to a second copy.
    started: Mutex<BTreeMap<String, Child>>,
    /// Which of these run with an environment that is not the recorded one, or beside the recorded process.
    altered: Mutex<BTreeSet<String>>,
    pub destinations: Destinations,
}

/// The directory of the built programs: test binaries lie in a folder below it.
pub fn bin_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().and_then(Path::parent).context("a test binary lies two folders deep")?;
    Ok(dir.to_owned())
}

/// What `bursar` prints.
fn bursar(data: &Path, arguments: &[&str]) -> Result<String> {
    let program = bin_dir()?.join("bursar");
    ensure!(program.exists(), "{} is not built; `make test` builds it first", program.display());
    let output =
        Command::new(program).args(arguments).arg("--data").arg(data).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    bail!(
        "bursar {} failed\n{}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn read(dir: &Path) -> Result<File> {
    let text = std::fs::read_to_string(dir.join("stack.json"))?;
    Ok(serde_json::from_str(&text)?)
}

impl Stack {
    /// Starts everything and waits until it is ready.
    pub fn start() -> Result<Self> {
        Self::start_in(tempfile::Builder::new().prefix("bursar-stack-").tempdir()?)
    }

    /// Starts everything in a directory that the test has prepared.
    pub fn start_in(dir: tempfile::TempDir) -> Result<Self> {
        Self::start_with(dir, "inline")
    }

    /// Starts everything, with the workers as processes of their own under the orchestrator.
    pub fn start_orchestrated() -> Result<Self> {
        Self::start_with(tempfile::Builder::new().prefix("bursar-stack-").tempdir()?, "orchestrated")
    }

    fn start_with(dir: tempfile::TempDir, workers: &str) -> Result<Self> {
        bursar(dir.path(), &["up", "--detach", "--workers", workers])?;
        let file = Mutex::new(read(dir.path())?);
        let (started, altered) = (Mutex::default(), Mutex::default());
        Ok(Self { dir, file, started, altered, destinations: Destinations::default() })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn part(&self, name: &str) -> Result<Part> {
        let file = held(&self.file);
        file.parts.get(name).cloned().with_context(|| format!("stack.json names no {name}"))
    }

    /// What `bursar` prints about this stack.
    pub fn bursar(&self, arguments: &[&str]) -> Result<String> {
        bursar(self.dir(), arguments)
    }

    /// Where a worker shows its health and metrics.
    pub fn worker_url(&self, id: &str) -> Result<String> {
        let file = held(&self.file);
        let worker = file.workers.get(id).with_context(|| format!("stack.json names no worker {id}"))?;
        Ok(worker.url.clone())
    }

    /// Where a service keeps its data, as the role that owns it.
    pub fn database(&self, name: &str) -> Result<String> {
        let file = held(&self.file);
        file.databases.get(name).cloned().with_context(|| format!("stack.json names no database {name}"))
    }

    /// A channel to a service in somebody's name.
    pub fn client(&self, service: &str, who: &str) -> Result<Client> {
        let url = self.part(service)?.url;
        let key = held(&self.file).api_keys.get(who).cloned();
        let key = key.with_context(|| format!("stack.json has no key of {who}"))?;
        Ok(connect_lazy(&ClientConfig::new(url).with_key(Secret::new(key)))?)
    }

    pub fn approver_seed(&self, name: &str) -> Result<[u8; 32]> {
        let file = self.dir().join("approvers").join(format!("{name}.key"));
        let bytes = hex::decode(std::fs::read_to_string(file)?.trim())?;
        bytes.try_into().ok().context("a seed has 32 bytes")
    }

    /// The file with a service's settings.
    pub fn config(&self, service: &str) -> PathBuf {
        self.dir().join("config").join(format!("{service}.toml"))
    }

    /// The last lines that a part wrote, for a failure's message.
    pub fn tail(&self, name: &str) -> String {
        let log = self.part(name).map(|part| part.log).unwrap_or_default();
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&self, name: &str) -> Result<()> {
        self.end(name, Signal::SIGKILL).map(drop)
    }

    /// Sends a signal and waits for the end; how it ended, where the process is a child of the test.
    pub fn end(&self, name: &str, signal: Signal) -> Result<Option<ExitStatus>> {
        let child = held(&self.started).remove(name);
        match child {
            Some(mut child) => {
                let pid = Pid::from_raw(i32::try_from(child.id())?);
                // An error means that it ended before the signal, which is what we want.
                let _ = kill(pid, signal);
                let mut patience = Patience::of(PATIENCE);
                loop {
                    if let Some(status) = child.try_wait()? {
                        return Ok(Some(status));
                    }
                    if patience.is_over() {
                        child.kill()?;
                        bail!("{name} does not end on {signal}");
                    }
                    std::thread::sleep(LOOK);
                }
            }
            None => {
                let pid = Pid::from_raw(self.part(name)?.pid);
                let _ = kill(pid, signal);
                wait_gone(pid)?;
                Ok(None)
            }
        }
    }

    /// The process of a part: the test's own, or else the launcher's.
    pub fn pid(&self, name: &str) -> Result<Pid> {
        let own = held(&self.started).get(name).map(Child::id);
        let pid = own.map_or_else(|| self.part(name).map(|part| part.pid), |id| Ok(i32::try_from(id)?))?;
        Ok(Pid::from_raw(pid))
    }

    /// Sends a signal and waits for nothing: to pause a part, and to let it go on.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        Ok(kill(self.pid(name)?, signal)?)
    }

    pub fn is_alive(&self, name: &str) -> Result<bool> {
        if let Some(child) = held(&self.started).get_mut(name) {
            return Ok(child.try_wait()?.is_none());
        }
        Ok(kill(Pid::from_raw(self.part(name)?.pid), None).is_ok())
    }

    /// Starts a part again by its recorded command and environment, with some more environment of ours.
    pub fn start_again(&self, name: &str, extra: &[(&str, &str)]) -> Result<()> {
        self.start_copy(name, name, extra)
    }

    /// Starts another process of a service beside the first one, under a name of its own.
    pub fn start_copy(&self, service: &str, name: &str, extra: &[(&str, &str)]) -> Result<()> {
        let part = self.part(service)?;
        let (program, arguments) = part.command.split_first().context("stack.json records no command")?;
        let log = std::fs::OpenOptions::new().append(true).create(true).open(&part.log)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(&part.env).envs(extra.iter().copied());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Each stands where the launcher had put it, by which `bursar down` knows it again.
        let home = if is_ground(service) { self.dir().join(service) } else { self.dir().to_owned() };
        command.current_dir(home);
        // PostgreSQL refuses to run as root, so the launcher ran it as the user of Debian's package.
        if service == "postgres" && geteuid().is_root() {
            let user = User::from_name("postgres")?.context("there is no user postgres")?;
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir("/");
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        if let Some(mut earlier) = held(&self.started).insert(name.to_owned(), child) {
            // It has ended, or the caller wants it gone.
            let _ = earlier.kill();
            earlier.wait()?;
        }
        let is_plain = extra.is_empty() && service == name;
        let mut altered = held(&self.altered);
        if is_plain {
            altered.remove(name)
        } else {
            altered.insert(name.to_owned())
        };
        Ok(())
    }

    /// Brings every service back to the way `stack.json` records it.
    pub fn restore(&self) -> Result<()> {
        let altered = std::mem::take(&mut *held(&self.altered));
        for name in altered {
            let is_recorded = held(&self.file).parts.contains_key(&name);
            // A second copy that the test has ended itself is gone already.
            if is_recorded || held(&self.started).contains_key(&name) {
                self.end(&name, Signal::SIGTERM)?;
            }
            if is_recorded {
                self.start_again(&name, &[])?;
            }
        }
        Ok(())
    }

    /// Has `bursar` itself start a service again, and waits until it serves.
    pub fn restart(&self, service: &str) -> Result<()> {
        held(&self.started).remove(service).map_or(Ok(()), |mut child| {
            let _ = child.kill();
            child.wait().map(drop)
        })?;
        bursar(self.dir(), &["up", "--restart", service])?;
        *held(&self.file) = read(self.dir())?;
        Ok(())
    }

    /// How a process that the test started has ended, once it has.
    pub fn ended(&self, name: &str) -> Result<Option<ExitStatus>> {
        let mut started = held(&self.started);
        let child = started.get_mut(name).with_context(|| format!("{name} was not started here"))?;
        Ok(child.try_wait()?)
    }

    /// Starts a service again with a proxy between it and its database.
    pub async fn database_through(&self, service: &str, database: &str) -> Result<FaultProxy> {
        let url = self.database(database)?;
        let (credentials, rest) = url.rsplit_once('@').context("a database has credentials")?;
        let (address, name) = rest.split_once('/').context("a database has a name")?;
        let proxy = FaultProxy::tcp(address).await;
        let variable = format!("BURSAR_{}__DATABASE__URL", service.to_uppercase().replace('-', "_"));
        self.end(service, Signal::SIGTERM)?;
        let url = format!("{credentials}@{}/{name}", proxy.address());
        self.start_again(service, &[(&variable, &url)])?;
        Ok(proxy)
    }

    /// The value of a service's metric, summed over the lines that hold all of these words.
    pub async fn metric(&self, service: &str, words: &[&str]) -> Result<f64> {
        Ok(metric_at(&self.part(service)?.url, words).await?.iter().sum())
    }

    /// Waits until a service says of itself that it serves, or that it does not.
    pub async fn ready(&self, service: &str, wanted: bool) -> Result<()> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let url = format!("{}/readyz", self.part(service)?.url);
        testkit::wait_for(&format!("{service} to be ready: {wanted}"), PATIENCE, || async {
            http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success() == wanted)
        })
        .await;
        Ok(())
    }

    /// Waits until a service says of itself that it serves.
    pub async fn serving(&self, service: &str) -> Result<()> {
        let url = self.part(service)?.url;
        self.serving_at(service, &url).await
    }

    pub async fn serving_at(&self, name: &str, url: &str) -> Result<()> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        let health = format!("{url}/readyz");
        let mut patience = Patience::of(PATIENCE);
        loop {
            let told = match http.get(&health).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) => answer.text().await.unwrap_or_default(),
                Err(error) => format!("{error:?}"),
            };
            if patience.is_over() {
                bail!("{name} does not serve: {told}\n{}", self.tail(name.split(' ').next().unwrap_or(name)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The values of a metric where a process shows it: one for each line that holds all of these words, none when it is not shown.
pub async fn metric_at(url: &str, words: &[&str]) -> Result<Vec<f64>> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    values(&http.get(format!("{url}/metrics")).send().await?.text().await?, words)
}

fn values(text: &str, words: &[&str]) -> Result<Vec<f64>> {
    let is_meant = |line: &&str| !line.starts_with('#') && words.iter().all(|word| line.contains(word));
    let value = |line: &str| {
        let value = line.rsplit(' ').next().context("a metric has a value")?;
        Ok(value.parse::<f64>()?)
    };
    text.lines().filter(is_meant).map(value).collect()
}

impl Drop for Stack {
    fn drop(&mut self) {
        let mut started = std::mem::take(&mut *held(&self.started));
        // Databases and nodes are left to the launcher, which stops services before what they stand on.
        for (_, child) in started.iter_mut().filter(|(name, _)| !is_ground(name)) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(error) = bursar(self.dir.path(), &["down"]) {
            // A panic here would hide the test's own failure.
            eprintln!("cannot stop the stack: {error:#}");
        }
        for child in started.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_ground(name: &str) -> bool {
    matches!(name, "postgres" | "mongodb" | "redis" | "bsc" | "tron")
}

/// A test that panicked leaves nothing half-written behind these locks.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_gone(pid: Pid) -> Result<()> {
    let mut patience = Patience::of(PATIENCE);
    while kill(pid, None).is_ok() {
        // A zombie whose parent has not looked yet is as dead as it gets.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')) {
            break;
        }
        ensure!(!patience.is_over(), "process {pid} does not die");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_is_not_shown_is_not_zero() -> Result<()> {
        let text = "# TYPE a_total counter\na_total{chain=\"bsc\"} 2\na_total{chain=\"tron\"} 0\n";
        assert_eq!(values(text, &["a_total"])?, [2.0, 0.0]);
        assert_eq!(values(text, &["a_total{", "tron"])?, [0.0]);
        assert_eq!(values(text, &["b_total"])?, [0.0; 0]);
        Ok(())
    }
}
