//! Operating system processes: started in a group of their own, identified by start time, found by their environment.
//!
//! Invariants: a pid is signalled only while the start time recorded with it matches, so that a recycled pid is never hit; a
//! worker's whole group ends with it; every process of the fleet has the fleet's id in its environment, so it can be found
//! without any record of it.

pub(crate) mod output;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// The variable that marks a process as part of a fleet.
pub(crate) const FLEET: &str = "WORKER_FLEET";
pub(crate) const INCARNATION: &str = "WORKER_INCARNATION";
pub(crate) const ID: &str = "WORKER_PAIR_ID";
/// The fingerprint of the specification that a process was started with.
pub(crate) const FINGERPRINT: &str = "WORKER_SPEC";
/// The pid namespace that Linux creates at boot; its number never changes.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// A pid with the start time of its process, in clock ticks since boot: unique on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) started: u64,
}

impl Identity {
    /// The process that has `pid` now, if there is one and it is not a zombie.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name is in brackets and may hold anything, so fields are counted from the last bracket.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        Some(Self { pid, started: fields.nth(18)?.parse().ok()? })
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Asks the process itself to end. Its children are its own concern until the grace period is over.
    pub(crate) fn terminate(self) {
        if self.is_alive() {
            // An error means that it has ended meanwhile, as intended.
            let _ = kill(pid_of(self.pid), Signal::SIGTERM);
        }
    }

    pub(crate) fn kill_group(self) {
        if self.is_alive() {
            let _ = killpg(pid_of(self.pid), Signal::SIGKILL);
            let _ = kill(pid_of(self.pid), Signal::SIGKILL);
        }
    }

    /// Kills this process without its group.
    pub(crate) fn kill(self) {
        if self.is_alive() {
            let _ = kill(pid_of(self.pid), Signal::SIGKILL);
        }
    }
}

/// Whether a child has ended, and how. What is left of its group ends with it.
pub(crate) fn reap(child: &mut Child) -> Option<String> {
    // WNOWAIT leaves the dead leader in the process table: until it is reaped its number is not reused, so the group that we
    // kill is its own.
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid_of(child.id())), flags) {
        Ok(WaitStatus::StillAlive) => return None,
        Ok(_) => {
            let _ = killpg(pid_of(child.id()), Signal::SIGKILL);
        }
        // It has been reaped already; `try_wait` reports that.
        Err(_) => {}
    }
    match child.try_wait() {
        Ok(Some(status)) => Some(describe(status)),
        Ok(None) => None,
        Err(error) => Some(format!("cannot be waited for: {error}")),
    }
}

/// A name that no other machine, container or boot shares. A pid is meaningful only within it.
pub(crate) fn host() -> String {
    let name = read_line("/proc/sys/kernel/hostname");
    format!("{name} {} {}", read_line("/proc/sys/kernel/random/boot_id"), namespace())
}

/// A name that no other machine shares and that survives a reboot; empty when unknown. Two hosts with the same machine differ
/// by their boot, and a reboot ends all processes.
pub(crate) fn machine() -> String {
    let id = read_line("/etc/machine-id");
    let unique = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Containers of one image share this file, and a container may end without a reboot.
    if !unique || namespace() != FIRST_NAMESPACE {
        return String::new();
    }
    format!("{} {id}", read_line("/proc/sys/kernel/hostname"))
}

fn namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid").unwrap_or_default().display().to_string()
}

fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) command: &'a [String],
    /// Variables of ours with this prefix are not passed on.
    pub(crate) withheld_prefix: &'a str,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) output: &'a Path,
    /// Whether the child notices our end by the end of its standard input.
    pub(crate) lifeline: bool,
}

/// Starts a process in a group of its own. Its output goes to a file, because a pipe would break when we die, and end the worker.
pub(crate) fn start(launch: &Launch<'_>) -> std::io::Result<Child> {
    let (program, arguments) =
        launch.command.split_first().ok_or_else(|| std::io::Error::other("the command is empty"))?;
    if let Some(dir) = launch.output.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let output = OpenOptions::new().create(true).append(true).mode(0o600).open(launch.output)?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    let own =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(launch.withheld_prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| own(name)) {
        command.env_remove(name);
    }
    command.envs(&launch.environment);
    command.stdin(if launch.lifeline { Stdio::piped() } else { Stdio::null() });
    command.stdout(output.try_clone()?).stderr(output);
    command.spawn()
}

/// A process of the fleet that runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundProcess {
    pub(crate) identity: Identity,
    /// Whether it leads its process group, as every process that an orchestrator started does.
    pub(crate) leads: bool,
    pub(crate) id: String,
    pub(crate) incarnation: String,
    pub(crate) fingerprint: String,
}

/// Every process with the fleet's id in its environment. Reads `/proc`, so it must run on a thread that may block.
pub(crate) fn find(fleet: &str) -> Vec<FoundProcess> {
    let marker = format!("{FLEET}={fleet}");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let variables = || environment.split(|byte| *byte == 0);
            if !variables().any(|variable| variable == marker.as_bytes()) {
                return None;
            }
            let value = |name: &str| {
                let own = variables().find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
                String::from_utf8_lossy(own.unwrap_or_default()).into_owned()
            };
            let (id, incarnation, fingerprint) = (value(ID), value(INCARNATION), value(FINGERPRINT));
            let identity = Identity::of(pid)?;
            Some(FoundProcess { leads: group_of(pid) == Some(pid), identity, id, incarnation, fingerprint })
        })
        .collect()
}

fn group_of(pid: u32) -> Option<u32> {
    let group = nix::unistd::getpgid(Some(pid_of(pid))).ok()?;
    u32::try_from(group.as_raw()).ok()
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn pid_of(pid: u32) -> Pid {
    // Linux pids fit 22 bits. A larger value is not a process, and must never become pid -1, which means every process.
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recycled_pid_is_another_process_and_is_not_hit() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let real = Identity::of(child.id()).unwrap();
        let recycled = Identity { started: real.started + 1, ..real };
        assert!(real.is_alive() && !recycled.is_alive());
        recycled.kill_group();
        recycled.terminate();
        assert!(real.is_alive(), "a process that only shares the pid was hit");
        real.kill();
        child.wait().unwrap();
        assert!(!real.is_alive());
    }

    #[test]
    fn our_own_settings_are_not_passed_on_and_output_goes_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("logs/a.log");
        let launch = Launch {
            command: &[
                "sh".to_owned(),
                "-c".to_owned(),
                "echo $GIVEN; echo ${PATH:+path} >&2; env".to_owned(),
            ],
            withheld_prefix: "HOM",
            environment: [("GIVEN".to_owned(), "there".to_owned())].into(),
            output: &output,
            lifeline: false,
        };
        assert!(std::env::var_os("HOME").is_some(), "there is something to withhold");
        assert!(start(&launch).unwrap().wait().unwrap().success());
        let said = std::fs::read_to_string(&output).unwrap();
        assert!(said.starts_with("there\npath\n"), "{said}");
        assert!(!said.lines().any(|line| line.starts_with("HOM")), "{said}");
    }

    #[test]
    fn a_process_of_the_fleet_is_found_by_its_environment_with_its_children() {
        let fleet = uuid::Uuid::now_v7().to_string();
        let dir = tempfile::tempdir().unwrap();
        let mut environment: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in [(FLEET, fleet.as_str()), (ID, "a"), (INCARNATION, "i-1"), (FINGERPRINT, "f")] {
            environment.insert(name.to_owned(), value.to_owned());
        }
        let launch = Launch {
            command: &["sh".to_owned(), "-c".to_owned(), "sleep 600 & wait".to_owned()],
            withheld_prefix: "NOTHING_",
            environment,
            output: &dir.path().join("a.log"),
            lifeline: false,
        };
        let mut child = start(&launch).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut found = find(&fleet);
        while found.len() < 2 && std::time::Instant::now() < deadline {
            std::thread::yield_now();
            found = find(&fleet);
        }
        assert_eq!(found.len(), 2);
        let leader = found.iter().find(|found| found.leads).unwrap();
        assert_eq!((leader.identity.pid, leader.id.as_str()), (child.id(), "a"));
        leader.identity.kill_group();
        child.wait().unwrap();
        while !find(&fleet).is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(find(&fleet), [], "the whole group ended");
    }
}
