//! What a new leader takes over, and what a replaced one must leave alone.

use fred::prelude::SetsInterface as _;
use nix::sys::signal::Signal;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;

use crate::api::spec;
use crate::kit::{PATIENCE, TestFleet, alive, signal};
use crate::supervision::sleepers;

#[tokio::test]
async fn a_standby_follows_what_was_asked_of_the_leader_before_it() {
    let mut fleet = TestFleet::new().await;
    fleet.orchestrator.insert("standby", "true".to_owned());
    fleet.workers(&fleet.shell(&[("of-file", "steady")]));
    let mut first = fleet.start("first").await;
    first.runs("of-file").await;
    let second = fleet.begin("second");
    second.says("standing by").await;
    // The second has read file and database before all of this.
    let mut client = first.client();
    let request = pb::StartWorkerRequest { spec: Some(spec(&fleet, "of-api", "steady")) };
    client.start_worker(request).await.unwrap();
    first.stop_worker("of-file").await;
    first.has_status("of-file", WorkerStatus::Stopped).await;
    fleet.workers(&fleet.shell(&[("of-file", "steady"), ("added", "steady")]));
    client.reload_config(pb::ReloadConfigRequest {}).await.unwrap();
    let (of_api, added) = (first.runs("of-api").await.pid, first.runs("added").await.pid);
    first.kill();
    assert_eq!(second.runs("of-api").await.pid, of_api, "adopted");
    assert_eq!(second.runs("added").await.pid, added, "adopted");
    assert_eq!(second.worker("of-file").await.status(), WorkerStatus::Stopped);
    for id in ["of-api", "added", "of-file"] {
        assert_eq!(fleet.starts(id).len(), 1, "{id}");
    }
}

#[tokio::test]
async fn one_that_was_paused_overtaken_and_told_to_stop_leaves_the_workers_to_the_other() {
    let (fleet, mut first) = TestFleet::started(&[("a", "steady")]).await;
    let pid = first.runs("a").await.pid;
    first.signal(Signal::SIGSTOP);
    fleet.lock_expires().await;
    let second = fleet.start("second").await;
    assert_eq!(second.runs("a").await.pid, pid, "adopted");
    // As an operator would do with a process that hangs.
    first.signal(Signal::SIGTERM);
    first.signal(Signal::SIGCONT);
    assert_eq!(first.ends().await.code(), Some(1));
    // It may see the signal or the lock first.
    assert!(first.said().contains("another orchestrator took the lock"), "{}", first.said());
    assert!(alive(pid), "{}", first.said());
    assert_eq!(second.runs("a").await.pid, pid);
    assert_eq!(fleet.starts("a").len(), 1);
}

#[tokio::test]
async fn one_that_slept_while_another_led_and_died_adopts_what_that_one_started() {
    let (fleet, first) = TestFleet::started(&[("a", "steady")]).await;
    let before = first.runs("a").await.pid;
    first.signal(Signal::SIGSTOP);
    fleet.lock_expires().await;
    signal(before, Signal::SIGKILL);
    let mut second = fleet.start("second").await;
    second.has_other_pid("a", before).await;
    let after = second.runs("a").await.pid;
    second.kill();
    fleet.lock_expires().await;
    // It continues with a dead child that it has not noticed yet.
    first.signal(Signal::SIGCONT);
    first.says("leading again").await;
    let adopted = first.worker_is("a", "adopted", |worker| worker.pid == after).await;
    assert!(alive(adopted.pid));
    first.runs("a").await;
    assert_eq!(fleet.starts("a").len(), 2);
}

#[tokio::test]
async fn what_a_dead_worker_left_behind_is_not_adopted_in_its_place() {
    let (fleet, mut first) = TestFleet::started(&[("forks", "forks")]).await;
    let before = first.runs("forks").await;
    wait_for("its children", PATIENCE, || async { sleepers(&before.incarnation).len() >= 2 }).await;
    first.kill();
    signal(before.pid, Signal::SIGKILL);
    wait_for("the worker to die", PATIENCE, || async { !alive(before.pid) }).await;
    // One of its children leads a group of its own, with all that the worker had in its environment.
    assert!(!sleepers(&before.incarnation).is_empty());
    let second = fleet.start("second").await;
    second.runs("forks").await;
    assert!(!second.said().contains("adopted"), "{}", second.said());
    assert_eq!(sleepers(&before.incarnation), [0; 0]);
    assert_eq!(fleet.starts("forks").len(), 2);
}

#[tokio::test]
async fn a_worker_that_was_killed_on_its_way_out_can_come_back_at_once() {
    let fleet = TestFleet::new().await;
    let both = fleet.shell(&[("stays", "steady"), ("leaves", "stubborn")]);
    fleet.workers(&both);
    let first = fleet.start("first").await;
    let before = first.runs("leaves").await.pid;
    let mut client = first.client();
    fleet.workers(&fleet.shell(&[("stays", "steady")]));
    client.reload_config(pb::ReloadConfigRequest {}).await.unwrap();
    wait_for("it to be gone", PATIENCE, || {
        let mut client = client.clone();
        async move { client.get_worker(pb::GetWorkerRequest { id: "leaves".to_owned() }).await.is_err() }
    })
    .await;
    assert!(!alive(before));
    fleet.workers(&both);
    client.reload_config(pb::ReloadConfigRequest {}).await.unwrap();
    // The lock of the one that was killed would have lived for 15 minutes.
    first.runs("leaves").await;
    assert_eq!(fleet.starts("leaves").len(), 2);
}

#[tokio::test]
async fn a_worker_that_is_stopped_while_it_backs_off_is_no_longer_among_the_active_ones() {
    let mut fleet = TestFleet::new().await;
    for key in ["backoff_base_ms", "backoff_cap_ms"] {
        fleet.orchestrator.insert(key, "3600000".to_owned());
    }
    fleet.workers(&fleet.shell(&[("a", "steady"), ("b", "crash")]));
    let first = fleet.start("first").await;
    let active = async || -> Vec<String> {
        let mut ids: Vec<String> = fleet.client().await.smembers(fleet.keys.workers()).await.unwrap();
        ids.sort();
        ids
    };
    first.has_status("b", WorkerStatus::BackingOff).await;
    assert_eq!(active().await, ["a", "b"]);
    first.stop_worker("b").await;
    wait_for("the set to follow", PATIENCE, || async { active().await == ["a"] }).await;
    wait_for("its record to go", PATIENCE, || async { fleet.record("b").await.is_empty() }).await;
}
