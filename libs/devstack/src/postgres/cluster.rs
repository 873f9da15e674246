//! The data directory of a private PostgreSQL: where it lies, who owns it, how it comes to be.
//!
//! Invariants: a directory named `data` is always a complete cluster (it is made beside and renamed); the superuser's
//! password is on disk before the cluster that needs it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{User, geteuid};

use super::{PART, PostgresOptions, SUPERUSER};
use crate::error::Error;
use crate::process::{Identity, RunAs};

/// The user Debian's package makes for the server.
const SERVER_USER: &str = "postgres";

pub(super) struct Cluster {
    pub(super) data: PathBuf,
    pub(super) password: String,
    pub(super) run_as: Option<RunAs>,
}

pub(super) fn prepare(initdb: &Path, options: &PostgresOptions) -> Result<Cluster, Error> {
    let run_as = server_user()?;
    let home = place(&options.dir, run_as)?;
    let data = home.join("data");
    let password_file = options.dir.join("superuser.password");
    if !data.join("PG_VERSION").exists() {
        match &options.template_cache {
            Some(cache) => copy_template(initdb, cache, &home, &password_file, run_as)?,
            None => {
                let password = new_password(&password_file)?;
                init(initdb, &home, &password, options.durable, run_as)?;
            }
        }
    }
    let password = std::fs::read_to_string(&password_file)
        .map_err(|e| Error::file("cannot read the superuser's password", &password_file, e))?;
    clear_stale_lock(&data)?;
    Ok(Cluster { data, password, run_as })
}

fn server_user() -> Result<Option<RunAs>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name(SERVER_USER).ok().flatten().ok_or(Error::NoPostgresUser)?;
    Ok(Some(RunAs { uid: user.uid, gid: user.gid }))
}

/// The directory that holds the cluster: `dir` itself, or one under /var/tmp when the server's user cannot get into
/// `dir` (a clone inside a private home); then `dir/elsewhere` says where.
fn place(dir: &Path, run_as: Option<RunAs>) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(dir).map_err(|e| Error::file("cannot create the directory", dir, e))?;
    let dir = dir.canonicalize().map_err(|e| Error::file("cannot resolve the directory", dir, e))?;
    let Some(user) = run_as else { return Ok(dir) };
    give(&dir, user)?;
    if reachable(&dir, user) {
        return Ok(dir);
    }
    let record = dir.join("elsewhere");
    if let Some(path) = elsewhere(&dir).filter(|path| owned_by(path, user)) {
        return Ok(path);
    }
    let path = PathBuf::from(format!("/var/tmp/bursar-{}", random_hex(8)));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(|e| Error::file("cannot create", &path, e))?;
    give(&path, user)?;
    std::fs::write(&record, path.display().to_string())
        .map_err(|e| Error::file("cannot write", &record, e))?;
    tracing::info!(cluster = %path.display(), "the user postgres cannot enter the data directory");
    Ok(path)
}

/// Asks the kernel rather than guessing from mode bits: ACLs and mounts count too.
fn reachable(dir: &Path, user: RunAs) -> bool {
    let mut command = Command::new("test");
    command.arg("-w").arg(dir).gid(user.gid.as_raw()).uid(user.uid.as_raw()).current_dir("/");
    command.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn init(
    initdb: &Path,
    home: &Path,
    password: &str,
    durable: bool,
    run_as: Option<RunAs>,
) -> Result<(), Error> {
    let partial = home.join("data.partial");
    remove(&partial)?;
    let password_file = home.join("initdb.password");
    write_private(&password_file, password)?;
    if let Some(user) = run_as {
        give(&password_file, user)?;
    }
    let mut command = Command::new(initdb);
    command.args(["--encoding=UTF8", "--locale=C.UTF-8", "--auth-local=reject", "--username", SUPERUSER]);
    // The server checks a plain password on loopback itself; scram makes each client spend milliseconds on every
    // connection, which tests open by the hundred.
    command.arg(if durable { "--auth-host=scram-sha-256" } else { "--auth-host=password" });
    if !durable {
        command.arg("--no-sync");
    }
    command.arg("--pwfile").arg(&password_file).arg("--pgdata").arg(&partial);
    let result = run("initdb", command, home, run_as);
    remove(&password_file)?;
    result?;
    let data = home.join("data");
    std::fs::rename(&partial, &data).map_err(|e| Error::file("cannot name the cluster", &data, e))
}

/// One template for all test processes of this user and server version; made once under a lock, then copied.
fn copy_template(
    initdb: &Path,
    cache: &Path,
    home: &Path,
    password_file: &Path,
    run_as: Option<RunAs>,
) -> Result<(), Error> {
    let template = template(initdb, cache, run_as)?;
    let partial = home.join("data.partial");
    remove(&partial)?;
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]).arg(template.join("data")).arg(&partial);
    run("copying the template cluster", copy, home, run_as)?;
    let from = template.join("superuser.password");
    let password = std::fs::read_to_string(&from).map_err(|e| Error::file("cannot read", &from, e))?;
    write_private(password_file, &password)?;
    let data = home.join("data");
    std::fs::rename(&partial, &data).map_err(|e| Error::file("cannot name the cluster", &data, e))
}

fn template(initdb: &Path, cache: &Path, run_as: Option<RunAs>) -> Result<PathBuf, Error> {
    let version = Command::new(initdb).arg("--version").output();
    let version = version.map_err(|e| Error::file("cannot run", initdb, e))?.stdout;
    let version: String =
        String::from_utf8_lossy(&version).chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    std::fs::create_dir_all(cache).map_err(|e| Error::file("cannot create", cache, e))?;
    // A cache that belongs to somebody else could hold a cluster with their password in it.
    if std::fs::metadata(cache).map(|meta| meta.uid()).ok() != Some(geteuid().as_raw()) {
        return Err(Error::Command {
            what: "using the template cluster".to_owned(),
            detail: format!("{} belongs to another user", cache.display()),
        });
    }
    let home = cache.join(format!("postgres-{version}"));
    let lock_path = cache.join("lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
    let lock = lock.map_err(|e| Error::file("cannot open", &lock_path, e))?;
    let _held = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, e)| Error::file("cannot lock", &lock_path, e.into()))?;
    if !home.join("data/PG_VERSION").exists() {
        std::fs::create_dir_all(&home).map_err(|e| Error::file("cannot create", &home, e))?;
        if let Some(user) = run_as {
            give(&home, user)?;
        }
        let password = new_password(&home.join("superuser.password"))?;
        init(initdb, &home, &password, false, run_as)?;
    }
    Ok(home)
}

/// A lock file left by a crash names a pid that may by now be anybody's, and PostgreSQL would refuse to start for it.
fn clear_stale_lock(data: &Path) -> Result<(), Error> {
    match holder(data) {
        Some(Identity { pid, .. }) => {
            Err(Error::AlreadyRunning { part: PART.to_owned(), dir: data.to_owned(), pid })
        }
        None => remove(&data.join("postmaster.pid")),
    }
}

/// The server that runs on this cluster now, by its lock file.
fn holder(data: &Path) -> Option<Identity> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let identity = Identity::of(text.lines().next()?.trim().parse().ok()?)?;
    let name = std::fs::read_to_string(format!("/proc/{}/comm", identity.pid)).ok()?;
    (name.trim() == "postgres").then_some(identity)
}

/// The record of a cluster outside its directory, believed only if it names a place that we make.
pub(super) fn elsewhere(dir: &Path) -> Option<PathBuf> {
    let path = PathBuf::from(std::fs::read_to_string(dir.join("elsewhere")).ok()?.trim());
    let ours = path.parent() == Some(Path::new("/var/tmp"))
        && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bursar-"));
    (ours && path.is_dir()).then_some(path)
}

/// The server that runs now on the cluster of this directory, wherever the cluster lies.
pub(super) fn running_in(dir: &Path) -> Option<Identity> {
    let elsewhere = elsewhere(dir).and_then(|path| holder(&path.join("data")));
    elsewhere.or_else(|| holder(&dir.join("data")))
}

fn run(what: &str, mut command: Command, dir: &Path, run_as: Option<RunAs>) -> Result<(), Error> {
    if let Some(user) = run_as {
        command.gid(user.gid.as_raw()).uid(user.uid.as_raw());
    }
    let output = command.current_dir(dir).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Error::Command { what: what.to_owned(), detail: e.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let detail = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Command { what: what.to_owned(), detail })
}

fn new_password(file: &Path) -> Result<String, Error> {
    let password = random_hex(16);
    write_private(file, &password)?;
    Ok(password)
}

fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let wrap = |e| Error::file("cannot write", path, e);
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path).map_err(wrap)?;
    // The mode above counts only for a file that is new.
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(wrap)?;
    file.write_all(text.as_bytes()).map_err(wrap)
}

fn give(path: &Path, user: RunAs) -> Result<(), Error> {
    std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
        .map_err(|e| Error::file("cannot hand over to the user postgres", path, e))
}

fn owned_by(path: &Path, user: RunAs) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user.uid.as_raw())
}

fn remove(path: &Path) -> Result<(), Error> {
    let result = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match result {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::file("cannot remove", path, e)),
        _ => Ok(()),
    }
}

fn random_hex(bytes: usize) -> String {
    let mut buffer = vec![0_u8; bytes];
    rand::fill(&mut buffer[..]);
    hex::encode(buffer)
}
