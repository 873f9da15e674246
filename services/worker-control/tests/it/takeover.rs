//! What a successor must know, and what one who was succeeded must leave alone.

use fred::prelude::SetsInterface as _;
use nix::sys::signal::Signal;
use proto::workercontrol::v1 as wire;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;

use crate::api::spec;
use crate::care::sleepers;
use crate::place::{PATIENCE, Place, alive, signal};

#[tokio::test]
async fn a_standby_follows_what_was_asked_of_the_leader_before_it() {
    let mut place = Place::new().await;
    place.orchestrator.insert("standby", "true".to_owned());
    place.workers(&place.shell(&[("of-file", "steady")]));
    let mut first = place.start("first").await;
    first.runs("of-file").await;
    let second = place.begin("second");
    second.says("standing by").await;
    // All of this is news to the second, which has read file and database already.
    let mut client = first.client();
    let request = wire::StartWorkerRequest { spec: Some(spec(&place, "of-api", "steady")) };
    client.start_worker(request).await.unwrap();
    client.stop_worker(wire::StopWorkerRequest { id: "of-file".to_owned() }).await.unwrap();
    first.worker_is("of-file", "stopped", |w| w.status() == WorkerStatus::Stopped).await;
    place.workers(&place.shell(&[("of-file", "steady"), ("added", "steady")]));
    client.reload_config(wire::ReloadConfigRequest {}).await.unwrap();
    let (of_api, added) = (first.runs("of-api").await.pid, first.runs("added").await.pid);
    first.kill();
    assert_eq!(second.runs("of-api").await.pid, of_api, "adopted");
    assert_eq!(second.runs("added").await.pid, added, "adopted");
    assert_eq!(second.worker("of-file").await.status(), WorkerStatus::Stopped);
    for id in ["of-api", "added", "of-file"] {
        assert_eq!(place.starts(id).len(), 1, "{id}");
    }
}

#[tokio::test]
async fn one_that_was_paused_overtaken_and_told_to_stop_leaves_the_workers_to_the_other() {
    let place = Place::new().await;
    place.workers(&place.shell(&[("a", "steady")]));
    let mut first = place.start("first").await;
    let pid = first.runs("a").await.pid;
    first.signal(Signal::SIGSTOP);
    wait_for("the lock to expire", PATIENCE, || async {
        place.text(place.keys.orchestrator_lock()).await.is_none()
    })
    .await;
    let second = place.start("second").await;
    assert_eq!(second.runs("a").await.pid, pid, "adopted");
    // As an operator would do with one that hangs.
    first.signal(Signal::SIGTERM);
    first.signal(Signal::SIGCONT);
    assert_eq!(first.ends().await.code(), Some(1));
    // Whether it sees the signal or the lock first is a matter of luck.
    assert!(first.said().contains("the orchestrator lock went to another"), "{}", first.said());
    assert!(alive(pid), "{}", first.said());
    assert_eq!(second.runs("a").await.pid, pid);
    assert_eq!(place.starts("a").len(), 1);
}

#[tokio::test]
async fn one_that_slept_while_another_led_and_died_adopts_what_that_one_started() {
    let place = Place::new().await;
    place.workers(&place.shell(&[("a", "steady")]));
    let first = place.start("first").await;
    let before = first.runs("a").await.pid;
    let lock_ends = async || {
        wait_for("the lock to expire", PATIENCE, || async {
            place.text(place.keys.orchestrator_lock()).await.is_none()
        })
        .await;
    };
    first.signal(Signal::SIGSTOP);
    lock_ends().await;
    signal(before, Signal::SIGKILL);
    let mut second = place.start("second").await;
    second.worker_is("a", "started again", |worker| worker.pid != 0 && worker.pid != before).await;
    let after = second.runs("a").await.pid;
    second.kill();
    lock_ends().await;
    // It wakes up with a child that is dead and that nobody has told it of.
    first.signal(Signal::SIGCONT);
    first.says("leading again").await;
    let adopted = first.worker_is("a", "adopted", |worker| worker.pid == after).await;
    assert!(alive(adopted.pid));
    first.runs("a").await;
    assert_eq!(place.starts("a").len(), 2);
}

#[tokio::test]
async fn what_a_dead_worker_left_behind_is_not_adopted_in_its_place() {
    let place = Place::new().await;
    place.workers(&place.shell(&[("forks", "forks")]));
    let mut first = place.start("first").await;
    let before = first.runs("forks").await;
    wait_for("its children", PATIENCE, || async { sleepers(&before.incarnation).len() >= 2 }).await;
    first.kill();
    signal(before.pid, Signal::SIGKILL);
    wait_for("the worker to die", PATIENCE, || async { !alive(before.pid) }).await;
    // One of its children leads a group of its own, with all that the worker had in its environment.
    assert!(!sleepers(&before.incarnation).is_empty());
    let second = place.start("second").await;
    second.runs("forks").await;
    assert!(!second.said().contains("adopted"), "{}", second.said());
    assert_eq!(sleepers(&before.incarnation), [0; 0]);
    assert_eq!(place.starts("forks").len(), 2);
}

#[tokio::test]
async fn a_worker_that_was_killed_on_its_way_out_can_come_back_at_once() {
    let place = Place::new().await;
    let both = place.shell(&[("stays", "steady"), ("leaves", "stubborn")]);
    place.workers(&both);
    let first = place.start("first").await;
    let before = first.runs("leaves").await.pid;
    let mut client = first.client();
    place.workers(&place.shell(&[("stays", "steady")]));
    client.reload_config(wire::ReloadConfigRequest {}).await.unwrap();
    wait_for("it to be gone", PATIENCE, || {
        let mut client = client.clone();
        async move { client.get_worker(wire::GetWorkerRequest { id: "leaves".to_owned() }).await.is_err() }
    })
    .await;
    assert!(!alive(before));
    place.workers(&both);
    client.reload_config(wire::ReloadConfigRequest {}).await.unwrap();
    // The lock of the one that was killed would have lived for 15 minutes.
    first.runs("leaves").await;
    assert_eq!(place.starts("leaves").len(), 2);
}

#[tokio::test]
async fn a_worker_that_is_stopped_while_it_backs_off_is_no_longer_among_the_active_ones() {
    let mut place = Place::new().await;
    for key in ["backoff_base_ms", "backoff_cap_ms"] {
        place.orchestrator.insert(key, "3600000".to_owned());
    }
    place.workers(&place.shell(&[("a", "steady"), ("b", "crash")]));
    let first = place.start("first").await;
    let active = async || -> Vec<String> {
        let mut ids: Vec<String> = place.client().await.smembers(place.keys.workers()).await.unwrap();
        ids.sort();
        ids
    };
    first.worker_is("b", "backing off", |w| w.status() == WorkerStatus::BackingOff).await;
    assert_eq!(active().await, ["a", "b"]);
    first.client().stop_worker(wire::StopWorkerRequest { id: "b".to_owned() }).await.unwrap();
    wait_for("the set to follow", PATIENCE, || async { active().await == ["a"] }).await;
    wait_for("its record to go", PATIENCE, || async { place.record("b").await.is_empty() }).await;
}
