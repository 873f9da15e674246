//! One child process: started with its output in a log file, tied to its owner or detached, stopped in order.
//!
//! Invariants: an owned process dies with its owner (see `lifeline.sh`); a detached one lives in a session of its own;
//! both lead a process group, so that Ctrl-C in a terminal reaches nobody but the owner, who stops them in order. A pid
//! read from a file is signalled only while its start time matches, so that a recycled pid is never hit.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Gid, Pid, Uid};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::patience::Patience;

const LIFELINE: &str = include_str!("lifeline.sh");
const POLL: Duration = Duration::from_millis(20);
/// How long a process may take to vanish after SIGKILL (a write stuck on a slow disk) before we give up on it.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A pid together with the start time of its process, in clock ticks since boot: unique on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    pub started: u64,
}

impl Identity {
    /// The identity of the process that has `pid` now, if there is one and it is not a zombie.
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name is in brackets and may hold anything, so fields are counted from the last bracket.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        if fields.next()? == "Z" {
            return None;
        }
        Some(Identity { pid, started: fields.nth(18)?.parse().ok()? })
    }

    /// Whether this very process (not another with its pid) is still there.
    pub fn is_alive(&self) -> bool {
        Identity::of(self.pid) == Some(*self)
    }

    /// Sends `signal` to this process if it is still the same one.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // An error means that it ended between the look and the signal, which is what callers want anyway.
            let _ = kill(pid_of(self.pid), signal);
        }
    }

    /// Ends a process that may not be our child: politely, then with SIGKILL for its whole group.
    pub async fn stop(&self, part: &str, plan: &StopPlan) -> Result<(), Error> {
        self.signal(plan.graceful);
        if !self.gone_within(plan.limit).await {
            tracing::warn!(part, pid = self.pid, "did not stop in time, killing it");
            if self.is_alive() {
                let _ = killpg(pid_of(self.pid), Signal::SIGKILL);
            }
            self.signal(Signal::SIGKILL);
            if !self.gone_within(KILL_LIMIT).await {
                let seconds = KILL_LIMIT.as_secs();
                return Err(Error::Unstoppable { part: part.to_owned(), pid: self.pid, seconds });
            }
        }
        Ok(())
    }

    async fn gone_within(&self, limit: Duration) -> bool {
        let mut patience = Patience::of(limit);
        while self.is_alive() {
            if patience.is_over() {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }
}

/// How a part is asked to stop, how long it may take, and what ends it when its owner is already dead.
#[derive(Debug, Clone, Copy)]
pub struct StopPlan {
    pub graceful: Signal,
    pub limit: Duration,
    pub abandoned: Signal,
}

impl StopPlan {
    pub const fn new(graceful: Signal, limit: Duration) -> Self {
        StopPlan { graceful, limit, abandoned: Signal::SIGKILL }
    }
}

/// Whether a process dies with the one that started it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Ends with its owner, even on SIGKILL; the directory, if any, is removed then.
    #[default]
    Owned,
    OwnedWithDirectory(PathBuf),
    /// Lives on in a session of its own.
    Detached,
}

/// The user a process runs as when it may not run as ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    pub uid: Uid,
    pub gid: Gid,
}

/// All that is needed to start a process, and to start it again the same way.
#[derive(Debug, Clone)]
pub struct Launch {
    pub name: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub dir: PathBuf,
    pub log: PathBuf,
    pub lifetime: Lifetime,
    pub run_as: Option<RunAs>,
    pub stop: StopPlan,
}

/// A running child. Dropping it ends an owned process at once and leaves a detached one alone.
#[derive(Debug)]
pub struct Process {
    launch: Launch,
    identity: Identity,
    child: Child,
    /// Open as long as we live; absent for detached processes.
    lifeline: Option<ChildStdin>,
    ended: Option<String>,
}

impl Process {
    pub fn spawn(launch: &Launch) -> Result<Process, Error> {
        let log = open_log(&launch.log)?;
        let errors = log.try_clone().map_err(|e| Error::file("cannot open the log", &launch.log, e))?;
        let mut command = launch.to_command();
        command.current_dir(&launch.dir).envs(&launch.env).stdout(log).stderr(errors);
        if let Some(user) = launch.run_as {
            command.gid(user.gid.as_raw()).uid(user.uid.as_raw());
        }
        let mut child = command.spawn().map_err(|e| Error::Command {
            what: format!("starting {}", launch.name),
            detail: format!("{}: {e}", launch.command.join(" ")),
        })?;
        let lifeline = child.stdin.take();
        // A child that is already dead still has its stat as a zombie of ours, but no identity worth keeping.
        let identity = Identity::of(child.id()).unwrap_or(Identity { pid: child.id(), started: 0 });
        Ok(Process { launch: launch.clone(), identity, child, lifeline, ended: None })
    }

    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// What it was started with.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub fn log(&self) -> &Path {
        &self.launch.log
    }

    /// How it ended ("exit status 1", "signal 9"), or nothing while it runs.
    pub fn exited(&mut self) -> Option<String> {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some(describe(status));
            self.let_go();
        }
        self.ended.clone()
    }

    /// Asks it to stop, waits for the limit of its plan, then kills its group. Safe to call again.
    pub async fn stop(&mut self) -> Result<(), Error> {
        if self.exited().is_none() {
            let _ = kill(pid_of(self.pid()), self.launch.stop.graceful);
            if !self.ended_within(self.launch.stop.limit).await {
                tracing::warn!(part = self.name(), pid = self.pid(), "did not stop in time, killing it");
                let _ = killpg(pid_of(self.pid()), Signal::SIGKILL);
                let _ = self.child.kill();
                if !self.ended_within(KILL_LIMIT).await {
                    let (part, pid) = (self.launch.name.clone(), self.pid());
                    return Err(Error::Unstoppable { part, pid, seconds: KILL_LIMIT.as_secs() });
                }
            }
        }
        Ok(())
    }

    /// SIGKILL, and wait for the end: what a crash looks like.
    pub async fn kill(&mut self) -> Result<(), Error> {
        let plan = self.launch.stop;
        self.launch.stop = StopPlan { graceful: Signal::SIGKILL, ..plan };
        let result = self.stop().await;
        self.launch.stop = plan;
        result
    }

    async fn ended_within(&mut self, limit: Duration) -> bool {
        let mut patience = Patience::of(limit);
        while self.exited().is_none() {
            if patience.is_over() {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    /// Ends the watcher and whatever the process left behind in its group.
    fn let_go(&mut self) {
        let _ = killpg(pid_of(self.pid()), Signal::SIGKILL);
        if let Some(mut lifeline) = self.lifeline.take() {
            // A watcher that is gone already makes this fail, and then there is nobody to tell.
            let _ = lifeline.write_all(b"stopped\n");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.lifeline.is_some() && self.exited().is_none() {
            let _ = kill(pid_of(self.pid()), self.launch.stop.abandoned);
            // Bounded: the abandoned signal ends every one of our servers at once, and a server that does not obey it
            // is killed by the watcher when the lifeline closes below.
            let mut patience = Patience::of(Duration::from_secs(5));
            while self.exited().is_none() && !patience.is_over() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Launch {
    fn to_command(&self) -> Command {
        match &self.lifetime {
            Lifetime::Detached => {
                // `setsid` replaces itself by the command when it leads no group, so the pid stays the command's own.
                let mut command = Command::new("setsid");
                command.args(&self.command).stdin(Stdio::null());
                command
            }
            Lifetime::Owned => self.with_lifeline(""),
            Lifetime::OwnedWithDirectory(dir) => self.with_lifeline(&dir.to_string_lossy()),
        }
    }

    fn with_lifeline(&self, directory: &str) -> Command {
        let signal = self.stop.abandoned.as_str().trim_start_matches("SIG");
        let mut command = Command::new("sh");
        command.args(["-c", LIFELINE, "lifeline", signal, directory]);
        command.args(&self.command).stdin(Stdio::piped()).process_group(0);
        command
    }
}

/// The last lines of a log, for an error message; empty when there is none.
pub fn tail(log: &Path, lines: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn open_log(path: &Path) -> Result<File, Error> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|e| Error::file("cannot create the log directory", parent, e))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|e| Error::file("cannot open the log", path, e))
}

fn pid_of(pid: u32) -> Pid {
    // Linux pids fit 22 bits; a value that does not is no process, and pid -1 ("everyone") must never come out of this.
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_with_another_start_time_is_another_process() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!Identity { started: me.started + 1, ..me }.is_alive());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let mut patience = Patience::of(Duration::from_secs(10));
        while Identity::of(pid).is_some() && !patience.is_over() {
            std::thread::yield_now();
        }
        assert_eq!(Identity::of(pid), None);
        child.wait().unwrap();
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\nb\nc\n").unwrap();
        assert_eq!(tail(file.path(), 2), "b\nc");
        assert_eq!(tail(Path::new("/nowhere/at/all"), 2), "");
    }
}
