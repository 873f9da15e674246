//! `stack.json`: what runs, where, and with which keys. Other people's scripts drive the stack from it, so its shape is a
//! contract: fields are added, never renamed or removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use devstack::{Anvil, Health, Identity, Mongo, Postgres, Redis, Service, StopPlan, Tron};
use serde::{Deserialize, Serialize};

use super::layout::write_private;
use super::{BSC, BSC_CHAIN_ID, MONGODB, POSTGRES, REDIS, TRON};

/// A server that hangs takes connections and never answers; a health check must not hang with it.
const PING_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Service,
    Dependency,
    Chain,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub kind: Kind,
    pub url: String,
    /// Where the same is answered as JSON over HTTP, for a part with a port for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot: another start time is another process.
    pub started: u64,
    pub log: PathBuf,
    /// Starts the part again when run in `data` with `env`.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// A worker under the orchestrator, which starts and stops it: its process is for worker control to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerPart {
    /// Where it shows health and `/metrics`.
    pub url: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFile {
    pub parts: BTreeMap<String, Part>,
    /// By worker id; empty when the services work themselves.
    #[serde(default)]
    pub workers: BTreeMap<String, WorkerPart>,
    pub databases: BTreeMap<String, String>,
    pub api_keys: BTreeMap<String, String>,
    /// The data directory, absolute.
    pub data: PathBuf,
    /// The `bursar up` that owns the stack when it runs in the foreground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Identity>,
}

impl StackFile {
    pub fn read(path: &Path) -> Result<Option<StackFile>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let file =
            serde_json::from_str(&text).with_context(|| format!("{} is not a stack file", path.display()))?;
        Ok(Some(file))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        write_private(path, &serde_json::to_string_pretty(self)?)
    }

    pub fn any_alive(&self) -> bool {
        self.parts.values().any(|part| part.identity().is_alive())
    }

    pub fn service(&self, name: &str) -> Result<Part> {
        let part = self.parts.get(name).filter(|part| part.kind == Kind::Service).cloned();
        part.with_context(|| format!("{name} is no service of this stack"))
    }
}

impl Part {
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, started: self.started }
    }

    /// The part's health now, by its own protocol. A service may have been started again by the command on record, which gives it
    /// another pid at the same address; of anything else only the process that was started counts.
    pub async fn health(&self, name: &str) -> Health {
        let gone = || Health::Unreachable(format!("no process with pid {}", self.pid));
        let is_alive = self.identity().is_alive();
        if self.kind == Kind::Service {
            let health = devstack::health(&self.url).await;
            return if !is_alive && matches!(health, Health::Unreachable(_)) { gone() } else { health };
        }
        if !is_alive {
            return gone();
        }
        match tokio::time::timeout(PING_LIMIT, self.ping(name)).await {
            Ok(Ok(())) => Health::Serving,
            Ok(Err(why)) => Health::Unreachable(why),
            Err(_) => Health::Unreachable(format!("no answer within {} s", PING_LIMIT.as_secs())),
        }
    }

    async fn ping(&self, name: &str) -> Result<(), String> {
        match (name, self.port()) {
            (POSTGRES, Some(port)) => Postgres::ping(port).await,
            (MONGODB, Some(port)) => Mongo::ping(port).await,
            (REDIS, Some(port)) => Redis::ping(port).await,
            (BSC, Some(port)) => Anvil::ping(port, BSC_CHAIN_ID).await,
            (TRON, Some(port)) => Tron::ping(port).await,
            _ => Err(format!("no way to ask `{name}` at {}", self.url)),
        }
    }

    fn port(&self) -> Option<u16> {
        let address = self.url.split_once("://")?.1;
        let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
        address.split('/').next()?.rsplit_once(':')?.1.parse().ok()
    }
}

/// How a part is stopped, by its name.
pub fn stop_plan(name: &str) -> StopPlan {
    match name {
        POSTGRES => Postgres::STOP,
        MONGODB => Mongo::STOP,
        REDIS => Redis::STOP,
        BSC => Anvil::STOP,
        TRON => Tron::STOP,
        _ => Service::STOP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: Kind, url: &str) -> Part {
        Part {
            kind,
            url: url.to_owned(),
            http: None,
            pid: 7,
            started: 99,
            log: "/d/logs/x.log".into(),
            command: vec!["x".into(), "serve".into()],
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn the_file_has_the_shape_that_scripts_rely_on() {
        let mut control = part(Kind::Service, "http://127.0.0.1:4");
        control.http = Some("http://127.0.0.1:3001".to_owned());
        let file = StackFile {
            parts: [
                ("worker-control".to_owned(), control),
                ("intent".to_owned(), part(Kind::Service, "http://127.0.0.1:1")),
                (POSTGRES.to_owned(), part(Kind::Dependency, "postgres://postgres:pw@127.0.0.1:2/postgres")),
                (BSC.to_owned(), part(Kind::Chain, "http://127.0.0.1:3")),
            ]
            .into(),
            workers: [("indexer".to_owned(), WorkerPart { url: "http://127.0.0.1:4".to_owned() })].into(),
            databases: [("intent".to_owned(), "postgres://intent:pw@127.0.0.1:2/intent".to_owned())].into(),
            api_keys: [("requester".to_owned(), "bk_00".to_owned())].into(),
            data: "/d".into(),
            launcher: None,
        };
        let value = serde_json::to_value(&file).unwrap();
        assert_eq!(
            value["parts"]["intent"],
            serde_json::json!({
                "kind": "service", "url": "http://127.0.0.1:1", "pid": 7, "started": 99, "log": "/d/logs/x.log",
                "command": ["x", "serve"], "env": {},
            })
        );
        assert_eq!(value["parts"]["worker-control"]["http"], "http://127.0.0.1:3001");
        assert_eq!(value["parts"]["postgres"]["kind"], "dependency");
        assert_eq!(value["parts"]["bsc"]["kind"], "chain");
        assert_eq!(value["workers"], serde_json::json!({ "indexer": { "url": "http://127.0.0.1:4" } }));
        assert_eq!(value["databases"]["intent"], "postgres://intent:pw@127.0.0.1:2/intent");
        assert_eq!(value["api_keys"]["requester"], "bk_00");
        assert_eq!(serde_json::from_value::<StackFile>(value).unwrap(), file);
    }

    #[test]
    fn a_written_file_is_private_and_read_back() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stack.json");
        assert_eq!(StackFile::read(&path).unwrap(), None);
        let file = StackFile {
            parts: BTreeMap::new(),
            workers: BTreeMap::new(),
            databases: BTreeMap::new(),
            api_keys: BTreeMap::new(),
            data: dir.path().to_owned(),
            launcher: Identity::of(std::process::id()),
        };
        file.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(StackFile::read(&path).unwrap(), Some(file));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_recycled_pid_is_not_a_part_that_runs() {
        let me = Identity::of(std::process::id()).unwrap();
        let mut mine = part(Kind::Service, "http://127.0.0.1:1");
        (mine.pid, mine.started) = (me.pid, me.started);
        assert!(mine.identity().is_alive());
        mine.started += 1;
        assert!(!mine.identity().is_alive());
    }

    #[tokio::test]
    async fn a_server_that_takes_connections_and_never_answers_is_down() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let me = Identity::of(std::process::id()).unwrap();
        let url = format!("postgres://postgres:pw@{}/postgres", silent.local_addr().unwrap());
        let mut mine = part(Kind::Dependency, &url);
        (mine.pid, mine.started) = (me.pid, me.started);
        assert_eq!(mine.health(POSTGRES).await, Health::Unreachable("no answer within 3 s".to_owned()));
    }

    #[test]
    fn the_port_is_read_from_every_kind_of_url() {
        let port = |url: &str| part(Kind::Dependency, url).port();
        assert_eq!(port("postgres://postgres:p:w@127.0.0.1:5432/postgres"), Some(5432));
        assert_eq!(port("mongodb://127.0.0.1:27017/?replicaSet=bursar"), Some(27017));
        assert_eq!(port("redis://127.0.0.1:6379"), Some(6379));
        assert_eq!(port("http://127.0.0.1"), None);
    }
}
