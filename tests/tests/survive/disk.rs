//! The database's disk is full.

use std::cell::Cell;
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};
use tests::judge::judge;
use tests::payments::{Customer, PATIENCE};
use tests::report::say;
use tests::stack::Stack;

use crate::support::metric;

/// Room for a fresh cluster with the services' databases, and a little more.
const SIZE_MIB: u64 = 320;
const BALLAST: &str = "ballast";

/// The disk below the stack's database.
enum Disk {
    /// A small file system in memory, mounted where the stack keeps its database.
    Mounted(PathBuf),
    /// For users who may not mount: the server may write no file beyond its first page, which stops it at the next commit.
    Limited,
}

impl Disk {
    fn mount(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let size = format!("size={SIZE_MIB}m,mode=0755");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "bursar-test"]).arg(path);
        let mounted = geteuid().is_root() && mount.output().is_ok_and(|output| output.status.success());
        Ok(if mounted { Self::Mounted(path.to_owned()) } else { Self::Limited })
    }

    /// Takes every byte that is left.
    fn fill(&self, stack: &Stack) -> Result<()> {
        match self {
            Self::Limited => limit(stack, "8192:unlimited"),
            Self::Mounted(path) => {
                let mut ballast = OpenOptions::new().create(true).append(true).open(path.join(BALLAST))?;
                let mut piece = vec![0_u8; 1 << 20];
                while !piece.is_empty() {
                    if ballast.write_all(&piece).is_err() {
                        piece.truncate(piece.len() / 2);
                    }
                }
                Ok(())
            }
        }
    }

    fn make_room(&self, stack: &Stack) -> Result<()> {
        match self {
            // The server may be gone, and its limits with it.
            Self::Limited => limit(stack, "unlimited:unlimited").or(Ok(())),
            Self::Mounted(path) => std::fs::remove_file(path.join(BALLAST)).context("cannot make room again"),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Self::Mounted(path) = self {
            // Also when something still stands in it: it is gone from sight, and with its last user.
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

/// Limits the size of files that the server and each of its sessions may write.
fn limit(stack: &Stack, size: &str) -> Result<()> {
    let postmaster = stack.part("postgres")?.pid;
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

async fn requests(stack: &Stack, outcome: &str) -> f64 {
    let outcome = format!("outcome=\"{outcome}\"");
    metric(stack, "signer-gateway", &["bursar_signer_requests_total", &outcome]).await.unwrap_or_default()
}

/// The server of a stack may have gone down with its disk; whoever runs it starts it again.
fn revive(stack: &Stack) -> Result<()> {
    if kill(Pid::from_raw(stack.part("postgres")?.pid), None).is_err() {
        stack.start_again("postgres", &[])?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_signing_and_recovers_without_hand_work() -> Result<()> {
    // Dropped last, after the disk inside it.
    let outside = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir()?;
    let inside = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in(&outside)?;
    File::create(inside.path().join("bursar-stack.txt"))?
        .write_all(b"A stack that a test starts lives here.\n")?;
    let disk = Disk::mount(&inside.path().join("postgres"))?;
    let stack = Stack::start_in(inside)?;
    let customer = Customer::of(&stack)?;
    let mut paid = customer.order_some(4).await?;
    customer.all_completed(&paid).await?;

    // Everything up to the signer is done while there is room, so that the signer is what meets the full disk.
    stack.kill("signer-gateway")?;
    paid.extend(customer.order_some(30).await?);
    // A fresh log file, so that the server survives: it is the tables that cannot grow.
    testkit::execute(&stack.part("postgres")?.url, &["SELECT pg_switch_wal()", "CHECKPOINT"]).await;
    disk.fill(&stack)?;
    stack.start_again("signer-gateway", &[])?;
    // What fits into pages that are there may still be signed; then nothing is, however often execution asks.
    let last = Cell::new((-1.0, 0.0));
    testkit::wait_for("the signer to fail for want of room, and to sign nothing", PATIENCE, || async {
        let now = (requests(&stack, "signed").await, requests(&stack, "failed").await);
        if now.0 > last.get().0 {
            last.set(now);
        }
        now.1 >= last.get().1 + 5.0
    })
    .await;
    let signed = requests(&stack, "signed").await;
    ensure!(signed < 30.0, "all {signed} were signed on a full disk");

    disk.make_room(&stack)?;
    revive(&stack)?;
    customer.all_completed(&paid).await?;
    judge(&stack, &customer, &paid).await?;
    say(format_args!("{signed} of 30 signed before the disk was full, the others after"));
    Ok(())
}
