//! What can go wrong while a part is started or stopped. Every text says which part, why, and what to do about it.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{program} was not found ({looked_in}); run `scripts/install-tools {subset}` or {alternative}")]
pub struct MissingTool {
    pub program: &'static str,
    pub looked_in: String,
    pub subset: &'static str,
    pub alternative: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Missing(#[from] MissingTool),

    #[error(
        "{part} cannot listen on 127.0.0.1:{port}: the port is in use; free it or let another one be chosen"
    )]
    PortInUse { part: String, port: u16 },

    #[error("no free port was found on 127.0.0.1")]
    NoFreePort,

    #[error("{part} ended before it was ready ({status}); last lines of {}:\n{tail}", log.display())]
    Exited { part: String, status: String, log: PathBuf, tail: String },

    #[error(
        "{part} was not ready after {seconds} s (last answer: {last}); last lines of {}:\n{tail}",
        log.display()
    )]
    NotReady { part: String, seconds: u64, last: String, log: PathBuf, tail: String },

    #[error("{part} is already running on {} with pid {pid}; stop it first", dir.display())]
    AlreadyRunning { part: String, dir: PathBuf, pid: u32 },

    #[error("{part} could not be stopped: pid {pid} is still there {seconds} s after SIGKILL")]
    Unstoppable { part: String, pid: u32, seconds: u64 },

    #[error("{what} failed: {detail}")]
    Command { what: String, detail: String },

    #[error(
        "postgresql refuses to run as root and there is no user `postgres` to run it as; \
         install the Debian package `postgresql` or run as an ordinary user"
    )]
    NoPostgresUser,

    #[error("{what}: {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::File { what, path: path.into(), source }
    }

    /// Whether the part died because somebody else took its port between our look and its bind.
    pub(crate) fn is_lost_port(&self) -> bool {
        match self {
            Error::PortInUse { .. } => true,
            Error::Exited { tail, .. } => {
                let tail = tail.to_ascii_lowercase();
                tail.contains("address already in use") || tail.contains("address in use")
            }
            Error::Missing(_)
            | Error::NoFreePort
            | Error::NotReady { .. }
            | Error::AlreadyRunning { .. }
            | Error::Unstoppable { .. }
            | Error::Command { .. }
            | Error::NoPostgresUser
            | Error::File { .. } => false,
        }
    }
}
