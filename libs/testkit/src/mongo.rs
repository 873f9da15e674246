//! A fresh MongoDB database for each test, on one private replica set per test process.

use devstack::{Lifetime, Mongo, MongoOptions, Tools};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::scratch;

/// The name of a database that nobody else uses, and the server it is on. It goes with the server.
#[derive(Debug, Clone)]
pub struct MongoDatabase {
    url: String,
    name: String,
    port: u16,
}

static SERVER: OnceCell<Mongo> = OnceCell::const_new();

/// A fresh, empty database. Transactions work: the server is a replica set of one.
pub async fn mongo() -> MongoDatabase {
    let server = SERVER.get_or_init(start).await;
    let name = format!("t_{}", Uuid::now_v7().simple());
    MongoDatabase { url: server.url(), name, port: server.port() }
}

impl MongoDatabase {
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's `127.0.0.1:port`, as the target of a [`FaultProxy`](crate::FaultProxy).
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A URL for a proxy in front of the server. Direct, because the driver would otherwise learn the server's own
    /// address from the replica set and go around the proxy.
    pub fn url_at(&self, address: &str) -> String {
        format!("mongodb://{address}/?directConnection=true")
    }

    pub async fn client(&self) -> mongodb::Client {
        let client = mongodb::Client::with_uri_str(&self.url).await;
        client.unwrap_or_else(|error| panic!("cannot connect to the test MongoDB: {error}"))
    }

    pub async fn database(&self) -> mongodb::Database {
        self.client().await.database(&self.name)
    }
}

async fn start() -> Mongo {
    let dir = scratch::server_dir("mongodb");
    let options = MongoOptions {
        dir: dir.clone(),
        lifetime: Lifetime::OwnedWithDirectory(dir),
        ..MongoOptions::default()
    };
    let server = Mongo::start(&Tools::locate(), &options).await;
    server.unwrap_or_else(|error| panic!("this test needs MongoDB: {error}"))
}
