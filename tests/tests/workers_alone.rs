//! Workers as processes of their own, without Redis and without an orchestrator, as a Deployment runs them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::{Database, free_port, wait_for, wait_for_value};
use tests::stack::bin_dir;

const PATIENCE: Duration = Duration::from_secs(60);
const EXECUTION: &str = "[clients.signer-gateway]\nurl = 'http://127.0.0.1:9'\n[clients.confirmation]\nurl = 'http://127.0.0.1:9'\n\
    [clients.intent]\nurl = 'http://127.0.0.1:9'\n";
const CONFIRMATION: &str = "[clients.execution]\nurl = 'http://127.0.0.1:9'\n[clients.intent]\nurl = 'http://127.0.0.1:9'\n\
    [attestation]\nkey = '0707070707070707070707070707070707070707070707070707070707070707'\n";

struct Alone {
    child: Child,
    listen: String,
    log: PathBuf,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(service: &str, dir: &Path) -> Result<Command> {
    let program = bin_dir()?.join(service);
    ensure!(program.exists(), "{} is not built; `make test` builds it first", program.display());
    let mut command = Command::new(program);
    command.current_dir(dir).env_clear().stdin(Stdio::null());
    Ok(command)
}

fn write_config(dir: &Path, own: &str) -> Result<PathBuf> {
    let config = dir.join("config.toml");
    let common = "[server]\nlisten = '127.0.0.1:0'\n[server.health]\ninterval_ms = 50\n[telemetry]\nlog_format = 'json'\n";
    std::fs::write(&config, format!("{common}{own}"))?;
    Ok(config)
}

impl Alone {
    /// On a database of its own, which is migrated first.
    fn start(service: &str, database: &Database, own: &str, dir: &Path) -> Result<Self> {
        let config = write_config(dir, &format!("[database]\nurl = '{}'\n{own}", database.url()))?;
        let migrated = program(service, dir)?.arg("migrate").arg("--config").arg(&config).output()?;
        ensure!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        Self::work(service, &["--chain", "bsc"], &config, dir)
    }

    fn work(service: &str, arguments: &[&str], config: &Path, dir: &Path) -> Result<Self> {
        let (listen, log) = (format!("127.0.0.1:{}", free_port()), dir.join("log"));
        let child = program(service, dir)?
            .arg("work")
            .args(arguments)
            .args(["--listen", &listen, "--config"])
            .arg(config)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()?;
        Ok(Self { child, listen, log })
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let answer = reqwest::get(format!("http://{}{path}", self.listen)).await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    async fn is_ready(&self) {
        wait_for("the worker to be ready", PATIENCE, || async {
            self.get("/readyz").await.is_some_and(|(code, _)| code == 200)
        })
        .await;
    }
}

#[tokio::test]
async fn a_worker_alone_shows_its_health_outlives_a_hang_up_and_stops_when_told() -> Result<()> {
    for (service, own) in [("execution", EXECUTION), ("confirmation", CONFIRMATION)] {
        let (database, dir) = (testkit::postgres().await, testkit::scratch_dir());
        let mut worker = Alone::start(service, &database, own, dir.path())?;
        worker.is_ready().await;
        let (code, metrics) = worker.get("/metrics").await.context("metrics are shown")?;
        ensure!(code == 200 && !metrics.is_empty(), "{service}: {code} {metrics}");
        ensure!(worker.said().contains("worker started"), "{service}: {}", worker.said());

        worker.signal(Signal::SIGHUP)?;
        wait_for("the hang-up to be logged", PATIENCE, || async {
            worker.said().contains("hang-up ignored")
        })
        .await;
        worker.is_ready().await;
        ensure!(worker.child.try_wait()?.is_none(), "{service}: {}", worker.said());

        worker.signal(Signal::SIGTERM)?;
        let child = &mut worker.child;
        let status = wait_for_value("the worker to end", PATIENCE, || {
            std::future::ready(child.try_wait().ok().flatten())
        })
        .await;
        ensure!(status.code() == Some(0), "{service}: {status}\n{}", worker.said());
        // What it did is in the database; a file of its own would only be in the way of another copy.
        ensure!(!dir.path().join(".data").exists(), "{service} keeps files");
    }
    Ok(())
}

#[tokio::test]
async fn an_indexer_that_only_reads_shows_its_health_and_loses_it_with_its_store() -> Result<()> {
    let (store, dir) = (testkit::mongo().await, testkit::scratch_dir());
    let proxy = testkit::FaultProxy::tcp(&store.address()).await;
    let own = format!("[mongo]\nurl = '{}'\ndatabase = '{}'\n", store.url_at(&proxy.address()), store.name());
    let config = write_config(dir.path(), &own)?;
    let worker = Alone::work("indexer", &[], &config, dir.path())?;
    worker.is_ready().await;
    let (code, metrics) = worker.get("/metrics").await.context("metrics are shown")?;
    ensure!(code == 200 && metrics.contains("process_"), "{code} {metrics}");
    proxy.refuse().await;
    proxy.cut().await;
    wait_for("the store to be missed", PATIENCE, || async {
        worker.get("/readyz").await.is_some_and(|(code, body)| code == 503 && body.contains("database"))
    })
    .await;
    Ok(())
}
