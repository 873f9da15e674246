//! Connection pools: how a service reaches its database, and how it says why it cannot.
//!
//! Owns the session settings every connection has. It never shows the password, in `Debug`, logs or errors.

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, Transaction};
use tracing::Instrument as _;

use crate::error::{DbError, connect_reason};

/// A connection that rested longer than this is asked for a sign of life before it is handed out. Busy ones are not:
/// that would be a second round trip for each statement.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// How to reach a database. `Debug` leaves out the url, which holds the password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// `postgres://role:password@host:port/database`
    pub url: String,
    /// What `pg_stat_activity` shows: the service's name.
    pub application_name: String,
    pub max_connections: u32,
    /// How long to wait for a free connection, and for the first one.
    pub acquire_timeout_ms: u64,
    /// The server cancels longer statements.
    pub statement_timeout_ms: u64,
    /// The server ends sessions that leave a transaction open and idle: it would pin what vacuum may remove.
    pub idle_in_transaction_timeout_ms: u64,
}

impl DatabaseConfig {
    /// The settings that fit a service, for the given address.
    #[must_use]
    pub fn new(url: impl Into<String>, application_name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            application_name: application_name.into(),
            max_connections: 16,
            acquire_timeout_ms: 5_000,
            statement_timeout_ms: 30_000,
            idle_in_transaction_timeout_ms: 60_000,
        }
    }

    fn options(&self) -> Result<PgConnectOptions, DbError> {
        let options =
            PgConnectOptions::from_str(&self.url).map_err(|error| DbError::Url(url_reason(&error)))?;
        Ok(options.application_name(&self.application_name).options([
            ("statement_timeout", self.statement_timeout_ms.to_string()),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction_timeout_ms.to_string()),
            // The statements of a service are short. Where the planner overestimates one, compiling it would take longer
            // than running it.
            ("jit", "off".to_owned()),
        ]))
    }

    fn pool_options(&self) -> PgPoolOptions {
        PgPoolOptions::new()
            .max_connections(self.max_connections)
            .acquire_timeout(Duration::from_millis(self.acquire_timeout_ms))
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > TRUSTED_IDLE {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
    }
}

impl fmt::Debug for DatabaseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseConfig")
            .field("url", &"[redacted]")
            .field("application_name", &self.application_name)
            .field("max_connections", &self.max_connections)
            .field("acquire_timeout_ms", &self.acquire_timeout_ms)
            .field("statement_timeout_ms", &self.statement_timeout_ms)
            .field("idle_in_transaction_timeout_ms", &self.idle_in_transaction_timeout_ms)
            .finish()
    }
}

/// Which database was meant, without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub database: String,
    pub role: String,
}

impl Target {
    fn of(options: &PgConnectOptions) -> Self {
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let role = options.get_username().to_owned();
        // PostgreSQL's own rule: a database not named is the one named like the role.
        let database = options.get_database().unwrap_or(&role).to_owned();
        Self { host, database, role }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL at {}, database {:?}, role {:?}", self.host, self.database, self.role)
    }
}

/// Opens the pool and proves that the database answers; otherwise says what is wrong.
pub async fn connect(config: &DatabaseConfig) -> Result<PgPool, DbError> {
    let options = config.options()?;
    let target = || Box::new(Target::of(&options));
    // Not through the pool: it would try again until its time is up and then know only that time was up.
    let limit = Duration::from_millis(config.acquire_timeout_ms);
    let mut first = tokio::time::timeout(limit, PgConnection::connect_with(&options))
        .await
        .map_err(|_| DbError::ConnectTimedOut { target: target(), waited_ms: config.acquire_timeout_ms })?
        .map_err(|source| DbError::Connect { target: target(), reason: connect_reason(&source), source })?;
    first.ping().await.map_err(|source| DbError::Connect {
        target: target(),
        reason: connect_reason(&source),
        source,
    })?;
    // The server notices either way; a failed goodbye is no failed start.
    let _ = first.close().await;
    tracing::info!(database = %Target::of(&options), max_connections = config.max_connections, "database connected");
    Ok(config.pool_options().connect_lazy_with(options))
}

/// Opens the pool without connecting: for services that start while their database is away.
pub fn connect_lazy(config: &DatabaseConfig) -> Result<PgPool, DbError> {
    Ok(config.pool_options().connect_lazy_with(config.options()?))
}

/// Separate connections for loops that run the same few statements all day: no other part of the service keeps them waiting,
/// and each connection plans a statement only once (until [`crate::refresh_statistics`] makes it plan anew). Not for lists: with
/// filters that may be absent, one plan does not fit all. Call it on the runtime that will use the pool.
#[must_use]
pub fn dedicated_pool(shared: &PgPool, connections: u32) -> PgPool {
    let options = shared.connect_options();
    let options = options.as_ref().clone().options([("plan_cache_mode", "force_generic_plan")]);
    shared.options().clone().max_connections(connections).connect_lazy_with(options)
}

/// Begins a transaction. In a task of its own, because the beginning must not be cancelled: a caller that went away between
/// `BEGIN` and its answer would leave a transaction that the pool does not know of, and what the next one writes on that
/// connection without a transaction would be acknowledged and then lost with it.
pub async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let pool = pool.clone();
    #[allow(clippy::disallowed_methods, reason = "this is what is to be used in its place")]
    let beginning = tokio::spawn(async move { pool.begin().await }.in_current_span());
    beginning.await.unwrap_or(Err(sqlx::Error::PoolClosed))
}

/// Whether the database answers now.
pub async fn ping(pool: &PgPool) -> Result<(), DbError> {
    sqlx::query("SELECT 1").execute(pool).await?;
    Ok(())
}

fn url_reason(error: &sqlx::Error) -> String {
    match error {
        // The parser's words name the part that is wrong and never quote what was given.
        sqlx::Error::Configuration(inner) => inner.to_string(),
        _ => "it could not be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_in_debug_or_in_errors() {
        for url in
            ["postgres://role:hunter2@host:5/db", "postgres://role:hunter2@host:notaport/db", "hunter2"]
        {
            let config = DatabaseConfig::new(url, "test");
            assert!(!format!("{config:?}").contains("hunter2"));
            if let Err(error) = config.options() {
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
            }
        }
    }

    #[test]
    fn a_target_names_host_database_and_role() {
        let options = DatabaseConfig::new("postgres://payer:x@db.example:6543/execution", "test").options();
        let target = Target::of(&options.expect("a valid url"));
        assert_eq!(
            target.to_string(),
            r#"PostgreSQL at db.example:6543, database "execution", role "payer""#
        );
    }
}
