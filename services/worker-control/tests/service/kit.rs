//! A fleet for each test: database, Redis, worker file, and orchestrators as real processes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fred::prelude::{Client, ClientLike as _, HashesInterface as _, KeysInterface as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use rpc::{ClientConfig, Secret, connect_lazy};
use testkit::{Database, wait_for_value};
use tokio::sync::OnceCell;
use worker::redis::{Redis, RedisConfig};
use worker::{Keys, WorkerId};

/// Generous: tests share two cores with others.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const KEY: &str = "test-key";

pub(crate) struct TestFleet {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) database: Database,
    pub(crate) redis_url: String,
    pub(crate) keys: Keys,
    /// Settings of `[orchestrator]` and `[worker]`, as TOML texts.
    pub(crate) orchestrator: BTreeMap<&'static str, String>,
    pub(crate) worker: BTreeMap<&'static str, String>,
    /// Variables of orchestrators beside what they inherit.
    pub(crate) environment: Vec<(&'static str, String)>,
    client: OnceCell<Client>,
    _redis: Option<testkit::RedisNamespace>,
}

/// An orchestrator's process. Dropping it kills it and every worker it has left.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) grpc: u16,
    pub(crate) http: u16,
    log: PathBuf,
}

pub(crate) type WorkerClient = WorkerServiceClient<rpc::Client>;

impl TestFleet {
    /// On the Redis that the tests of this program share.
    pub(crate) async fn new() -> Self {
        let redis = testkit::redis().await;
        let mut fleet = Self::on(redis.url(), redis.prefix()).await;
        fleet._redis = Some(redis);
        fleet
    }

    /// With these shell workers in its file.
    pub(crate) async fn with(workers: &[(&str, &str)]) -> Self {
        let fleet = Self::new().await;
        fleet.workers(&fleet.shell(workers));
        fleet
    }

    /// The same with an orchestrator that leads.
    pub(crate) async fn started(workers: &[(&str, &str)]) -> (Self, Process) {
        let fleet = Self::with(workers).await;
        let first = fleet.start("first").await;
        (fleet, first)
    }

    /// With short intervals: what takes minutes in production takes seconds here.
    pub(crate) async fn on(redis_url: &str, namespace: &str) -> Self {
        let database = testkit::postgres().await;
        db::migrate::run(&database.pool().await, &worker_control::MIGRATOR).await.unwrap();
        let dir = tempfile::Builder::new().prefix("bursar-fleet-").tempdir().unwrap();
        let orchestrator = [
            ("lock_ttl_ms", 3_000),
            ("health_interval_ms", 200),
            ("heartbeat_timeout_ms", 4_000),
            ("backoff_base_ms", 300),
            ("backoff_cap_ms", 1_200),
            ("give_up_after", 4),
            ("settled_after_ms", 400),
            ("shutdown_grace_ms", 1_500),
            ("look_interval_ms", 50),
        ];
        let worker = [("heartbeat_interval_ms", 100), ("heartbeat_ttl_ms", 3_000)];
        let text = |all: &[(&'static str, i32)]| all.iter().map(|(k, v)| (*k, v.to_string())).collect();
        let fleet = Self {
            orchestrator: text(&orchestrator),
            worker: text(&worker),
            redis_url: redis_url.to_owned(),
            keys: Keys::new(namespace),
            environment: Vec::new(),
            database,
            dir,
            client: OnceCell::new(),
            _redis: None,
        };
        fleet.workers("");
        fleet
    }

    fn workers_file(&self) -> PathBuf {
        self.dir.path().join("workers.toml")
    }

    /// Writes the worker file.
    pub(crate) fn workers(&self, text: &str) {
        std::fs::write(self.workers_file(), text).unwrap();
    }

    /// Entries of the worker file for shell workers, by id and mode.
    pub(crate) fn shell(&self, workers: &[(&str, &str)]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/worker.sh");
        let starts = self.starts_file();
        workers
            .iter()
            .map(|(id, mode)| {
                format!(
                    "[[workers]]\nid = '{id}'\ncommand = ['sh', '{script}']\n\
                     environment = {{ MODE = '{mode}', STARTS = '{}' }}\n",
                    starts.display()
                )
            })
            .collect()
    }

    /// The same for one whose process no orchestrator can find by its environment, as if it ran on another machine.
    pub(crate) fn hidden(&self, id: &str, mode: &str) -> String {
        self.shell(&[(id, mode)]).replace("['sh',", "['env', '-u', 'WORKER_FLEET', 'sh',")
    }

    fn starts_file(&self) -> PathBuf {
        self.dir.path().join("starts")
    }

    /// Every start so far: id, incarnation, pid.
    pub(crate) fn starts(&self, id: &str) -> Vec<(String, i32)> {
        let text = std::fs::read_to_string(self.starts_file()).unwrap_or_default();
        assert!(!text.contains("DOUBLE"), "two of one worker ran at once:\n{text}");
        text.lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                (words.next()? == id)
                    .then(|| Some((words.next()?.to_owned(), words.next()?.parse().ok()?)))?
            })
            .collect()
    }

    pub(crate) async fn client(&self) -> Client {
        let connect = || async {
            let config = RedisConfig { url: self.redis_url.clone(), timeout: Duration::from_secs(5) };
            Redis::connect(&config).await.unwrap().client().clone()
        };
        self.client.get_or_init(connect).await.clone()
    }

    pub(crate) async fn text(&self, key: String) -> Option<String> {
        self.client().await.get(key).await.unwrap()
    }

    /// Deletes all data; only for a Redis server of the test's own.
    pub(crate) async fn lose_data(&self) {
        let () = self.client().await.flushall(false).await.unwrap();
    }

    pub(crate) async fn record(&self, id: &str) -> BTreeMap<String, String> {
        let id: WorkerId = id.parse().unwrap();
        self.client().await.hgetall(self.keys.process(&id)).await.unwrap()
    }

    pub(crate) async fn lock_expires(&self) {
        testkit::wait_for("the lock to expire", PATIENCE, || async {
            self.text(self.keys.orchestrator_lock()).await.is_none()
        })
        .await;
    }

    /// Starts an orchestrator without waiting for anything.
    pub(crate) fn begin(&self, name: &str) -> Process {
        let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (grpc, http) = (port(), port());
        let section = |all: &BTreeMap<&str, String>| -> String {
            all.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
        };
        let text = format!(
            "[server]\nlisten = '127.0.0.1:{grpc}'\n[server.limits]\nnotice_ms = 0\n[telemetry]\nlog_format = 'json'\n\
             [database]\nurl = '{}'\n[redis]\nurl = '{}'\ntimeout_ms = 500\n[http]\nlisten = '127.0.0.1:{http}'\n\
             [[auth.keys]]\nname = 'operator'\nsha256 = '{}'\nroles = ['operator']\n\
             [orchestrator]\nnamespace = '{}'\nworkers_file = '{}'\ndata_dir = '{}'\n{}[worker]\n{}",
            self.database.url(),
            self.redis_url,
            rpc::auth::hash_key(KEY),
            self.keys.namespace(),
            self.workers_file().display(),
            self.dir.path().join("data").display(),
            section(&self.orchestrator),
            section(&self.worker),
        );
        let config = self.dir.path().join(format!("{name}.toml"));
        std::fs::write(&config, text).unwrap();
        let log = self.dir.path().join(format!("{name}.log"));
        let out = std::fs::File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_worker-control"))
            .args(["serve", "--config"])
            .arg(&config)
            .current_dir(self.dir.path())
            // Marks every process of this test, so that none outlives it.
            .env("BURSAR_TEST_FLEET", self.dir.path())
            .envs(self.environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Process { child, grpc, http, log }
    }

    /// Starts an orchestrator and waits until it leads.
    pub(crate) async fn start(&self, name: &str) -> Process {
        let mut process = self.begin(name);
        let client = process.client();
        wait_for_value("the orchestrator to lead", PATIENCE, || {
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("the orchestrator ended with {status}:\n{}", process.said());
            }
            let mut client = client.clone();
            async move {
                let answer = client.get_orchestrator(pb::GetOrchestratorRequest {}).await.ok()?;
                answer.into_inner().leading.then_some(())
            }
        })
        .await;
        process
    }
}

impl Drop for TestFleet {
    fn drop(&mut self) {
        let marker = format!("BURSAR_TEST_FLEET={}", self.dir.path().display());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

impl Process {
    pub(crate) fn client(&self) -> WorkerClient {
        let config = ClientConfig::new(format!("http://127.0.0.1:{}", self.grpc))
            .with_key(Secret::new(KEY.to_owned()));
        WorkerServiceClient::new(connect_lazy(&config).unwrap())
    }

    pub(crate) fn key() -> &'static str {
        KEY
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its log so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) async fn says(&self, what: &str) {
        testkit::wait_for(&format!("the orchestrator to log {what:?}"), PATIENCE, || async {
            self.said().contains(what)
        })
        .await;
    }

    /// Waits until it has ended.
    pub(crate) async fn ends(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for_value("the orchestrator to end", PATIENCE, || std::future::ready(child.try_wait().unwrap()))
            .await
    }

    /// SIGTERM, and waits for a clean end.
    pub(crate) async fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.ends().await;
        assert!(status.success(), "{status}:\n{}", self.said());
    }

    pub(crate) async fn worker(&self, id: &str) -> pb::Worker {
        let request = pb::GetWorkerRequest { id: id.to_owned() };
        self.client().get_worker(request).await.unwrap().into_inner().worker.unwrap()
    }

    /// Waits until a worker fulfils a condition.
    pub(crate) async fn worker_is(
        &self,
        id: &str,
        what: &str,
        condition: impl Fn(&pb::Worker) -> bool,
    ) -> pb::Worker {
        let mut client = self.client();
        let mut last = None;
        let mut patience = testkit::Patience::of(PATIENCE);
        loop {
            let request = pb::GetWorkerRequest { id: id.to_owned() };
            if let Ok(answer) = client.get_worker(request).await {
                let worker = answer.into_inner().worker.unwrap();
                if condition(&worker) {
                    return worker;
                }
                last = Some(worker);
            }
            assert!(!patience.is_over(), "{id} did not become {what}; it is {last:?}\n{}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn runs(&self, id: &str) -> pb::Worker {
        self.has_status(id, pb::WorkerStatus::Running).await
    }

    pub(crate) async fn has_status(&self, id: &str, status: pb::WorkerStatus) -> pb::Worker {
        self.worker_is(id, status.as_str_name(), |worker| worker.status() == status).await
    }

    /// Waits until a worker runs as another process than `before`.
    pub(crate) async fn has_other_pid(&self, id: &str, before: u32) -> pb::Worker {
        self.worker_is(id, "started again", |worker| worker.pid != 0 && worker.pid != before).await
    }

    pub(crate) async fn stop_worker(&self, id: &str) {
        self.client().stop_worker(pb::StopWorkerRequest { id: id.to_owned() }).await.unwrap();
    }

    pub(crate) async fn epoch(&self) -> u64 {
        let answer = self.client().get_orchestrator(pb::GetOrchestratorRequest {}).await.unwrap();
        answer.into_inner().epoch
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- the orchestrator logged:\n{}", self.said());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}
