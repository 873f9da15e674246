//! Brings a database up to what this binary knows, one migration at a time.
//!
//! Owns the order of steps, the lock, and the words when a step fails. It never changes what was applied: forward only,
//! and a migration whose text changed after it was applied is refused.
//!
//! Each migration and the note that it was applied are one transaction, so a failed one leaves nothing behind and a rerun
//! goes on from there. Old and new binaries run side by side: a database that is ahead of this binary is accepted, as
//! long as everything this binary knows is applied and unchanged.

use std::collections::BTreeMap;

use sqlx::migrate::{Migrate as _, MigrateError, Migration, Migrator};
use sqlx::{Connection as _, PgConnection, PgPool};

const TABLE: &str = "_sqlx_migrations";

/// A migration as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub version: i64,
    /// The file's name, as rebuilt from version and description.
    pub file: String,
}

impl Step {
    fn of(migration: &Migration) -> Self {
        let words = migration.description.replace(' ', "_");
        Self { version: migration.version, file: format!("{:04}_{words}.sql", migration.version) }
    }
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrated {
    pub applied: Vec<Step>,
    /// Versions in the database that this binary does not know: a newer binary was here.
    pub ahead: Vec<i64>,
}

/// Why a database could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error("cannot reach the database to migrate it")]
    Connection(#[source] sqlx::Error),
    #[error("migration {version} ({file}) failed and was undone: {reason}")]
    Failed { version: i64, file: String, reason: String, source: sqlx::Error },
    #[error("migration {version} ({file}) was changed after it was applied to this database")]
    Changed { version: i64, file: String },
    #[error(
        "migration {version} ({file}) asks to run outside a transaction, so a failure could leave half of it behind"
    )]
    NotTransactional { version: i64, file: String },
    #[error("migration {version} was half applied by another tool")]
    Dirty { version: i64 },
    #[error(
        "the database has migration {unknown}, unknown here, but lacks {version} ({file}), which comes with this binary"
    )]
    Diverged { unknown: i64, version: i64, file: String },
    #[error("the table of applied migrations cannot be used")]
    Bookkeeping(#[source] MigrateError),
}

impl MigrationError {
    /// Whether running again may succeed without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection(source) | Self::Failed { source, .. } => crate::classify(source).is_transient(),
            Self::Bookkeeping(MigrateError::Execute(source)) => crate::classify(source).is_transient(),
            Self::Changed { .. }
            | Self::NotTransactional { .. }
            | Self::Dirty { .. }
            | Self::Diverged { .. }
            | Self::Bookkeeping(_) => false,
        }
    }
}

/// Applies what is missing. Safe when several start at once: one works, the others wait and then find nothing to do.
pub async fn run(pool: &PgPool, migrator: &Migrator) -> Result<Migrated, MigrationError> {
    // A connection of its own, closed at the end whatever happens: the lock belongs to the session, and the pool's
    // statement timeout must cut off neither a long migration nor the wait for somebody else's.
    let mut connection =
        PgConnection::connect_with(&pool.connect_options()).await.map_err(MigrationError::Connection)?;
    let result = run_on(&mut connection, migrator).await;
    let _ = connection.close().await;
    result
}

async fn run_on(connection: &mut PgConnection, migrator: &Migrator) -> Result<Migrated, MigrationError> {
    sqlx::raw_sql("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
        .execute(&mut *connection)
        .await
        .map_err(MigrationError::Connection)?;
    connection.lock().await.map_err(MigrationError::Bookkeeping)?;
    connection.ensure_migrations_table(TABLE).await.map_err(MigrationError::Bookkeeping)?;
    if let Some(version) = connection.dirty_version(TABLE).await.map_err(MigrationError::Bookkeeping)? {
        return Err(MigrationError::Dirty { version });
    }
    let applied = applied_on(connection).await?;
    let plan = plan(migrator, &applied)?;
    let mut done = Migrated { applied: Vec::new(), ahead: plan.ahead };
    if !done.ahead.is_empty() {
        tracing::warn!(versions = ?done.ahead, "the database is ahead of this binary; going on, as all it knows is applied");
    }
    for migration in plan.pending {
        done.applied.push(apply(connection, migration).await?);
    }
    tracing::info!(applied = done.applied.len(), known = migrator.iter().count(), "database is up to date");
    Ok(done)
}

async fn apply(connection: &mut PgConnection, migration: &Migration) -> Result<Step, MigrationError> {
    let step = Step::of(migration);
    tracing::info!(version = step.version, file = %step.file, "applying migration");
    match connection.apply(TABLE, migration).await {
        Ok(took) => {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(version = step.version, file = %step.file, took_ms, "migration applied");
            Ok(step)
        }
        Err(MigrateError::ExecuteMigration(source, _) | MigrateError::Execute(source)) => {
            let Step { version, file } = step;
            Err(MigrationError::Failed { version, file, reason: reason(&source), source })
        }
        Err(other) => Err(MigrationError::Bookkeeping(other)),
    }
}

/// What `run` would apply. Changes nothing, and does not need the bookkeeping table to exist.
pub async fn pending(pool: &PgPool, migrator: &Migrator) -> Result<Vec<Step>, MigrationError> {
    let mut connection = pool.acquire().await.map_err(MigrationError::Connection)?;
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(TABLE)
        .fetch_one(&mut *connection)
        .await
        .map_err(MigrationError::Connection)?;
    let applied = if exists { applied_on(&mut connection).await? } else { BTreeMap::new() };
    Ok(plan(migrator, &applied)?.pending.into_iter().map(Step::of).collect())
}

async fn applied_on(connection: &mut PgConnection) -> Result<BTreeMap<i64, Vec<u8>>, MigrationError> {
    let applied = connection.list_applied_migrations(TABLE).await.map_err(MigrationError::Bookkeeping)?;
    Ok(applied.into_iter().map(|row| (row.version, row.checksum.into_owned())).collect())
}

struct Plan<'m> {
    pending: Vec<&'m Migration>,
    ahead: Vec<i64>,
}

fn plan<'m>(migrator: &'m Migrator, applied: &BTreeMap<i64, Vec<u8>>) -> Result<Plan<'m>, MigrationError> {
    let mut pending = Vec::new();
    for migration in migrator.iter().filter(|migration| !migration.migration_type.is_down_migration()) {
        let Step { version, file } = Step::of(migration);
        match applied.get(&version) {
            Some(checksum) if *checksum != *migration.checksum => {
                return Err(MigrationError::Changed { version, file });
            }
            Some(_) => {}
            None if migration.no_tx => return Err(MigrationError::NotTransactional { version, file }),
            None => pending.push(migration),
        }
    }
    let ahead: Vec<i64> =
        applied.keys().copied().filter(|version| !migrator.version_exists(*version)).collect();
    // Ahead and behind at once is another line of history, not a newer binary of this one.
    if let (Some(unknown), Some(missing)) = (ahead.first(), pending.first()) {
        let Step { version, file } = Step::of(missing);
        return Err(MigrationError::Diverged { unknown: *unknown, version, file });
    }
    Ok(Plan { pending, ahead })
}

fn reason(error: &sqlx::Error) -> String {
    let Some(inner) = error.as_database_error() else {
        return "the connection failed".to_owned();
    };
    let postgres = inner.try_downcast_ref::<sqlx::postgres::PgDatabaseError>();
    let detail =
        postgres.and_then(|error| error.detail()).map(|text| format!(" ({text})")).unwrap_or_default();
    let code = inner.code().map(|code| format!(" [{code}]")).unwrap_or_default();
    format!("{}{detail}{code}", inner.message())
}
