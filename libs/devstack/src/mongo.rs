//! A private MongoDB on loopback: a replica set of one member, because transactions need a replica set.
//!
//! Invariant: it is handed out only once it is primary and takes writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress};
use nix::sys::signal::Signal;

use crate::error::Error;
use crate::process::{Lifetime, StopPlan};
use crate::server::{Server, Start, is_a_server, made};
use crate::tools::{Tool, Tools};

const PART: &str = "mongodb";
const REPLICA_SET: &str = "bursar";
const READY_LIMIT: Duration = Duration::from_secs(90);
/// `NotYetInitialized`: the server runs and waits for the configuration of its replica set.
const NOT_YET_INITIALIZED: i32 = 94;
/// `AlreadyInitialized`: an earlier start got this far.
const ALREADY_INITIALIZED: i32 = 23;

#[derive(Debug, Clone, Default)]
pub struct MongoOptions {
    pub dir: PathBuf,
    /// Taken or refused when given; a free one is chosen otherwise.
    pub port: Option<u16>,
    pub log: Option<PathBuf>,
    pub lifetime: Lifetime,
}

#[derive(Debug)]
pub struct Mongo {
    server: Server,
}

is_a_server!(Mongo);

impl Mongo {
    pub const STOP: StopPlan = StopPlan::new(Signal::SIGTERM, Duration::from_secs(20));

    pub async fn start(tools: &Tools, options: &MongoOptions) -> Result<Mongo, Error> {
        let program = tools.find(Tool::Mongod)?;
        let data = made(&options.dir.join("data"))?;
        let start = Start {
            part: PART,
            dir: data.clone(),
            log: options.log.clone().unwrap_or_else(|| options.dir.join("mongodb.log")),
            port: options.port,
            env: [].into(),
            lifetime: options.lifetime.clone(),
            run_as: None,
            stop: Self::STOP,
            ready_limit: READY_LIMIT,
        };
        let server = Server::start(start, |port| command(&program, &data, port), primary).await?;
        Ok(Mongo { server })
    }

    pub fn url(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?replicaSet={REPLICA_SET}", self.port())
    }

    /// Whether a primary answers there now; the text says why not.
    pub async fn ping(port: u16) -> Result<(), String> {
        let hello = client(port)?.database("admin").run_command(doc! { "hello": 1 }).await;
        match hello.map_err(|error| error.to_string())?.get_bool("isWritablePrimary") {
            Ok(true) => Ok(()),
            _ => Err("not primary".to_owned()),
        }
    }
}

fn command(program: &Path, data: &Path, port: u16) -> Vec<String> {
    let program = program.display().to_string();
    let port = port.to_string();
    let data = data.display().to_string();
    let words = [
        program.as_str(),
        "--bind_ip",
        "127.0.0.1",
        "--port",
        &port,
        "--dbpath",
        &data,
        "--replSet",
        REPLICA_SET,
        "--nounixsocket",
        "--oplogSize",
        "64",
        "--wiredTigerCacheSizeGB",
        "0.25",
        // The default lets clients of a real replica set find another primary for 15 s; here there is no other.
        "--setParameter",
        "shutdownTimeoutMillisForSignaledShutdown=100",
        "--setParameter",
        "diagnosticDataCollectionEnabled=false",
    ];
    words.into_iter().map(str::to_owned).collect()
}

/// One step towards a primary: initiates the set when it is new, and moves its only member to this port when the data
/// was last served on another.
async fn primary(port: u16) -> Result<(), String> {
    let client = client(port)?;
    let admin = client.database("admin");
    let text = |error: mongodb::error::Error| error.to_string();
    let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(text)?;
    let writable = hello.get_bool("isWritablePrimary").unwrap_or(false);
    let me = format!("127.0.0.1:{port}");
    if writable && hello.get_str("me").is_ok_and(|name| name == me) {
        return Ok(());
    }
    match admin.run_command(doc! { "replSetGetConfig": 1 }).await {
        Ok(answer) => match moved(&answer, &me) {
            Some(config) => {
                let command = doc! { "replSetReconfig": config, "force": true };
                admin.run_command(command).await.map_err(text)?;
                Err("moving the replica set to its new port".to_owned())
            }
            None => Err("waiting for the election".to_owned()),
        },
        Err(error) if code(&error) == Some(NOT_YET_INITIALIZED) => {
            let config = doc! { "_id": REPLICA_SET, "members": [{ "_id": 0, "host": &me }] };
            match admin.run_command(doc! { "replSetInitiate": config }).await {
                Err(error) if code(&error) != Some(ALREADY_INITIALIZED) => Err(text(error)),
                _ => Err("waiting for the first election".to_owned()),
            }
        }
        Err(error) => Err(text(error)),
    }
}

/// The stored configuration with its member at `me`, if it names another address.
fn moved(answer: &Document, me: &str) -> Option<Document> {
    let mut config = answer.get_document("config").ok()?.clone();
    let version = config.get_i32("version").ok()?;
    let member = config.get_array_mut("members").ok()?.first_mut()?.as_document_mut()?;
    if member.get_str("host").is_ok_and(|host| host == me) {
        return None;
    }
    member.insert("host", me);
    config.insert("version", version + 1);
    Some(config)
}

fn client(port: u16) -> Result<mongodb::Client, String> {
    let limit = Duration::from_secs(2);
    let options = ClientOptions::builder()
        .hosts(vec![ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(port) }])
        .direct_connection(true)
        .connect_timeout(limit)
        .server_selection_timeout(limit)
        .build();
    mongodb::Client::with_options(options).map_err(|error| error.to_string())
}

fn code(error: &mongodb::error::Error) -> Option<i32> {
    match *error.kind {
        mongodb::error::ErrorKind::Command(ref command) => Some(command.code),
        _ => None,
    }
}
