//! What the main function of every service does alike: command line, configuration, telemetry, database, signals, reload.
//!
//! Owns the life of the process. A service says what is its own (settings, migrations, what to serve) by implementing
//! [`Service`]; its `main.rs` calls [`main`]. Nothing here knows any domain.
//!
//! Exit codes: 0 after a clean stop, 1 when the start or the running service failed, 2 for a wrong configuration or command
//! line. A failed start is one message on standard error that says what to mend.

mod cli;
pub mod config;
mod context;
pub mod delivery;
mod error;
mod fault;
mod launch;
mod outbox;
mod probes;
mod reload;
mod run;
mod signal;

use std::{fmt, future::Future};

pub use clap;
pub use context::Context;
pub use error::{BoxError, StartError};
pub use fault::database_status;
pub use launch::{Running, launch};
pub use probes::listen_arg;
pub use run::{Common, Loaded, load, main};

use crate::config::Reader;

/// One service of Bursar.
pub trait Service: Send + Sync + 'static {
    /// Its name: of the command, of the variables' prefix, in logs and traces.
    const NAME: &'static str;

    /// Whether its database holds an outbox. With one come the subcommands `outbox-list` and `outbox-requeue`.
    const HAS_OUTBOX: bool = false;

    /// Those of its own sections of which a reload (SIGHUP) takes effect at once, or that say themselves what does not. For a
    /// change in any other the operator is told that it needs a restart.
    const LIVE: &'static [&'static str] = &[];

    /// Its own settings. `server`, `telemetry`, `auth` and, with a migrator, `database` are read for it.
    type Config: fmt::Debug + Send + Sync + 'static;

    /// Reads its own settings: ask for everything first, build last, with `?` on what was required.
    fn read(reader: &Reader) -> Option<Self::Config>;

    /// The process's variables as the service understands them: a place to translate names of its own into `BURSAR_` ones.
    fn variables(given: Vec<(String, String)>) -> Vec<(String, String)> {
        given
    }

    /// Its migrations; with them comes a PostgreSQL database that is connected and up to date before `serve`.
    fn migrator() -> Option<&'static sqlx::migrate::Migrator> {
        None
    }

    /// Runs until `ctx.shutdown()`. An error, at any time, ends the process with exit code 1.
    fn serve(ctx: Context<Self::Config>) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Further subcommands.
    fn commands() -> Vec<clap::Command> {
        Vec::new()
    }

    /// Runs one of [`Service::commands`].
    fn command(
        name: &str,
        _arguments: &clap::ArgMatches,
        _ctx: Context<Self::Config>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let error = format!("the subcommand {name} does nothing");
        async move { Err(error.into()) }
    }
}
