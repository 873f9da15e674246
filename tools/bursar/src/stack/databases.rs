//! One database and one role for each service that keeps its data in PostgreSQL.
//!
//! Invariants: each step may be repeated; a role is no superuser and can enter no database but its own.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::keys::Keys;

/// The PostgreSQL databases, each with a role of the same name.
pub(super) const DATABASES: [&str; 5] = ["intent", "execution", "confirmation", "signer", "worker_control"];

/// Creates what is missing; the URLs by database name. `server` is the superuser's URL.
pub(super) async fn create(server: &str, keys: &Keys) -> Result<BTreeMap<String, String>> {
    let mut admin = PgConnection::connect(server).await.context("cannot enter the private PostgreSQL")?;
    let mut urls = BTreeMap::new();
    for name in DATABASES {
        let password = keys.database_passwords.get(name).cloned().unwrap_or_default();
        let made = create_one(&mut admin, name, &password).await;
        made.with_context(|| format!("cannot create the database {name}"))?;
        urls.insert(name.to_owned(), role_url(server, name, &password)?);
    }
    admin.close().await?;
    Ok(urls)
}

/// Names come from the list above and passwords are hex, so neither needs quoting.
async fn create_one(admin: &mut PgConnection, name: &str, password: &str) -> Result<()> {
    let exists =
        |table: &str, column: &str| format!("SELECT count(*) FROM {table} WHERE {column} = '{name}'");
    if count(admin, exists("pg_roles", "rolname")).await? == 0 {
        admin.execute(AssertSqlSafe(format!("CREATE ROLE {name} LOGIN"))).await?;
    }
    admin.execute(AssertSqlSafe(format!("ALTER ROLE {name} PASSWORD '{password}'"))).await?;
    if count(admin, exists("pg_database", "datname")).await? == 0 {
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name} OWNER {name}"))).await?;
    }
    admin.execute(AssertSqlSafe(format!("REVOKE CONNECT ON DATABASE {name} FROM PUBLIC"))).await?;
    Ok(())
}

async fn count(admin: &mut PgConnection, sql: String) -> Result<i64> {
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(admin).await?)
}

fn role_url(server: &str, name: &str, password: &str) -> Result<String> {
    let (_, address) = server.rsplit_once('@').context("the server's URL holds no address")?;
    let (address, _) = address.split_once('/').context("the server's URL names no database")?;
    Ok(format!("postgres://{name}:{password}@{address}/{name}"))
}
