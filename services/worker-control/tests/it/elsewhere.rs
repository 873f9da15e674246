//! Incarnations that were started where this orchestrator cannot look: on another machine, or before this one started anew.

use fred::prelude::{Expiration, HashesInterface as _, KeysInterface as _, PubsubInterface as _};
use nix::sys::signal::Signal;
use proto::workercontrol::v1 as wire;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;
use worker::redis::{Redis, RedisConfig, Subscription};
use worker::{Command, CommandKind, WorkerId};

use crate::place::{PATIENCE, Place, Process, alive, signal};

const FAR: &str = "i-far";

/// A worker of another host: its record, its lock and its heart, which beats until it is stopped.
async fn runs_on(place: &Place, id: &WorkerId, host: &str) {
    let client = place.client().await;
    for (field, value) in [("incarnation", FAR), ("host", host), ("pid", "1"), ("started", "1")] {
        let _: i64 = client.hset(place.keys.process(id), (field, value)).await.unwrap();
    }
    for (key, value) in [(place.keys.lock(id), FAR), (place.keys.heartbeat(id), "1")] {
        let () = client.set(key, value, Some(Expiration::EX(900)), None, false).await.unwrap();
    }
}

async fn is_put_off(orchestrator: &Process, id: &str) {
    let held = |worker: &wire::Worker| worker.last_error.contains("its lock is held by incarnation i-far");
    orchestrator.worker_is(id, "left alone", held).await;
}

async fn listen(place: &Place) -> Subscription {
    let config = RedisConfig { url: place.redis_url.clone(), timeout: PATIENCE };
    let channel = place.keys.control();
    let subscription = Redis::connect(&config).await.unwrap().subscribe(channel.clone()).unwrap();
    let client = place.client().await;
    wait_for("the subscription", PATIENCE, || async {
        client.publish::<i64, _, _>(channel.clone(), "listening").await.unwrap() == 1
    })
    .await;
    subscription
}

/// Waits until this is said.
async fn said(channel: &mut Subscription, what: &str) {
    let search = async { while channel.next().await != what {} };
    tokio::time::timeout(PATIENCE, search).await.unwrap_or_else(|_| panic!("nobody said {what}"));
}

#[tokio::test]
async fn a_lock_from_before_the_machine_started_anew_is_free_once_no_heart_beats() {
    let place = Place::new().await;
    place.workers(&place.shell(&[("a", "steady")]));
    let mut first = place.start("first").await;
    let before = first.runs("a").await.pid;
    first.kill();
    signal(before, Signal::SIGKILL);
    wait_for("the worker to die", PATIENCE, || async { !alive(before) }).await;
    let (id, client) = ("a".parse().unwrap(), place.client().await);
    // As the same machine would have left it before it lost its power.
    runs_on(&place, &id, "the same name, another boot").await;
    let second = place.start("second").await;
    is_put_off(&second, "a").await;
    assert_eq!(place.starts("a").len(), 1, "a heart beats");
    let _: i64 = client.del(place.keys.heartbeat(&id)).await.unwrap();
    if place.record("a").await["machine"].is_empty() {
        // In a container nothing proves it, and the lock lives out its time.
        let _: i64 = client.del(place.keys.lock(&id)).await.unwrap();
    }
    second.runs("a").await;
    assert_eq!(place.starts("a").len(), 2);
}

#[tokio::test]
async fn one_that_runs_on_another_machine_is_told_to_stop_for_as_long_as_it_is_heard() {
    let place = Place::new().await;
    let (id, client) = ("a".parse().unwrap(), place.client().await);
    runs_on(&place, &id, "another machine").await;
    place.workers(&place.shell(&[("a", "steady")]));
    let mut channel = listen(&place).await;
    let first = place.start("first").await;
    is_put_off(&first, "a").await;
    // Said once, it would be lost on one that is cut off at that moment, and that would then run for ever.
    let stop = Command::to(CommandKind::Shutdown, &id).message();
    said(&mut channel, &stop).await;
    said(&mut channel, &stop).await;
    // A stop means that one too.
    first.client().stop_worker(wire::StopWorkerRequest { id: id.to_string() }).await.unwrap();
    first.worker_is("a", "stopped", |worker| worker.status() == WorkerStatus::Stopped).await;
    let _: i64 = client.publish(place.keys.control(), "what follows is new").await.unwrap();
    said(&mut channel, "what follows is new").await;
    said(&mut channel, &stop).await;
    assert_eq!(place.starts("a"), []);
    let spec = Some(wire::WorkerSpec { id: id.to_string(), ..Default::default() });
    first.client().start_worker(wire::StartWorkerRequest { spec }).await.unwrap();
    // It has followed.
    let _: i64 = client.del(vec![place.keys.lock(&id), place.keys.heartbeat(&id)]).await.unwrap();
    first.runs("a").await;
}
