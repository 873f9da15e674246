//! A fresh PostgreSQL database for each test, on one private server per test process.
//!
//! Invariants: no two tests share a database; the role of a database owns it and is no superuser; the server and its
//! directory go with the test process.

use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};

use devstack::{Lifetime, Postgres, PostgresOptions, Tools};
use nix::unistd::geteuid;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::scratch;

/// A database of its own with a role of its own. Dropped when the value is.
#[derive(Debug)]
pub struct Database {
    name: String,
    port: u16,
    url: String,
    admin_url: String,
    /// The superuser on the `postgres` database, from which this one can be dropped.
    server_url: String,
}

/// A whole server of its own, for tests that stop it and start it again.
#[derive(Debug)]
pub struct PostgresServer {
    server: Option<Postgres>,
    options: PostgresOptions,
    port: u16,
}

static SERVER: OnceCell<Postgres> = OnceCell::const_new();

/// A fresh, empty database.
pub async fn postgres() -> Database {
    let server = SERVER.get_or_init(|| start(None)).await;
    create(server).await.unwrap_or_else(|error| panic!("cannot create a test database: {error}"))
}

/// A private server that the test may stop, kill and start again on the same data and port.
pub async fn postgres_server() -> PostgresServer {
    let dir = scratch::server_dir("postgres");
    let options = options(dir, None);
    let server = start(Some(options.clone())).await;
    let port = server.port();
    PostgresServer { server: Some(server), options: PostgresOptions { port: Some(port), ..options }, port }
}

impl Database {
    /// As the role that owns the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// As the superuser.
    pub fn admin_url(&self) -> &str {
        &self.admin_url
    }

    /// The name of the database and of its role.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's `127.0.0.1:port`, as the target of a [`FaultProxy`](crate::FaultProxy).
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The owner's URL with another address in it: that of a proxy in front of the server.
    pub fn url_at(&self, address: &str) -> String {
        self.url.replace(&self.address(), address)
    }

    /// A pool as the owner.
    pub async fn pool(&self) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(20).connect(&self.url).await;
        pool.unwrap_or_else(|error| panic!("cannot connect to the test database: {error}"))
    }

    /// Ends every session of this database, as a restart of the server would.
    pub async fn cut_sessions(&self) {
        let name = &self.name;
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        );
        let cut = async { PgConnection::connect(&self.admin_url).await?.execute(AssertSqlSafe(sql)).await };
        cut.await.unwrap_or_else(|error| panic!("cannot cut the sessions of the test database: {error}"));
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        janitor().send((self.server_url.clone(), self.name.clone())).ok();
    }
}

impl PostgresServer {
    pub async fn database(&self) -> Database {
        let server = self.server.as_ref().unwrap_or_else(|| panic!("the server is stopped"));
        create(server).await.unwrap_or_else(|error| panic!("cannot create a test database: {error}"))
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Fast shutdown.
    pub async fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop().await.unwrap_or_else(|error| panic!("cannot stop the test server: {error}"));
        }
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server
                .process()
                .kill()
                .await
                .unwrap_or_else(|error| panic!("cannot kill the test server: {error}"));
        }
    }

    /// On the same data and port.
    pub async fn start(&mut self) {
        if self.server.is_none() {
            self.server = Some(start(Some(self.options.clone())).await);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.server.take());
        // The lifeline removes it only when we die; a leftover is nothing to fail a test for.
        std::fs::remove_dir_all(&self.options.dir).ok();
    }
}

fn options(dir: PathBuf, port: Option<u16>) -> PostgresOptions {
    let cache = std::env::temp_dir().join(format!("bursar-testkit-{}", geteuid()));
    PostgresOptions {
        dir: dir.clone(),
        port,
        durable: false,
        log: None,
        lifetime: Lifetime::OwnedWithDirectory(dir),
        template_cache: Some(cache),
    }
}

async fn start(chosen: Option<PostgresOptions>) -> Postgres {
    let options = chosen.unwrap_or_else(|| options(scratch::server_dir("postgres"), None));
    let server = Postgres::start(&Tools::locate(), &options).await;
    server.unwrap_or_else(|error| panic!("this test needs PostgreSQL: {error}"))
}

async fn create(server: &Postgres) -> Result<Database, sqlx::Error> {
    let name = format!("t_{}", Uuid::now_v7().simple());
    let password = Uuid::now_v7().simple().to_string();
    let mut admin = PgConnection::connect(&server.url()).await?;
    for sql in [
        format!("CREATE ROLE {name} LOGIN PASSWORD '{password}'"),
        format!("CREATE DATABASE {name} OWNER {name}"),
        format!("REVOKE CONNECT ON DATABASE {name} FROM PUBLIC"),
    ] {
        admin.execute(AssertSqlSafe(sql)).await?;
    }
    admin.close().await?;
    Ok(Database {
        port: server.port(),
        url: server.database_url(&name, &password, &name),
        admin_url: server.admin_url(&name),
        server_url: server.url(),
        name,
    })
}

/// Databases are dropped by one thread with a runtime of its own: `Drop` cannot wait, and the runtime of the test that
/// made the database ends with that test.
fn janitor() -> &'static mpsc::Sender<(String, String)> {
    static JANITOR: OnceLock<mpsc::Sender<(String, String)>> = OnceLock::new();
    JANITOR.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<(String, String)>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        std::thread::spawn(move || {
            let Ok(runtime) = runtime else { return };
            for (url, name) in receiver {
                // A server that is stopped or gone has nothing to drop.
                runtime.block_on(remove(&url, &name)).ok();
            }
        });
        sender
    })
}

async fn remove(url: &str, name: &str) -> Result<(), sqlx::Error> {
    let mut admin = PgConnection::connect(url).await?;
    admin.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await?;
    admin.execute(AssertSqlSafe(format!("DROP ROLE {name}"))).await?;
    admin.close().await
}
