//! Which database errors pass by themselves, and which constraint was hit.
//!
//! Owns the one classification of SQLSTATEs; services ask it instead of matching codes. It never decides what a lost
//! connection during COMMIT did: that is unknown, and the caller finds out by its own key.

use crate::pool::Target;

/// What kind of trouble an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection broke or could not be made. A commit under way has an unknown result.
    ConnectionLost,
    /// The server is starting, stopping, or a standby that takes no writes.
    Unavailable,
    /// Connections, memory or disk ran out on the server, or our own pool stayed busy for too long.
    Exhausted,
    /// Serialization failure, deadlock or lock timeout: run the transaction again.
    Contention,
    /// The statement took longer than allowed.
    TimedOut,
    /// A constraint said no.
    Constraint,
    /// The server refused this role, password or database.
    Denied,
    /// Anything else: wrong SQL, wrong types, wrong configuration. Trying again changes nothing.
    Permanent,
}

impl Fault {
    /// Whether the same statement may succeed later without anybody changing it.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::ConnectionLost
            | Self::Unavailable
            | Self::Exhausted
            | Self::Contention
            | Self::TimedOut => true,
            Self::Constraint | Self::Denied | Self::Permanent => false,
        }
    }
}

/// Errors of the pool and of plain queries.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The address could not be read. The text never repeats the address: it holds a password.
    #[error("the database url is not valid: {0}")]
    Url(String),
    #[error("cannot connect to {target}: {reason}")]
    Connect { target: Box<Target>, reason: &'static str, source: sqlx::Error },
    #[error("cannot connect to {target}: no answer within {waited_ms} ms")]
    ConnectTimedOut { target: Box<Target>, waited_ms: u64 },
    #[error("database query failed")]
    Query(#[from] sqlx::Error),
}

impl DbError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::Url(_) => Fault::Permanent,
            Self::Connect { source, .. } | Self::Query(source) => classify(source),
            Self::ConnectTimedOut { .. } => Fault::ConnectionLost,
        }
    }

    pub fn is_transient(&self) -> bool {
        self.fault().is_transient()
    }
}

/// The kind of trouble behind a driver error.
pub fn classify(error: &sqlx::Error) -> Fault {
    use sqlx::Error as E;
    match error {
        E::Database(inner) => inner.code().map_or(Fault::Permanent, |code| classify_code(&code)),
        E::Io(_) | E::WorkerCrashed | E::PoolClosed | E::BeginFailed => Fault::ConnectionLost,
        // A half-read message is what a killed server leaves behind; the connection is gone either way.
        E::Protocol(_) => Fault::ConnectionLost,
        E::PoolTimedOut => Fault::Exhausted,
        E::Tls(_)
        | E::Configuration(_)
        | E::InvalidArgument(_)
        | E::RowNotFound
        | E::TypeNotFound { .. }
        | E::ColumnIndexOutOfBounds { .. }
        | E::ColumnNotFound(_)
        | E::ColumnDecode { .. }
        | E::Encode(_)
        | E::Decode(_)
        | E::AnyDriverError(_)
        | E::Migrate(_)
        | E::InvalidSavePointStatement => Fault::Permanent,
        // The driver's enum is open; what it adds is not retried until it is placed here.
        _ => Fault::Permanent,
    }
}

fn classify_code(code: &str) -> Fault {
    match code {
        // Shutdown by the administrator, crash, still starting; read-only: a standby answered during a failover.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" => Fault::Unavailable,
        "40001" | "40P01" | "55P03" => Fault::Contention,
        "57014" | "25P03" | "25P04" => Fault::TimedOut,
        // I/O error on the server's disk: an operator repairs it, and then it passes.
        "58030" => Fault::Exhausted,
        _ => match code.get(..2) {
            Some("08") => Fault::ConnectionLost,
            // Disk full (53100), out of memory (53200), too many connections (53300).
            Some("53") => Fault::Exhausted,
            Some("23") => Fault::Constraint,
            Some("28") => Fault::Denied,
            _ if code == "3D000" || code == "42501" => Fault::Denied,
            _ => Fault::Permanent,
        },
    }
}

/// The exact name of the violated constraint, for matching.
pub fn constraint(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().and_then(|inner| inner.constraint())
}

/// A short reason for people, from the error alone: the driver's own text follows as the source.
pub(crate) fn connect_reason(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::Database(inner) => match inner.code().as_deref() {
            Some("28P01") => "the password was refused",
            Some("28000") => "the role was refused",
            Some("3D000") => "the database does not exist",
            Some("42501") => "the role may not use this database",
            Some("53300") => "the server has no connection left",
            Some("57P03") => "the server is starting or stopping",
            _ => "the server refused",
        },
        sqlx::Error::Io(io) => match io.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused (is PostgreSQL running there?)",
            std::io::ErrorKind::NotFound => "no such socket or host",
            std::io::ErrorKind::PermissionDenied => "the socket may not be opened by this user",
            _ => "the network failed",
        },
        sqlx::Error::Tls(_) => "TLS failed",
        _ => "the connection could not be set up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_transient_and_nothing_else() {
        for code in [
            "08006", "57P01", "57P03", "53100", "53200", "53300", "40001", "40P01", "55P03", "57014", "25006",
        ] {
            assert!(classify_code(code).is_transient(), "{code}");
        }
        for code in ["23505", "23503", "28P01", "3D000", "42601", "42P01", "22001", "P0001", "", "5"] {
            assert!(!classify_code(code).is_transient(), "{code}");
        }
        assert!(classify(&sqlx::Error::PoolTimedOut).is_transient());
        assert!(!classify(&sqlx::Error::RowNotFound).is_transient());
    }
}
