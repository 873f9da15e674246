//! Where things lie: the programs of this workspace, and a directory for everything that is thrown away.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;

const NPM_LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let dir = match std::env::var_os("BURSAR_BIN_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            let own = std::env::current_exe().context("cannot tell where this program lies")?;
            own.parent().map(Path::to_owned).context("this program lies in no directory")?
        }
    };
    let program = dir.join(name);
    ensure!(
        program.is_file(),
        "no {name} in {}; build it with `cargo build --release --workspace --bins`",
        dir.display()
    );
    Ok(program)
}

/// Installs packages of npm into a cache outside any clone; returns the folder. npm runs only when `installed` is not there.
pub(crate) async fn npm(folder: &str, packages: &[&str], installed: &str) -> Result<PathBuf> {
    let tools = devstack::tools_dir().context("there is no cache directory to install it into")?;
    let prefix = tools.join("npm").join(folder);
    if !prefix.join(installed).exists() {
        std::fs::create_dir_all(&prefix).with_context(|| format!("cannot create {}", prefix.display()))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).args(packages);
        npm.current_dir(&prefix);
        run(npm, "npm", NPM_LIMIT).await?;
    }
    Ok(prefix)
}

/// Runs a program to its end and returns what it printed.
pub(crate) async fn run(mut command: Command, name: &str, limit: Duration) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(limit, command.output()).await;
    let output =
        output.with_context(|| format!("{name} did not end"))?.with_context(|| format!("no {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Removed when dropped. Others may pass through it, because PostgreSQL runs as a user of its own when we are root.
pub(crate) fn scratch_dir() -> Result<TempDir> {
    let passable = std::fs::Permissions::from_mode(0o711);
    let dir = tempfile::Builder::new().prefix("bursar-bench-").permissions(passable).tempdir();
    dir.context("cannot make a temporary directory")
}
