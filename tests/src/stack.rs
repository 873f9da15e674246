//! A whole stack in a directory of its own, and the means to hurt it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rpc::{Client, ClientConfig, Secret, connect_lazy};
use serde::Deserialize;

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

#[derive(Debug, Deserialize)]
struct File {
    parts: BTreeMap<String, Part>,
    api_keys: BTreeMap<String, String>,
}

/// A running stack; stopped, and its directory removed, when dropped.
#[derive(Debug)]
pub struct Stack {
    dir: tempfile::TempDir,
    file: File,
    /// Services that the test itself started again.
    restarted: BTreeMap<String, std::process::Child>,
}

/// The directory of the built programs: test binaries lie in a folder below it.
fn bin_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().and_then(Path::parent).context("a test binary lies two folders deep")?;
    Ok(dir.to_owned())
}

fn bursar(data: &Path, arguments: &[&str]) -> Result<()> {
    let program = bin_dir()?.join("bursar");
    ensure!(program.exists(), "{} is not built; `make test` builds it first", program.display());
    let output =
        Command::new(program).args(arguments).arg("--data").arg(data).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    bail!(
        "bursar {} failed\n{}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

impl Stack {
    /// Starts everything and waits until it is ready.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("bursar-stack-").tempdir()?;
        bursar(dir.path(), &["up", "--detach"])?;
        let text = std::fs::read_to_string(dir.path().join("stack.json"))?;
        Ok(Self { dir, file: serde_json::from_str(&text)?, restarted: BTreeMap::new() })
    }

    pub fn part(&self, name: &str) -> Result<&Part> {
        self.file.parts.get(name).with_context(|| format!("stack.json names no {name}"))
    }

    /// A channel to a service in somebody's name.
    pub fn client(&self, service: &str, who: &str) -> Result<Client> {
        let key = self.file.api_keys.get(who).with_context(|| format!("stack.json has no key of {who}"))?;
        let config = ClientConfig::new(self.part(service)?.url.clone()).with_key(Secret::new(key.clone()));
        Ok(connect_lazy(&config)?)
    }

    pub fn approver_seed(&self, name: &str) -> Result<[u8; 32]> {
        let file = self.dir.path().join("approvers").join(format!("{name}.key"));
        let bytes = hex::decode(std::fs::read_to_string(file)?.trim())?;
        bytes.try_into().ok().context("a seed has 32 bytes")
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, service: &str) -> Result<()> {
        match self.restarted.get_mut(service) {
            Some(child) => {
                child.kill()?;
                child.wait()?;
            }
            None => {
                let pid = Pid::from_raw(self.part(service)?.pid);
                // Gone already is what we want.
                let _ = kill(pid, Signal::SIGKILL);
                wait_gone(pid)?;
            }
        }
        Ok(())
    }

    /// Starts a service again by its recorded command and environment, with some more environment of ours.
    pub fn start_again(&mut self, service: &str, extra: &[(&str, &str)]) -> Result<()> {
        let part = self.part(service)?.clone();
        let (program, arguments) = part.command.split_first().context("stack.json records no command")?;
        let log = std::fs::OpenOptions::new().append(true).create(true).open(&part.log)?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(self.dir.path())
            .envs(&part.env)
            .envs(extra.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {service} again"))?;
        self.restarted.insert(service.to_owned(), child);
        Ok(())
    }

    /// The process of a service that the test itself started.
    pub fn started(&mut self, service: &str) -> Result<&mut std::process::Child> {
        self.restarted.get_mut(service).with_context(|| format!("{service} was not started here"))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        for child in self.restarted.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(error) = bursar(self.dir.path(), &["down"]) {
            // A panic here would hide the test's own failure.
            eprintln!("cannot stop the stack: {error:#}");
        }
    }
}

fn wait_gone(pid: Pid) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while kill(pid, None).is_ok() {
        // A zombie whose parent has not looked yet is as dead as it gets.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')) {
            break;
        }
        ensure!(Instant::now() < deadline, "process {pid} does not die");
        std::thread::yield_now();
    }
    Ok(())
}
