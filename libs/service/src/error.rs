//! Why a service did not start, or ended.

use std::error::Error;

use crate::config::ConfigErrors;

/// Any error, for code whose caller can only report it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why the process ends with a code other than 0.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("cannot set up telemetry")]
    Telemetry(#[from] telemetry::TelemetryError),
    /// The operating system refuses something basic.
    #[error("cannot {what}")]
    System { what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Database(#[from] db::DbError),
    #[error(transparent)]
    Migration(#[from] db::migrate::MigrationError),
    /// The database is behind this binary.
    #[error("the database lacks {count} migration(s), the first is {first}: run `{service} migrate`")]
    Pending { service: &'static str, count: usize, first: String },
    #[error("{0} has no database to migrate")]
    NoDatabase(&'static str),
    #[error("{0}")]
    Service(BoxError),
    /// A task that should run as long as the service ended early.
    #[error("the task `{name}` failed")]
    Task { name: String, source: BoxError },
}

impl StartError {
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
    pub fn message(&self) -> String {
        match self {
            Self::Service(error) => telemetry::causes(&**error),
            _ => telemetry::causes(self),
        }
    }
}
