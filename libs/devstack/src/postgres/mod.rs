//! A private PostgreSQL server on loopback.
//!
//! Invariants: it listens on 127.0.0.1 only and has no Unix socket; every login needs a password; a durable server keeps
//! fsync on. As root the server runs as the user `postgres`, because PostgreSQL refuses to run as root.

mod cluster;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Error;
use crate::process::{Identity, Lifetime, StopPlan};
use crate::server::{Server, Start, is_a_server};
use crate::tools::{Tool, Tools};

const PART: &str = "postgres";
const READY_LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SUPERUSER: &str = "postgres";

#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Holds the cluster (`data`), the superuser's password and, unless said otherwise, the log.
    pub dir: PathBuf,
    /// Taken or refused when given; a free one is chosen otherwise.
    pub port: Option<u16>,
    /// fsync on and scram-sha-256 logins. Off for tests, which throw the cluster away.
    pub durable: bool,
    pub log: Option<PathBuf>,
    pub lifetime: Lifetime,
    /// Copies the cluster from a template kept there instead of running initdb each time (tests).
    pub template_cache: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Postgres {
    server: Server,
    password: String,
}

is_a_server!(Postgres);

impl Postgres {
    /// Fast shutdown: sessions are cut, data is written out. Abandoned: immediate shutdown, recovered at the next start.
    pub const STOP: StopPlan =
        StopPlan { graceful: Signal::SIGINT, limit: Duration::from_secs(20), abandoned: Signal::SIGQUIT };

    pub async fn start(tools: &Tools, options: &PostgresOptions) -> Result<Postgres, Error> {
        let program = tools.find(Tool::Postgres)?;
        let initdb = tools.find(Tool::Initdb)?;
        // initdb takes a second or two: other parts must be able to start meanwhile.
        let wanted = options.clone();
        let prepared = tokio::task::spawn_blocking(move || cluster::prepare(&initdb, &wanted)).await;
        let cluster = prepared
            .map_err(|e| Error::Command { what: "making the cluster".into(), detail: e.to_string() })??;
        let start = Start {
            part: PART,
            dir: cluster.data.clone(),
            log: options.log.clone().unwrap_or_else(|| options.dir.join("postgres.log")),
            port: options.port,
            env: [("TZ".to_owned(), "UTC".to_owned())].into(),
            lifetime: options.lifetime.clone(),
            run_as: cluster.run_as,
            stop: Self::STOP,
            ready_limit: READY_LIMIT,
        };
        let command = |port| {
            let mut command =
                vec![program.display().to_string(), "-D".into(), cluster.data.display().to_string()];
            command.extend(settings(port, options.durable));
            command
        };
        let server = Server::start(start, command, ping).await?;
        Ok(Postgres { server, password: cluster.password })
    }

    /// The superuser on the `postgres` database.
    pub fn url(&self) -> String {
        self.database_url(SUPERUSER, &self.password, "postgres")
    }

    pub fn database_url(&self, role: &str, password: &str, database: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port())
    }

    /// The superuser on any database of this server.
    pub fn admin_url(&self, database: &str) -> String {
        self.database_url(SUPERUSER, &self.password, database)
    }

    /// The server that runs now on the cluster of this directory, whoever started it.
    pub fn running_in(dir: &Path) -> Option<Identity> {
        cluster::running_in(dir)
    }

    /// Where the cluster of this directory lies when it does not lie in it.
    pub fn elsewhere(dir: &Path) -> Option<PathBuf> {
        cluster::elsewhere(dir)
    }

    /// Whether a server answers there now; the text says why not.
    pub async fn ping(port: u16) -> Result<(), String> {
        ping(port).await
    }
}

fn settings(port: u16, durable: bool) -> Vec<String> {
    let mut settings = vec![
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        // No socket file: its path would break the 107 byte limit in deep directories, and nobody needs it.
        "unix_socket_directories=".to_owned(),
        "max_connections=300".to_owned(),
        "shared_buffers=64MB".to_owned(),
        "timezone=UTC".to_owned(),
        "log_timezone=UTC".to_owned(),
        "jit=off".to_owned(),
    ];
    if !durable {
        for off in ["fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off"] {
            settings.push(off.to_owned());
        }
    }
    settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// Opens the protocol and reads the first answer: a request for a password means that the server takes logins; error
/// 57P03 means that it is still starting.
async fn ping(port: u16) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(text)?;
    let parameters = format!("user\0{SUPERUSER}\0database\0postgres\0\0");
    let mut message = Vec::new();
    // Length (of itself, the version and the parameters), then protocol version 3.0.
    let length = u32::try_from(8 + parameters.len()).map_err(|e| e.to_string())?;
    message.extend(length.to_be_bytes());
    message.extend(196_608_u32.to_be_bytes());
    message.extend(parameters.as_bytes());
    stream.write_all(&message).await.map_err(text)?;
    let mut answer = [0_u8; 512];
    let read = stream.read(&mut answer).await.map_err(text)?;
    match answer[..read].first() {
        Some(b'R') => Ok(()),
        Some(b'E') => {
            let fields = String::from_utf8_lossy(&answer[5..read]).replace('\0', " ");
            if fields.contains("C57P03") { Err(fields) } else { Ok(()) }
        }
        _ => Err("an answer that is not PostgreSQL's".to_owned()),
    }
}
