//! Where things lie: the programs of this workspace, and a directory for everything that is thrown away.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// A program of this workspace, built beside this one.
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

/// Removed when dropped. Others may pass through it, because PostgreSQL runs as a user of its own when we are root.
pub(crate) fn scratch_dir() -> Result<TempDir> {
    let passable = std::fs::Permissions::from_mode(0o711);
    let dir = tempfile::Builder::new().prefix("bursar-bench-").permissions(passable).tempdir();
    dir.context("cannot make a temporary directory")
}
