//! The program itself, as a process.

use std::path::Path;
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testkit::wait_for;
use tokio::process::Command;

use crate::{PATIENCE, execution, market, toml};

fn program(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_float-worker"));
    command.args(arguments).current_dir(dir).env_clear().kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn output(dir: &Path, arguments: &[&str]) -> Output {
    tokio::time::timeout(PATIENCE, program(dir, arguments).output()).await.expect("it ends").unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_configuration_is_checked_without_starting_anything() {
    let dir = testkit::scratch_dir();
    let (market, execution) = (market::Server::start().await, execution::Server::start().await);
    let good = toml(&market, &execution);
    std::fs::write(dir.path().join("good.toml"), &good).unwrap();
    std::fs::write(dir.path().join("live.toml"), format!("dry_run = false\nsurprise = 1\n{good}")).unwrap();
    let ok = output(dir.path(), &["--config", "good.toml", "--check-config"]).await;
    assert_eq!((ok.status.code(), text(&ok.stdout).as_str()), (Some(0), "configuration ok\n"));
    for arguments in [&["--config", "live.toml", "--check-config"][..], &["--config", "live.toml"][..]] {
        let refused = output(dir.path(), arguments).await;
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("2 mistakes") && said.contains("surprise: is not a known setting"), "{said}");
        assert!(said.contains("dry_run: must be true: this client cannot carry out a refill"), "{said}");
    }
    assert_eq!((market.candles.requests(), dir.path().join(".data").exists()), (0, false));
}

#[tokio::test]
async fn one_cycle_prints_its_report_and_a_failed_one_its_reason() {
    let dir = testkit::scratch_dir();
    let (market, execution) = (market::Server::start().await, execution::Server::start().await);
    std::fs::write(dir.path().join("float.toml"), toml(&market, &execution)).unwrap();
    let done = output(dir.path(), &["-c", "float.toml", "--once"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["outcomes"], serde_json::json!(["proposed", "proposed"]));
    assert!(dir.path().join(".data/float.db").is_file());
    market.pools.then([market::Act::Status(404)]);
    let failed = output(dir.path(), &["-c", "float.toml", "--once"]).await;
    assert_eq!(failed.status.code(), Some(1));
    let said = text(&failed.stderr);
    assert!(said.contains("the cycle failed: source pool: answered HTTP 404"), "{said}");
}

#[tokio::test]
async fn it_works_alone_without_redis_until_it_is_told_to_stop() {
    let dir = testkit::scratch_dir();
    let (market, execution) = (market::Server::start().await, execution::Server::start().await);
    std::fs::write(dir.path().join("float.toml"), toml(&market, &execution)).unwrap();
    let mut command = program(dir.path(), &["-c", "float.toml"]);
    let child = command.env("INTERVAL_SEC", "0.05").env("WORKER_PAIR_ID", "alone").spawn().unwrap();
    wait_for("several cycles", PATIENCE, || async { market.candles.requests() > 3 }).await;
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("move decided"), "proposals are told in the log");
    assert!(dir.path().join(".data/alone.db").is_file());
}
