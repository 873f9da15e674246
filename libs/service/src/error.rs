//! Why a service did not start or did not go on.

use std::error::Error;

use crate::config::ConfigErrors;

/// Any error, for code whose caller can only report it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why the process ends with a code other than 0.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Telemetry could not be set up.
    #[error("cannot set up telemetry")]
    Telemetry(#[from] telemetry::TelemetryError),
    /// The operating system refuses something basic.
    #[error("cannot {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] db::DbError),
    /// The migrations cannot be read or applied.
    #[error(transparent)]
    Migration(#[from] db::migrate::MigrationError),
    /// The database is behind this binary.
    #[error("the database lacks {count} migration(s), the first is {first}: run `{service} migrate`")]
    Pending {
        /// The command to run.
        service: &'static str,
        /// How many are missing.
        count: usize,
        /// The first of them.
        first: String,
    },
    /// The service has no database to migrate.
    #[error("{0} has no database to migrate")]
    NoDatabase(&'static str),
    /// The service itself failed.
    #[error("{0}")]
    Service(BoxError),
    /// A task that should run as long as the service ended early.
    #[error("the task `{name}` failed")]
    Task {
        /// Which one.
        name: String,
        /// Why.
        source: BoxError,
    },
}

impl StartError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Telemetry(_)
            | Self::System { .. }
            | Self::Database(_)
            | Self::Migration(_)
            | Self::Pending { .. }
            | Self::NoDatabase(_)
            | Self::Service(_)
            | Self::Task { .. } => 1,
        }
    }

    /// The message for people: what went wrong and every cause, in one line.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Service(error) => telemetry::causes(&**error),
            _ => telemetry::causes(self),
        }
    }
}
