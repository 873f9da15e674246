//! Incarnations that this orchestrator cannot see: on another machine, or on this one before a reboot.

use fred::prelude::{Expiration, HashesInterface as _, KeysInterface as _, PubsubInterface as _};
use nix::sys::signal::Signal;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;
use worker::redis::{Redis, RedisConfig, Subscription};
use worker::{Command, CommandKind, WorkerId};

use crate::kit::{PATIENCE, Process, TestFleet, alive, signal};

const FAR: &str = "i-far";

/// A worker of another host: its record, its lock and its heartbeat.
async fn runs_on(fleet: &TestFleet, id: &WorkerId, host: &str) {
    let client = fleet.client().await;
    for (field, value) in [("incarnation", FAR), ("host", host), ("pid", "1"), ("started", "1")] {
        let _: i64 = client.hset(fleet.keys.process(id), (field, value)).await.unwrap();
    }
    for (key, value) in [(fleet.keys.lock(id), FAR), (fleet.keys.heartbeat(id), "1")] {
        let () = client.set(key, value, Some(Expiration::EX(900)), None, false).await.unwrap();
    }
}

async fn is_deferred(orchestrator: &Process, id: &str) {
    let held = |worker: &pb::Worker| worker.last_error.contains("its lock is held by incarnation i-far");
    orchestrator.worker_is(id, "left alone", held).await;
}

async fn listen(fleet: &TestFleet) -> Subscription {
    let config = RedisConfig { url: fleet.redis_url.clone(), timeout: PATIENCE };
    let channel = fleet.keys.control();
    let subscription = Redis::connect(&config).await.unwrap().subscribe(channel.clone()).unwrap();
    let client = fleet.client().await;
    wait_for("the subscription", PATIENCE, || async {
        client.publish::<i64, _, _>(channel.clone(), "listening").await.unwrap() == 1
    })
    .await;
    subscription
}

/// Waits until this message is published.
async fn published(channel: &mut Subscription, what: &str) {
    let search = async { while channel.next().await != what {} };
    tokio::time::timeout(PATIENCE, search).await.unwrap_or_else(|_| panic!("nobody published {what}"));
}

#[tokio::test]
async fn a_lock_from_before_the_machine_started_anew_is_free_once_no_heart_beats() {
    let (fleet, mut first) = TestFleet::started(&[("a", "steady")]).await;
    let before = first.runs("a").await.pid;
    first.kill();
    signal(before, Signal::SIGKILL);
    wait_for("the worker to die", PATIENCE, || async { !alive(before) }).await;
    let (id, client) = ("a".parse().unwrap(), fleet.client().await);
    // As the same machine would have left it before a power failure.
    runs_on(&fleet, &id, "the same name, another boot").await;
    let second = fleet.start("second").await;
    is_deferred(&second, "a").await;
    assert_eq!(fleet.starts("a").len(), 1, "it has a heartbeat");
    let _: i64 = client.del(fleet.keys.heartbeat(&id)).await.unwrap();
    if fleet.record("a").await["machine"].is_empty() {
        // In a container nothing proves a reboot, so the lock stays until it expires.
        let _: i64 = client.del(fleet.keys.lock(&id)).await.unwrap();
    }
    second.runs("a").await;
    assert_eq!(fleet.starts("a").len(), 2);
}

#[tokio::test]
async fn one_that_runs_on_another_machine_is_told_to_stop_for_as_long_as_it_is_heard() {
    let fleet = TestFleet::new().await;
    let (id, client) = ("a".parse().unwrap(), fleet.client().await);
    runs_on(&fleet, &id, "another machine").await;
    fleet.workers(&fleet.shell(&[("a", "steady")]));
    let mut channel = listen(&fleet).await;
    let first = fleet.start("first").await;
    is_deferred(&first, "a").await;
    // A worker that is cut off when the only message is published would run for ever.
    let stop = Command::to(CommandKind::Shutdown, &id).message();
    published(&mut channel, &stop).await;
    published(&mut channel, &stop).await;
    // A stop applies to that one too.
    first.client().stop_worker(pb::StopWorkerRequest { id: id.to_string() }).await.unwrap();
    first.has_status("a", WorkerStatus::Stopped).await;
    let _: i64 = client.publish(fleet.keys.control(), "what follows is new").await.unwrap();
    published(&mut channel, "what follows is new").await;
    published(&mut channel, &stop).await;
    assert_eq!(fleet.starts("a"), []);
    let spec = Some(pb::WorkerSpec { id: id.to_string(), ..Default::default() });
    first.client().start_worker(pb::StartWorkerRequest { spec }).await.unwrap();
    // It has stopped.
    let _: i64 = client.del(vec![fleet.keys.lock(&id), fleet.keys.heartbeat(&id)]).await.unwrap();
    first.runs("a").await;
}
