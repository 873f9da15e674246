//! The program itself, as a process.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use chrono::Utc;
use fred::prelude::KeysInterface as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testkit::{wait_for, wait_for_value};
use tokio::process::Command;
use worker::redis::{Redis, RedisConfig};
use worker::{Keys, WorkerState};

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
    // It has nothing to read again, and goes on.
    kill(pid, Signal::SIGHUP).unwrap();
    let before = market.candles.requests();
    wait_for("more cycles", PATIENCE, || async { market.candles.requests() > before + 3 }).await;
    kill(pid, Signal::SIGTERM).unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("move decided"), "proposals are told in the log");
    assert!(text(&ended.stderr).contains("hang-up ignored"), "{}", text(&ended.stderr));
    assert!(dir.path().join(".data/alone.db").is_file());
}

/// `libfaketime` of Debian's package `faketime`, which `scripts/install-tools test` installs.
fn faketime() -> PathBuf {
    let mut places = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found = places.find_map(|place| {
        let file = place.path().join("faketime/libfaketime.so.1");
        file.exists().then_some(file)
    });
    found.expect("libfaketime is not installed; `scripts/install-tools test` installs it")
}

#[tokio::test]
async fn cycles_heartbeats_and_the_lock_go_on_through_a_clock_that_jumps() {
    const INTERVAL: Duration = Duration::from_millis(100);
    let (dir, redis) = (testkit::scratch_dir(), testkit::redis().await);
    let (market, execution) = (market::Server::start().await, execution::Server::start().await);
    std::fs::write(dir.path().join("float.toml"), toml(&market, &execution)).unwrap();
    let clock = dir.path().join("clock");
    let set = |offset: &str| {
        // Replaced whole: the worker may look at any moment.
        std::fs::write(clock.with_extension("new"), format!("{offset}\n")).unwrap();
        std::fs::rename(clock.with_extension("new"), &clock).unwrap();
    };
    set("+0");
    let mut command = program(dir.path(), &["-c", "float.toml"]);
    command
        .env("LD_PRELOAD", faketime())
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .env("FAKETIME_NO_CACHE", "1");
    command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.env("INTERVAL_SEC", "0.1").env("WORKER_PAIR_ID", "float").env("WORKER_INCARNATION", "i-1");
    command.env("WORKER_REDIS_URL", redis.url()).env("WORKER_NAMESPACE", redis.prefix());
    command.env("WORKER_HEARTBEAT_INTERVAL_MS", "50").env("WORKER_LOCK_TTL_MS", "2000");
    let child = command.stderr(Stdio::null()).spawn().unwrap();

    let config = RedisConfig { url: redis.url().to_owned(), timeout: PATIENCE };
    let (client, keys) = (Redis::connect(&config).await.unwrap(), Keys::new(redis.prefix()));
    let (client, id) = (client.client(), "float".parse().unwrap());
    let state = async || -> Option<WorkerState> {
        let text: Option<String> = client.get(keys.state(&id)).await.unwrap();
        text.map(|text| serde_json::from_str(&text).unwrap())
    };
    let cycled = || async { state().await.filter(|state| state.epoch > 1) };
    let first = wait_for_value("a first cycle", PATIENCE, cycled).await;
    for (offset, days) in [("+30d", 30), ("-30d", -30)] {
        set(offset);
        let beat = async || -> Option<i64> {
            let text: Option<String> = client.get(keys.heartbeat(&id)).await.unwrap();
            text.map(|text| (text.parse::<i64>().unwrap() - Utc::now().timestamp_millis()) / 86_400_000)
        };
        let jumped = || async { beat().await.is_some_and(|off| (off - days).abs() <= 1) };
        wait_for("the new time", PATIENCE, jumped).await;
        // Neither in a burst nor only after a month: at their interval, longer than the lock lives without being renewed.
        let (began, before) = (Instant::now(), state().await.unwrap().epoch);
        let enough = || async { state().await.filter(|state| state.epoch > before + 25) };
        let after = wait_for_value("cycles", PATIENCE, enough).await;
        let most = began.elapsed().as_millis() / INTERVAL.as_millis() + 2;
        assert!(u128::from(after.epoch - before) <= most, "{offset}: {} cycles", after.epoch - before);
        assert_eq!(after.fencing_token, first.fencing_token, "{offset}: the lock was never lost");
    }
    kill(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), Signal::SIGTERM).unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(ended.status.code(), Some(0));
}
