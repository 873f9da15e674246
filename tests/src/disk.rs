//! A disk below a stack's database that can be filled.

use std::cell::Cell;
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;
use tempfile::{Builder, TempDir};

use crate::payments::PATIENCE;
use crate::stack::Stack;

/// Room for a fresh cluster with the services' databases, and a little more.
const SIZE_MIB: u64 = 320;
const BALLAST: &str = "ballast";

/// The disk below a stack's database. Outlives the stack: bind it first.
#[derive(Debug)]
pub struct Disk {
    /// A small file system in memory, mounted where the stack keeps its database. For users who may not mount there is none:
    /// their server may write no file beyond its first page, which stops it at the next commit.
    mounted: Option<PathBuf>,
    /// Removed after the file system inside it.
    _outside: TempDir,
}

impl Disk {
    /// A stack whose database has a disk of its own.
    pub fn below_a_stack() -> Result<(Self, Stack)> {
        let open = || Permissions::from_mode(0o755);
        let outside = Builder::new().permissions(open()).tempdir()?;
        let inside = Builder::new().permissions(open()).tempdir_in(&outside)?;
        File::create(inside.path().join("bursar-stack.txt"))?
            .write_all(b"A stack that a test starts lives here.\n")?;
        let mounted = mount(&inside.path().join("postgres"))?;
        let disk = Self { mounted, _outside: outside };
        Ok((disk, Stack::start_in(inside)?))
    }

    /// Takes every byte that is left.
    fn fill(&self, stack: &Stack) -> Result<()> {
        let Some(path) = &self.mounted else { return limit(stack, "8192:unlimited") };
        let mut ballast = OpenOptions::new().create(true).append(true).open(path.join(BALLAST))?;
        let mut piece = vec![0_u8; 1 << 20];
        while !piece.is_empty() {
            if ballast.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
        Ok(())
    }

    /// Fills the disk below a signer that is down, and starts it: it is what meets the full disk. Returns how much it has signed
    /// when it can sign no more.
    #[allow(clippy::float_arithmetic, reason = "metrics are floats, and these count")]
    pub async fn starve_the_signer(&self, stack: &Stack) -> Result<f64> {
        // A fresh log file, so that the server survives: it is the tables that cannot grow.
        testkit::execute(&stack.part("postgres")?.url, &["SELECT pg_switch_wal()", "CHECKPOINT"]).await;
        self.fill(stack)?;
        stack.start_again("signer-gateway", &[])?;
        // What fits into pages that are there may still be signed; then nothing is, however often execution asks. Sooner or later
        // execution has no room either, and asks no more.
        let last = Cell::new((-1.0, 0.0));
        testkit::wait_for("the signer to fail for want of room, and to sign nothing", PATIENCE, || async {
            let now = (requests(stack, "signed").await, requests(stack, "failed").await);
            if now.0 > last.get().0 {
                last.set(now);
            }
            let asked_in_vain = now.1 >= last.get().1 + 5.0;
            let asks_no_more = failed_ticks(stack).is_ok_and(|failed| failed >= 5);
            asked_in_vain || asks_no_more
        })
        .await;
        Ok(requests(stack, "signed").await)
    }

    /// There is room again. The server may have gone down with its disk; whoever runs it starts it again.
    pub fn make_room(&self, stack: &Stack) -> Result<()> {
        match &self.mounted {
            // Fails where the server is gone, and its limits with it.
            None => drop(limit(stack, "unlimited:unlimited")),
            Some(path) => std::fs::remove_file(path.join(BALLAST)).context("cannot make room again")?,
        }
        if stack.is_alive("postgres")? { Ok(()) } else { stack.start_again("postgres", &[]) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(path) = &self.mounted {
            // Also when something still stands in it: it is gone from sight, and with its last user.
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

/// How often execution's loops had no room for what they had to write.
fn failed_ticks(stack: &Stack) -> Result<usize> {
    let log = std::fs::read_to_string(&stack.part("execution")?.log)?;
    let full = |line: &&str| line.contains("tick failed") && line.contains("could not extend file");
    Ok(log.lines().filter(full).count())
}

async fn requests(stack: &Stack, outcome: &str) -> f64 {
    let outcome = format!("outcome=\"{outcome}\"");
    stack.metric("signer-gateway", &["bursar_signer_requests_total", &outcome]).await.unwrap_or_default()
}

fn mount(path: &Path) -> Result<Option<PathBuf>> {
    std::fs::create_dir_all(path)?;
    let size = format!("size={SIZE_MIB}m,mode=0755");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &size, "bursar-test"]).arg(path);
    let mounted = geteuid().is_root() && mount.output().is_ok_and(|output| output.status.success());
    Ok(mounted.then(|| path.to_owned()))
}

/// Limits the size of files that the server and each of its sessions may write.
fn limit(stack: &Stack, size: &str) -> Result<()> {
    let postmaster = stack.pid("postgres")?;
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))?;
    let own = postmaster.to_string();
    for pid in std::iter::once(own.as_str()).chain(children.split_whitespace()) {
        let argument = format!("--fsize={size}");
        let done = Command::new("prlimit").args(["--pid", pid, &argument]).output()?;
        // A session may have ended meanwhile; the server itself has not.
        ensure!(done.status.success() || pid != own, "{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
