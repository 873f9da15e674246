//! A server of somebody else's making on one loopback port: how each of them is started, and what all of them can be asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::port;
use crate::process::{Identity, Launch, Lifetime, Process, RunAs, StopPlan};
use crate::wait::until_ready;

/// What differs from server to server, besides its command and its ping.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) part: &'static str,
    /// Where it runs.
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

/// A server that has answered a real request.
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

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn identity(&self) -> Identity {
        self.process.identity()
    }

    pub fn log(&self) -> &Path {
        self.process.log()
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub fn into_process(self) -> Process {
        self.process
    }

    pub async fn stop(&mut self) -> Result<(), Error> {
        self.process.stop().await
    }
}

/// The directory, made if it is missing, as an absolute path.
pub(crate) fn made(dir: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(dir).map_err(|e| Error::file("cannot create", dir, e))?;
    dir.canonicalize().map_err(|e| Error::file("cannot resolve", dir, e))
}

/// Gives a kind of server everything that a [`Server`] has.
macro_rules! is_a_server {
    ($kind:ident) => {
        impl std::ops::Deref for $kind {
            type Target = $crate::server::Server;

            fn deref(&self) -> &$crate::server::Server {
                &self.server
            }
        }

        impl std::ops::DerefMut for $kind {
            fn deref_mut(&mut self) -> &mut $crate::server::Server {
                &mut self.server
            }
        }

        impl From<$kind> for $crate::process::Process {
            fn from(kind: $kind) -> Self {
                kind.server.into_process()
            }
        }
    };
}
pub(crate) use is_a_server;
