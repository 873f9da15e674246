//! The indexer as a process: the fee collector's variables, exit codes, signals.

use std::collections::BTreeMap;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::{wait_for, wait_for_value};

use crate::kit::{CHAIN_ID, LONG, World};

/// A child that does not outlive its test.
pub(crate) struct Process {
    child: std::process::Child,
}

impl Process {
    fn start(arguments: &[&str], env: &BTreeMap<String, String>) -> Self {
        Self::spawn(arguments, env, Stdio::piped())
    }

    pub(crate) fn quiet(arguments: &[&str], env: &BTreeMap<String, String>) -> Self {
        Self::spawn(arguments, env, Stdio::null())
    }

    fn spawn(arguments: &[&str], env: &BTreeMap<String, String>, stderr: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_indexer"));
        command.args(arguments).env_clear().envs(env).stdout(Stdio::null()).stderr(stderr);
        Self { child: command.spawn().unwrap() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        let this = std::cell::RefCell::new(self);
        wait_for_value("the process to end", LONG, || async { this.borrow_mut().ended() }).await
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut text).unwrap();
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn variables(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn port() -> u16 {
    devstack::free_port().unwrap()
}

#[tokio::test]
async fn the_fee_collectors_configuration_starts_an_indexer_unchanged() {
    let (world, database) = World::with_history(30).await;
    let port = port().to_string();
    let mongo = database.url().replacen("/?", &format!("/{}?", database.name()), 1);
    let (chain, node) = (CHAIN_ID.to_string(), world.chain.url());
    let env = variables(&[
        ("APP_ENV", "development"),
        ("API_PORT", &port),
        ("LOG_LEVEL", "debug"),
        ("MONGO_URI", &mongo),
        ("ACTIVE_CHAIN", &chain),
        ("RPC_URL", &node),
        ("CONTRACT_ADDRESS", &world.contract),
        ("START_POINT", "0"),
        ("BATCH_SIZE", "10"),
        ("JOB_LEASE_TTL_MS", "120000"),
        ("HISTORICAL_POLL_INTERVAL_MS", "5000"),
        ("REALTIME_POLL_INTERVAL_MS", "100"),
        ("DEV_MULTIPLE_WORKERS", "true"),
    ]);
    let mut process = Process::quiet(&["serve"], &env);
    let base = format!("http://127.0.0.1:{port}");
    let expected = world.facts().await.len();
    wait_for("all fees over HTTP", LONG, || async {
        let Ok(response) = reqwest::get(format!("{base}/fees?integrator={chain}")).await else {
            return false;
        };
        let Ok(body) = response.json::<serde_json::Value>().await else { return false };
        body["pagination"]["total"] == expected
    })
    .await;
    let running = reqwest::get(format!("{base}/")).await.unwrap().text().await.unwrap();
    assert_eq!(running, "Api Running");
    world.assert_stored(&database).await;
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end().await.code(), Some(0));
    // A worker of its own ends as cleanly, on the other signal.
    let mut worker = Process::quiet(&["work"], &env);
    world.emit(4).await;
    wait_for("the worker to store the new events", LONG, || async {
        crate::kit::stored(&database).await.len() == expected + 4
    })
    .await;
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_wrong_start_is_exit_code_one_and_says_why() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let port = port().to_string();
    let mongo = database.url().replacen("/?", &format!("/{}?", database.name()), 1);
    let node = world.chain.url();
    let nowhere = format!("0x{:040x}", 0xdead);
    let good = [
        ("ACTIVE_CHAIN", "137"),
        ("RPC_URL", node.as_str()),
        ("CONTRACT_ADDRESS", world.contract.as_str()),
        ("START_POINT", "0"),
    ];
    let cases = [
        ("RPC_URL", None, "RPC_URL must be set"),
        ("CONTRACT_ADDRESS", None, "CONTRACT_ADDRESS must be set"),
        ("START_POINT", None, "START_POINT must be set"),
        ("START_POINT", Some("genesis"), "START_POINT must be a number"),
        ("ACTIVE_CHAIN", Some("1"), "wrong RPC chain id"),
        ("CONTRACT_ADDRESS", Some(nowhere.as_str()), "no contract deployed"),
        ("RPC_URL", Some("http://127.0.0.1:1"), "no node answers"),
        ("BATCH_SIZE", Some("hundred"), "BATCH_SIZE must be a number"),
        ("API_PORT", Some("http"), "API_PORT: must be the number of a port"),
    ];
    for (name, value, reason) in cases {
        let mut env = variables(&good);
        env.extend(variables(&[("API_PORT", &port), ("MONGO_URI", &mongo), ("LOG_LEVEL", "error")]));
        match value {
            Some(value) => env.insert(name.to_owned(), value.to_owned()),
            None => env.remove(name),
        };
        for command in ["serve", "work"] {
            let mut process = Process::start(&[command], &env);
            let status = process.end().await;
            let said = process.errors();
            assert_eq!(status.code(), Some(1), "{name}={value:?}: {said}");
            assert!(said.contains(reason), "{name}={value:?}: {said}");
        }
    }
}

#[tokio::test]
async fn a_worker_whose_database_goes_for_good_ends_with_exit_code_one() {
    let (world, database) = World::with_history(30).await;
    let proxy = testkit::FaultProxy::tcp(database.address()).await;
    let slow = testkit::FaultProxy::http(world.chain.address()).await;
    let hold = testkit::Hold::new();
    slow.rule(testkit::Rule::on("eth_getLogs", testkit::Upset::Held(hold.clone())));
    let mongo = format!("mongodb://{}/{}?directConnection=true", proxy.address(), database.name());
    let env = variables(&[
        ("ACTIVE_CHAIN", "137"),
        ("RPC_URL", &slow.url()),
        ("CONTRACT_ADDRESS", &world.contract),
        ("START_POINT", "0"),
        ("MONGO_URI", &mongo),
        ("BURSAR_INDEXER__MONGO__TIMEOUT_MS", "300"),
    ]);
    let mut worker = Process::quiet(&["work"], &env);
    // It has a range when the database goes away: neither storing nor releasing can succeed.
    hold.caught(1).await;
    proxy.refuse().await;
    hold.release();
    assert_eq!(worker.end().await.code(), Some(1));
    // Another one takes over what it held, once the lease is over.
    proxy.pass().await;
    let mut settings = world.settings(&database);
    settings.lease_ms = 1_000;
    settings.sources = false;
    let jobs = database.database().await.collection::<mongodb::bson::Document>("blockJobs");
    let over = mongodb::bson::doc! { "$set": { "leaseUntil": mongodb::bson::DateTime::from_millis(0) } };
    jobs.update_many(mongodb::bson::doc! { "status": "processing" }, over).await.unwrap();
    let indexing = settings.launch().await;
    indexing.complete_to("lifi-137", world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}
