//! A server of somebody else's making on one loopback port: how each of them is started, and what all of them can be asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::port;
use crate::process::{Launch, Lifetime, Process, RunAs, StopPlan};
use crate::wait::until_ready;

/// Gives a type everything that one of its fields has.
macro_rules! derefs_to {
    ($kind:ident, $field:ident: $target:ty) => {
        impl std::ops::Deref for $kind {
            type Target = $target;

            fn deref(&self) -> &$target {
                &self.$field
            }
        }

        impl std::ops::DerefMut for $kind {
            fn deref_mut(&mut self) -> &mut $target {
                &mut self.$field
            }
        }
    };
}
pub(crate) use derefs_to;

/// What differs from server to server, besides its command and its ping.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) part: &'static str,
    pub(crate) dir: PathBuf,
    pub(crate) log: PathBuf,
    /// Taken or refused when given; a free one is chosen otherwise.
    pub(crate) port: Option<u16>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) lifetime: Lifetime,
    pub(crate) run_as: Option<RunAs>,
    pub(crate) stop: StopPlan,
    pub(crate) ready_limit: Duration,
}

#[derive(Debug)]
pub struct Server {
    process: Process,
    port: u16,
}

impl Server {
    /// Starts the command on a port and waits until it answers there. A port that somebody else took between our choice and
    /// the server's bind is given up for another one.
    pub(crate) async fn start<Ping>(
        start: Start,
        command: impl Fn(u16) -> Vec<String>,
        ping: impl Fn(u16) -> Ping,
    ) -> Result<Self, Error>
    where
        Ping: Future<Output = Result<(), String>>,
    {
        let mut tries_left = port::PORT_TRIES;
        loop {
            tries_left -= 1;
            let port = port::for_try(start.part, start.port)?;
            let launch = Launch {
                name: start.part.to_owned(),
                command: command(port),
                env: start.env.clone(),
                dir: start.dir.clone(),
                log: start.log.clone(),
                lifetime: start.lifetime.clone(),
                run_as: start.run_as,
                stop: start.stop,
            };
            let mut process = Process::spawn(&launch)?;
            match until_ready(&mut process, start.ready_limit, || ping(port)).await {
                Ok(()) => return Ok(Self { process, port }),
                Err(error) => {
                    process.stop().await?;
                    if let Some(error) = port::after_failure(start.part, start.port, tries_left, error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub fn into_process(self) -> Process {
        self.process
    }
}

derefs_to!(Server, process: Process);

/// A command line: the program and its options, which are separated by single spaces and hold none themselves.
pub(crate) fn words(program: &Path, options: &str) -> Vec<String> {
    std::iter::once(program.display().to_string()).chain(options.split(' ').map(str::to_owned)).collect()
}

/// The directory, made if it is missing, as an absolute path.
pub(crate) fn made(dir: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(dir).map_err(|e| Error::file("cannot create", dir, e))?;
    dir.canonicalize().map_err(|e| Error::file("cannot resolve", dir, e))
}

/// Gives a kind of server everything that a [`Server`] has.
macro_rules! is_a_server {
    ($kind:ident) => {
        $crate::server::derefs_to!($kind, server: $crate::server::Server);

        impl From<$kind> for $crate::process::Process {
            fn from(kind: $kind) -> Self {
                kind.server.into_process()
            }
        }
    };
}
pub(crate) use is_a_server;
