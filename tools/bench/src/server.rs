//! The PostgreSQL that everything durable is measured on: private, fsync and synchronous commit on, the same for ours, the
//! raw limit and the peers.

use std::path::Path;

use anyhow::{Context as _, Result};
use db::DatabaseConfig;
use devstack::{Lifetime, Postgres, PostgresOptions, Tool, Tools};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use crate::pgbench::Pgbench;

#[derive(Debug)]
pub(crate) struct Server {
    postgres: Postgres,
    pub(crate) pgbench: Pgbench,
}

impl Server {
    pub(crate) async fn start(tools: &Tools, dir: &Path) -> Result<Server> {
        let own = dir.join("postgres");
        let options = PostgresOptions {
            dir: own.clone(),
            durable: true,
            lifetime: Lifetime::OwnedWithDirectory(own),
            ..PostgresOptions::default()
        };
        let pgbench = Pgbench::beside(&tools.find(Tool::Postgres)?, dir)?;
        Ok(Server { postgres: Postgres::start(tools, &options).await?, pgbench })
    }

    /// Makes an empty database and returns its address, with the superuser's password in it.
    pub(crate) async fn database(&self, name: &str) -> Result<String> {
        let mut connection = PgConnection::connect(&self.postgres.url()).await?;
        let statement = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .with_context(|| format!("cannot create {name}"))?;
        connection.close().await?;
        Ok(self.postgres.admin_url(name))
    }

    /// A pool as a service has it, with this many connections.
    pub(crate) async fn pool(url: &str, connections: u32) -> Result<PgPool> {
        let config = DatabaseConfig { max_connections: connections, ..DatabaseConfig::new(url, "bench") };
        Ok(db::connect(&config).await?)
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        Ok(self.postgres.stop().await?)
    }
}

/// Writes out what earlier measurements left to be written, so that none pays for another.
pub(crate) async fn settle(pool: &PgPool) -> Result<()> {
    sqlx::query("CHECKPOINT").execute(pool).await?;
    Ok(())
}
