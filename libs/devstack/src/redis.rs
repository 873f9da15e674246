//! A private Redis server on loopback.
//!
//! A durable one keeps an append-only file; one for tests keeps nothing on disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Error;
use crate::process::{Lifetime, StopPlan};
use crate::server::{Server, Start, is_a_server, made};
use crate::tools::{Tool, Tools};

const PART: &str = "redis";
const READY_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    pub dir: PathBuf,
    /// Taken or refused when given; a free one is chosen otherwise.
    pub port: Option<u16>,
    pub durable: bool,
    pub log: Option<PathBuf>,
    pub lifetime: Lifetime,
}

#[derive(Debug)]
pub struct Redis {
    server: Server,
}

is_a_server!(Redis);

impl Redis {
    pub const STOP: StopPlan = StopPlan::new(Signal::SIGTERM, Duration::from_secs(10));

    pub async fn start(tools: &Tools, options: &RedisOptions) -> Result<Redis, Error> {
        let program = tools.find(Tool::RedisServer)?;
        let dir = made(&options.dir)?;
        let start = Start {
            part: PART,
            dir: dir.clone(),
            log: options.log.clone().unwrap_or_else(|| options.dir.join("redis.log")),
            port: options.port,
            env: [].into(),
            lifetime: options.lifetime.clone(),
            run_as: None,
            stop: Self::STOP,
            ready_limit: READY_LIMIT,
        };
        let server =
            Server::start(start, |port| command(&program, &dir, port, options.durable), ping).await?;
        Ok(Redis { server })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Whether a server answers there now; the text says why not.
    pub async fn ping(port: u16) -> Result<(), String> {
        ping(port).await
    }
}

fn command(program: &Path, dir: &Path, port: u16, durable: bool) -> Vec<String> {
    // No configuration file: a system-wide one must not reach a private server.
    let dir = dir.display().to_string();
    let port = port.to_string();
    let append = if durable { "yes" } else { "no" };
    let program = program.display().to_string();
    let words = [
        program.as_str(),
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--dir",
        &dir,
        "--daemonize",
        "no",
        "--save",
        "",
        "--appendonly",
        append,
    ];
    words.into_iter().map(str::to_owned).collect()
}

async fn ping(port: u16) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(text)?;
    stream.write_all(b"PING\r\n").await.map_err(text)?;
    let mut answer = [0_u8; 128];
    let read = stream.read(&mut answer).await.map_err(text)?;
    // Anything but PONG, such as LOADING, is a server that does not serve yet.
    if answer[..read].starts_with(b"+PONG") {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&answer[..read]).trim().to_owned())
    }
}
