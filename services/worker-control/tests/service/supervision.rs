//! Workers that crash, hang, ignore signals, end well or leave children behind.

use std::time::Instant;

use fred::prelude::{Expiration, KeysInterface as _, PubsubInterface as _};
use nix::sys::signal::Signal;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;

use crate::kit::{PATIENCE, TestFleet, alive, signal};

#[tokio::test]
async fn a_crash_loop_backs_off_is_given_up_and_is_brought_back_by_a_person() {
    let (fleet, first) = TestFleet::started(&[("crash", "crash"), ("zero", "zero")]).await;
    for (id, how) in [("crash", "status 3"), ("zero", "status 0")] {
        let worker = first.has_status(id, WorkerStatus::GivenUp).await;
        assert_eq!(worker.failures, 4);
        assert!(worker.last_error.contains(how), "{}", worker.last_error);
        assert_eq!(fleet.starts(id).len(), 4, "{id}");
    }
    let request = pb::RestartWorkerRequest { id: "crash".to_owned() };
    first.client().restart_worker(request).await.unwrap();
    wait_for("another try", PATIENCE, || async { fleet.starts("crash").len() > 4 }).await;
}

#[tokio::test]
async fn a_killed_worker_comes_back_after_its_backoff_and_its_lock_is_free_at_once() {
    let (fleet, first) = TestFleet::started(&[("a", "steady")]).await;
    let before = first.runs("a").await;
    let killed = Instant::now();
    signal(before.pid, Signal::SIGKILL);
    let lock = fleet.keys.lock(&"a".parse().unwrap());
    wait_for("the lock to be free", PATIENCE, || async {
        fleet.text(lock.clone()).await.as_deref() != Some(before.incarnation.as_str())
    })
    .await;
    println!("lock freed {:?} after the kill; its time to live was 900 s", killed.elapsed());
    first.has_other_pid("a", before.pid).await;
    println!("started again {:?} after the kill; the backoff was 300 ms", killed.elapsed());
    let after = first
        .worker_is("a", "recovered", |worker| {
            worker.status() == WorkerStatus::Running && worker.failures == 0
        })
        .await;
    assert_eq!(after.starts, 2);
    assert_ne!(after.incarnation, before.incarnation);
}

#[tokio::test]
async fn a_worker_that_hangs_is_ended_and_started_again() {
    let (_fleet, first) = TestFleet::started(&[("hang", "hang")]).await;
    let before = first.runs("hang").await;
    let began = Instant::now();
    first.has_other_pid("hang", before.pid).await;
    println!("a hang was ended and started again after {:?}; heartbeat 3 s, timeout 4 s", began.elapsed());
    assert!(!alive(before.pid));
    assert!(first.said().contains("its heartbeat is missing"));
}

#[tokio::test]
async fn a_worker_that_ignores_sigterm_is_killed_with_its_family() {
    let (fleet, first) = TestFleet::started(&[("stubborn", "stubborn"), ("forks", "forks")]).await;
    let (stubborn, forks) = (first.runs("stubborn").await, first.runs("forks").await);
    let children = || sleepers(&forks.incarnation);
    wait_for("its children", PATIENCE, || async { children().len() >= 2 }).await;
    for id in ["stubborn", "forks"] {
        first.stop_worker(id).await;
    }
    for (id, pid) in [("stubborn", stubborn.pid), ("forks", forks.pid)] {
        let worker = first.has_status(id, WorkerStatus::Stopped).await;
        assert_eq!((worker.pid, worker.failures), (0, 0));
        assert!(!alive(pid));
    }
    wait_for("the whole family to be gone", PATIENCE, || async { children().is_empty() }).await;
    assert_eq!((fleet.starts("stubborn").len(), fleet.starts("forks").len()), (1, 1));
}

/// Processes of an incarnation that only sleep.
pub(crate) fn sleepers(incarnation: &str) -> Vec<i32> {
    let marker = format!("WORKER_INCARNATION={incarnation}");
    let of = |path: &std::path::Path, what: &str| std::fs::read(path.join(what)).unwrap_or_default();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, path)| {
            of(path, "environ").split(|b| *b == 0).any(|v| v == marker.as_bytes())
                && of(path, "cmdline").windows(3).any(|bytes| bytes == b"\x0060")
        })
        .map(|(pid, _)| pid)
        .collect()
}

#[tokio::test]
async fn what_a_crashed_worker_left_behind_is_gone_before_it_starts_again() {
    let (_fleet, first) = TestFleet::started(&[("forks", "forks")]).await;
    let before = first.runs("forks").await;
    wait_for("its children", PATIENCE, || async { sleepers(&before.incarnation).len() >= 2 }).await;
    signal(before.pid, Signal::SIGKILL);
    first.has_other_pid("forks", before.pid).await;
    assert_eq!(sleepers(&before.incarnation), [0; 0]);
}

#[tokio::test]
async fn the_restart_flag_skips_the_backoff_whoever_sets_it() {
    let mut fleet = TestFleet::new().await;
    for key in ["backoff_base_ms", "backoff_cap_ms"] {
        fleet.orchestrator.insert(key, "3600000".to_owned());
    }
    fleet.workers(&fleet.shell(&[("a", "steady")]));
    let first = fleet.start("first").await;
    let client = fleet.client().await;
    let flag = fleet.keys.restarting(&"a".parse().unwrap());
    let set = async || {
        let _: () = client.set(flag.clone(), "1", Some(Expiration::EX(60)), None, false).await.unwrap();
    };
    let mut pid = first.runs("a").await.pid;
    // While it runs.
    set().await;
    pid = first.has_other_pid("a", pid).await.pid;
    first.runs("a").await;
    assert_eq!(fleet.text(flag.clone()).await, None, "the flag is used up");
    // During an hour of backoff.
    signal(pid, Signal::SIGKILL);
    first.has_status("a", WorkerStatus::BackingOff).await;
    set().await;
    pid = first.has_other_pid("a", pid).await.pid;
    first.runs("a").await;
    // Over the API.
    let asked = Instant::now();
    first.client().restart_worker(pb::RestartWorkerRequest { id: "a".to_owned() }).await.unwrap();
    first.has_other_pid("a", pid).await;
    println!("restarted {:?} after being asked to", asked.elapsed());
    let receivers: i64 = client.publish(fleet.keys.control(), "nothing of note").await.unwrap();
    assert_eq!(receivers, 0, "shell workers do not listen; signals reach them");
}

#[tokio::test]
async fn what_workers_say_is_passed_on_with_their_id() {
    let (_fleet, first) = TestFleet::started(&[("talker", "steady")]).await;
    first.says("hello from talker").await;
    let said = first.said();
    let line = said.lines().find(|line| line.contains("hello from talker")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line.to_string().contains(r#""worker":"talker""#), "{line}");
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_a_failure_with_its_reason() {
    let fleet = TestFleet::new().await;
    fleet.workers("[[workers]]\nid = 'nothing'\ncommand = ['/no/such/program']\n");
    let first = fleet.start("first").await;
    let worker = first.has_status("nothing", WorkerStatus::GivenUp).await;
    assert!(worker.last_error.contains("No such file"), "{}", worker.last_error);
}

#[tokio::test]
async fn a_stop_ends_every_worker_and_gives_the_lock_back() {
    let (fleet, mut first) = TestFleet::started(&[("a", "steady"), ("b", "stubborn"), ("c", "forks")]).await;
    let mut pids = Vec::new();
    for id in ["a", "b", "c"] {
        pids.push(first.runs(id).await.pid);
    }
    first.stop().await;
    assert!(pids.iter().all(|pid| !alive(*pid)), "{}", first.said());
    assert_eq!(fleet.text(fleet.keys.orchestrator_lock()).await, None);
    let client = fleet.client().await;
    let left: i64 = client.exists(vec![fleet.keys.workers(), fleet.keys.orchestrator_owner()]).await.unwrap();
    assert_eq!(left, 0);
    for id in ["a", "b", "c"] {
        let id = id.parse().unwrap();
        assert_eq!(fleet.text(fleet.keys.lock(&id)).await, None, "{id}");
        assert!(fleet.record(id.as_str()).await.is_empty());
    }
}
