//! Secrets on disk: made from the system's randomness, readable by their owner only, whole or not there, never overwritten.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::stack::layout::write_private;

pub fn random_hex() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

/// Writes a secret to a file that must not exist yet.
pub fn write_new(file: &Path, secret: &str) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut handle = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("cannot create {}", file.display()))?;
    writeln!(handle, "{secret}").with_context(|| format!("cannot write {}", file.display()))
}

/// The secret in a file; made on first use, so that a restart finds the same.
pub fn keep(file: &Path) -> Result<String> {
    if !file.exists() {
        write_private(file, &format!("{}\n", random_hex()))?;
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim().to_owned())
}
