//! A Redis that has lost all its data: nothing is started twice, nothing is killed for it, everything comes back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fred::prelude::{KeysInterface as _, SetsInterface as _};
use nix::sys::signal::Signal;
use proto::workercontrol::v1::{self as pb, WorkerStatus};
use testkit::wait_for;
use worker::WorkerId;

use crate::kit::{PATIENCE, TestFleet, alive, signal};

/// Waits until Redis holds again what it held before it lost its data.
async fn is_restored(fleet: &TestFleet, id: &str, incarnation: &str) {
    let key: WorkerId = id.parse().unwrap();
    wait_for("the keys to be back", PATIENCE, || async {
        let active: Vec<String> = fleet.client().await.smembers(fleet.keys.workers()).await.unwrap();
        fleet.text(fleet.keys.lock(&key)).await.as_deref() == Some(incarnation)
            && fleet.record(id).await.get("incarnation").is_some_and(|known| known == incarnation)
            && fleet.text(fleet.keys.heartbeat(&key)).await.is_some()
            && active.iter().any(|one| one == id)
    })
    .await;
}

/// Where a server keeps its data.
fn data_of(server: &testkit::RedisServer) -> PathBuf {
    let output =
        Command::new("redis-cli").args(["-u", server.url(), "CONFIG", "GET", "dir"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(text.lines().nth(1).unwrap())
}

/// Removes everything that a server would find when it starts.
fn lose(data: &Path) {
    std::fs::remove_dir_all(data.join("appendonlydir")).unwrap();
    let _ = std::fs::remove_file(data.join("dump.rdb"));
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_starts_nothing_twice_and_everything_recovers() {
    let mut server = testkit::redis_server().await;
    let fleet = TestFleet::on(server.url(), "btr:").await;
    fleet.workers(&fleet.shell(&[("kept", "steady"), ("killed", "steady"), ("stopped", "steady")]));
    let first = fleet.start("first").await;
    let kept = first.runs("kept").await;
    let killed = first.runs("killed").await.pid;
    first.runs("stopped").await;
    let stop = pb::StopWorkerRequest { id: "stopped".to_owned() };
    first.client().stop_worker(stop).await.unwrap();
    first.has_status("stopped", WorkerStatus::Stopped).await;
    let epoch = first.epoch().await;
    let data = data_of(&server);
    server.stop().await;
    first.says("Redis is away").await;
    signal(killed, Signal::SIGKILL);
    lose(&data);
    server.start().await;
    first.says(r#""data_lost":true"#).await;
    wait_for("a later epoch", PATIENCE, || async { first.epoch().await > epoch }).await;
    first.has_other_pid("killed", killed).await;
    first.runs("killed").await;
    is_restored(&fleet, "kept", &kept.incarnation).await;
    assert_eq!(first.runs("kept").await.pid, kept.pid);
    assert_eq!(first.worker("stopped").await.status(), WorkerStatus::Stopped);
    for (id, starts) in [("kept", 1), ("killed", 2), ("stopped", 1)] {
        assert_eq!(fleet.starts(id).len(), starts, "{id}");
    }
}

#[tokio::test]
async fn data_that_vanishes_between_two_rounds_ends_nobody_for_the_heartbeat_that_went_with_it() {
    let server = testkit::redis_server().await;
    let mut fleet = TestFleet::on(server.url(), "btr:").await;
    // It has a heartbeat every 2 s, so several rounds find none.
    fleet.orchestrator.insert("heartbeat_timeout_ms", "6000".to_owned());
    fleet.worker.insert("heartbeat_ttl_ms", "12000".to_owned());
    fleet.workers(&fleet.shell(&[("slow", "slow")]));
    let first = fleet.start("first").await;
    let before = first.runs("slow").await;
    let (up, id) = (Instant::now(), "slow".parse().unwrap());
    wait_for("it to be older than the timeout", PATIENCE, || async { up.elapsed() > Duration::from_secs(7) })
        .await;
    let beat = || fleet.text(fleet.keys.heartbeat(&id));
    let last = beat().await;
    wait_for("a fresh heartbeat", PATIENCE, || async { beat().await != last }).await;
    // No call fails: the server answers all the time, without its data.
    fleet.lose_data().await;
    first.worker_is("slow", "not heard", |worker| worker.status() != WorkerStatus::Running).await;
    is_restored(&fleet, "slow", &before.incarnation).await;
    let after = first.runs("slow").await;
    assert_eq!((after.pid, after.failures), (before.pid, 0));
    assert!(!first.said().contains("its heartbeat is missing"), "{}", first.said());
    assert_eq!(fleet.starts("slow").len(), 1);
}

#[tokio::test]
async fn a_standby_that_takes_over_an_empty_redis_waits_for_workers_that_it_cannot_see() {
    let server = testkit::redis_server().await;
    let mut fleet = TestFleet::on(server.url(), "btr:").await;
    fleet.orchestrator.insert("standby", "true".to_owned());
    // One heartbeat is what the standby waits for.
    fleet.orchestrator.insert("heartbeat_timeout_ms", "10000".to_owned());
    for (key, span_ms) in
        [("heartbeat_interval_ms", 5_000), ("heartbeat_ttl_ms", 10_000), ("lock_ttl_ms", 10_000)]
    {
        fleet.worker.insert(key, span_ms.to_string());
    }
    fleet.workers(&fleet.hidden("elsewhere", "steady"));
    let first = fleet.start("first").await;
    let before = first.runs("elsewhere").await;
    let second = fleet.begin("second");
    second.says("standing by").await;
    first.signal(Signal::SIGSTOP);
    fleet.lose_data().await;
    let held = |worker: &pb::Worker| worker.last_error.contains("its lock is held by");
    let worker = second.worker_is("elsewhere", "left alone", held).await;
    assert!(worker.last_error.contains(&before.incarnation), "{}", worker.last_error);
    assert!(alive(before.pid));
    assert_eq!(fleet.starts("elsewhere").len(), 1);
    // Once it is gone, its lock ends, and the standby starts it.
    signal(before.pid, Signal::SIGKILL);
    second.runs("elsewhere").await;
    assert_eq!(fleet.starts("elsewhere").len(), 2);
    let fence: Option<String> = fleet.client().await.get(fleet.keys.orchestrator_epoch()).await.unwrap();
    assert_eq!(fence, Some(second.epoch().await.to_string()));
}
