//! Directories for servers that are thrown away.

use std::path::PathBuf;

/// A new directory for a server, removed by the server's lifeline. `what` is part of its name, so that a person who
/// finds it knows what it was.
pub(crate) fn server_dir(what: &str) -> PathBuf {
    let dir = tempfile::Builder::new().prefix(&format!("bursar-{what}-")).tempdir();
    dir.unwrap_or_else(|error| panic!("cannot create a temporary directory: {error}")).keep()
}

/// A directory that is removed when the value is dropped.
pub fn scratch_dir() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("bursar-test-").tempdir();
    dir.unwrap_or_else(|error| panic!("cannot create a temporary directory: {error}"))
}
