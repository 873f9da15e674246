//! A namespace of its own for each test, on one private Redis per test process; or a whole server to break.

use devstack::{Lifetime, Redis, RedisOptions, Tools};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::scratch;

/// A key prefix that nobody else uses, and the server it is on.
#[derive(Debug, Clone)]
pub struct RedisNamespace {
    url: String,
    prefix: String,
    port: u16,
}

/// A whole server of its own, for tests that stop it and start it again.
#[derive(Debug)]
pub struct RedisServer {
    server: Option<Redis>,
    options: RedisOptions,
    url: String,
}

static SERVER: OnceCell<Redis> = OnceCell::const_new();

pub async fn redis() -> RedisNamespace {
    let server = SERVER.get_or_init(|| start(options(false))).await;
    let prefix = format!("t{}:", Uuid::now_v7().simple());
    RedisNamespace { url: server.url(), prefix, port: server.port() }
}

/// A private server that keeps its data over a restart on the same port.
pub async fn redis_server() -> RedisServer {
    let options = options(true);
    let server = start(options.clone()).await;
    let (url, port) = (server.url(), server.port());
    RedisServer { server: Some(server), options: RedisOptions { port: Some(port), ..options }, url }
}

impl RedisNamespace {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends with a colon.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The server's `127.0.0.1:port`, as the target of a [`FaultProxy`](crate::FaultProxy).
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl RedisServer {
    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop().await.unwrap_or_else(|error| panic!("cannot stop the test Redis: {error}"));
        }
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server
                .process()
                .kill()
                .await
                .unwrap_or_else(|error| panic!("cannot kill the test Redis: {error}"));
        }
    }

    /// On the same data and port.
    pub async fn start(&mut self) {
        if self.server.is_none() {
            self.server = Some(start(self.options.clone()).await);
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.server.take());
        // The lifeline removes it only when we die; a leftover is nothing to fail a test for.
        std::fs::remove_dir_all(&self.options.dir).ok();
    }
}

fn options(durable: bool) -> RedisOptions {
    let dir = scratch::server_dir("redis");
    RedisOptions {
        dir: dir.clone(),
        durable,
        lifetime: Lifetime::OwnedWithDirectory(dir),
        ..RedisOptions::default()
    }
}

async fn start(options: RedisOptions) -> Redis {
    let server = Redis::start(&Tools::locate(), &options).await;
    server.unwrap_or_else(|error| panic!("this test needs Redis: {error}"))
}
