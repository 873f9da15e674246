//! Where things lie in the data directory.
//!
//! Invariant: the root is absolute, so that commands recorded in `stack.json` work from anywhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use devstack::Identity;
use nix::fcntl::{Flock, FlockArg};

/// Marks a directory as a stack's own. Without it a mistyped `--data` would have `down --purge` remove a stranger's files.
const MARKER: &str = "bursar-stack.txt";
const MARKER_TEXT: &str = "A development stack of Bursar lives here. `bursar down --purge --data DIR` stops it and removes the directory.\n";

/// How often, and how long apart, a lock is tried that nobody seems to hold: another bursar may just be looking at it.
const LOCK_TRIES: usize = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the directory if it is not there. One that holds anything but a stack is refused.
    pub fn create(dir: &Path) -> Result<Layout> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let root = dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))?;
        let layout = Layout { root };
        if !layout.is_a_stack() {
            let mut entries =
                std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
            if entries.next().is_some() {
                bail!("{} holds other files; a stack needs a directory of its own", dir.display());
            }
            write_private(&layout.root.join(MARKER), MARKER_TEXT)?;
        }
        Ok(layout)
    }

    /// The directory of a stack, running or not; nothing if it is not one.
    pub fn find(dir: &Path) -> Option<Layout> {
        dir.canonicalize().ok().map(|root| Layout { root }).filter(Layout::is_a_stack)
    }

    /// By its marker, or by the keys that stacks had before there was one.
    fn is_a_stack(&self) -> bool {
        self.root.join(MARKER).is_file() || self.keys_file().is_file()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn part(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn log(&self, part: &str) -> PathBuf {
        self.root.join("logs").join(format!("{part}.log"))
    }

    /// What the orchestrator keeps: histories of workers, and their output.
    pub fn worker_data(&self) -> PathBuf {
        self.root.join(".data")
    }

    /// Where the orchestrator puts what workers write, a file for each.
    pub fn worker_logs(&self) -> PathBuf {
        self.worker_data().join("logs")
    }

    pub fn config(&self, service: &str) -> PathBuf {
        self.root.join("config").join(format!("{service}.toml"))
    }

    pub fn stack_file(&self) -> PathBuf {
        self.root.join("stack.json")
    }

    /// What has been started so far, while the stack is not ready.
    pub fn partial_file(&self) -> PathBuf {
        self.root.join("stack.partial.json")
    }

    pub fn keys_file(&self) -> PathBuf {
        self.root.join("keys.json")
    }

    pub fn approver_key(&self, name: &str) -> PathBuf {
        self.root.join("approvers").join(format!("{name}.key"))
    }

    pub fn secret(&self, name: &str) -> PathBuf {
        self.root.join("secrets").join(format!("{name}.key"))
    }

    /// A service to be started again by the launcher that owns the stack.
    pub fn restart_request(&self) -> PathBuf {
        self.root.join("restart.request")
    }

    /// Why the last request failed.
    pub fn restart_failure(&self) -> PathBuf {
        self.root.join("restart.failure")
    }

    /// Held while a stack is being started or stopped, and as long as one runs in the foreground.
    pub fn lock(&self) -> Result<Flock<File>> {
        let mut tries_left = LOCK_TRIES;
        let mut lock = loop {
            if let Some(lock) = self.try_lock()? {
                break lock;
            }
            if let Some(holder) = self.holder() {
                let (pid, root) = (holder.pid, self.root.display());
                bail!("another bursar (pid {pid}) is starting, running or stopping the stack in {root}");
            }
            tries_left -= 1;
            if tries_left == 0 {
                bail!("another bursar works on {}", self.root.display());
            }
            std::thread::sleep(LOCK_PAUSE);
        };
        // Who holds it, for `bursar down` and for the message above.
        lock.set_len(0)
            .and_then(|()| write!(lock, "{}", std::process::id()))
            .context("cannot write the lock file")?;
        Ok(lock)
    }

    /// The bursar that holds the lock now.
    pub fn holder(&self) -> Option<Identity> {
        if self.try_lock().ok()?.is_some() {
            return None;
        }
        Identity::of(std::fs::read_to_string(self.lock_file()).ok()?.trim().parse().ok()?)
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }

    fn try_lock(&self) -> Result<Option<Flock<File>>> {
        let path = self.lock_file();
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
    }

    /// The ports of the last run, to be used again where they are still free.
    pub fn ports(&self) -> BTreeMap<String, u16> {
        let text = std::fs::read_to_string(self.root.join("ports.json")).unwrap_or_default();
        // A damaged file costs nothing but other ports.
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn keep_ports(&self, ports: &BTreeMap<String, u16>) -> Result<()> {
        write_private(&self.root.join("ports.json"), &serde_json::to_string_pretty(ports)?)
    }

    /// Puts the log of the last run aside, so that the tail of the present one is its own.
    pub fn rotate_log(&self, part: &str) {
        let log = self.log(part);
        // Nothing to rotate is the usual case; a log that cannot be moved is appended to.
        std::fs::rename(&log, log.with_extension("log.1")).ok();
    }
}

/// Replaces a file in one step, readable by its owner only.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let beside = path.with_extension(format!("new.{}", std::process::id()));
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_other_files_is_neither_taken_nor_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("precious"), "").unwrap();
        let refused = Layout::create(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("holds other files"), "{refused}");
        assert!(Layout::find(dir.path()).is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was added");
    }

    #[test]
    fn a_directory_of_its_own_is_taken_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert!(Layout::find(&data).is_none());
        Layout::create(&data).unwrap();
        std::fs::write(data.join("anything"), "").unwrap();
        Layout::create(&data).unwrap();
        assert!(Layout::find(&data).is_some());
    }
}
