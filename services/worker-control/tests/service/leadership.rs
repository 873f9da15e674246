//! One orchestrator at a time, whatever happens to it.

use std::time::{Duration, Instant};

use fred::prelude::{Expiration, HashesInterface as _, KeysInterface as _, SetsInterface as _};
use nix::sys::signal::Signal;
use testkit::wait_for;

use crate::kit::{PATIENCE, TestFleet, alive, signal};

#[tokio::test]
async fn its_keys_live_as_long_as_the_table_says() {
    let mut fleet = TestFleet::new().await;
    // With the default intervals.
    fleet.orchestrator.clear();
    fleet.worker.clear();
    fleet.workers(&fleet.shell(&[("USDC-USDT", "steady"), ("WETH-USDC", "steady")]));
    let first = fleet.start("first").await;
    let client = fleet.client().await;
    let ttl = async |key: String| -> i64 { client.pttl(key).await.unwrap() };
    let lock = ttl(fleet.keys.orchestrator_lock()).await;
    assert!((45_000..=60_000).contains(&lock), "{lock}");
    let mut active: Vec<String> = client.smembers(fleet.keys.workers()).await.unwrap();
    active.sort();
    assert_eq!(active, ["USDC-USDT", "WETH-USDC"]);
    assert_eq!(ttl(fleet.keys.workers()).await, -1, "the set of workers never expires");
    let id = "USDC-USDT".parse().unwrap();
    wait_for("a heartbeat", PATIENCE, || async { fleet.text(fleet.keys.heartbeat(&id)).await.is_some() })
        .await;
    for (key, seconds) in
        [(fleet.keys.lock(&id), 900), (fleet.keys.heartbeat(&id), 45), (fleet.keys.state(&id), 60)]
    {
        let ttl = ttl(key.clone()).await;
        assert!(((seconds - 15) * 1_000..=seconds * 1_000).contains(&ttl), "{key}: {ttl}");
    }
    drop(first);
}

#[tokio::test]
async fn of_two_started_at_once_one_leads_and_the_other_says_why_not() {
    let fleet = TestFleet::with(&[("a", "steady")]).await;
    let (mut one, mut two) = (fleet.begin("one"), fleet.begin("two"));
    wait_for("one of them to end", PATIENCE, || {
        let ended = one.child.try_wait().unwrap().is_some() || two.child.try_wait().unwrap().is_some();
        async move { ended }
    })
    .await;
    let (winner, mut loser) = if one.child.try_wait().unwrap().is_some() { (two, one) } else { (one, two) };
    assert_eq!(loser.ends().await.code(), Some(1));
    assert!(loser.said().contains("another orchestrator is running"), "{}", loser.said());
    winner.runs("a").await;
    assert_eq!(fleet.starts("a").len(), 1);
}

#[tokio::test]
async fn a_lock_that_vanished_is_said_and_taken_again_with_a_new_epoch() {
    let (fleet, first) = TestFleet::started(&[("a", "steady")]).await;
    let (before, pid) = (first.epoch().await, first.runs("a").await.pid);
    let _: i64 = fleet.client().await.del(fleet.keys.orchestrator_lock()).await.unwrap();
    first.says("the orchestrator lock is gone; nothing is done").await;
    first.says("leading again").await;
    wait_for("a new epoch", PATIENCE, || async { first.epoch().await > before }).await;
    assert_eq!(first.runs("a").await.pid, pid, "its worker was left alone");
    assert_eq!(fleet.starts("a").len(), 1);
}

#[tokio::test]
async fn a_lock_that_went_to_another_ends_the_old_one_and_touches_no_worker() {
    let (fleet, mut first) = TestFleet::started(&[("a", "steady")]).await;
    let pid = first.runs("a").await.pid;
    let lock = fleet.keys.orchestrator_lock();
    let () =
        fleet.client().await.set(lock, "somebody-else", Some(Expiration::EX(60)), None, false).await.unwrap();
    assert_eq!(first.ends().await.code(), Some(1));
    assert!(first.said().contains("another orchestrator took the lock"), "{}", first.said());
    assert!(alive(pid), "the worker belongs to whoever leads now");
    let holder = fleet.text(fleet.keys.orchestrator_lock()).await;
    assert_eq!(holder.as_deref(), Some("somebody-else"), "the new owner's lock is left alone");
}

#[tokio::test]
async fn an_orchestrator_that_was_paused_past_its_lock_does_nothing_after_it() {
    let (fleet, mut first) = TestFleet::started(&[("a", "steady")]).await;
    let pid = first.runs("a").await.pid;
    first.signal(Signal::SIGSTOP);
    fleet.lock_expires().await;
    // The worker dies meanwhile; the paused orchestrator would start it again as soon as it continues.
    signal(pid, Signal::SIGKILL);
    let began = Instant::now();
    let second = fleet.start("second").await;
    let worker = second.has_other_pid("a", pid).await;
    println!("takeover after an expired lock: {:?}", began.elapsed());
    first.signal(Signal::SIGCONT);
    assert_eq!(first.ends().await.code(), Some(1));
    assert!(first.said().contains("took the lock"));
    second.runs("a").await;
    assert_eq!(second.worker("a").await.pid, worker.pid);
    assert_eq!(fleet.starts("a").len(), 2, "one start by each");
}

#[tokio::test]
async fn a_successor_adopts_what_still_runs_and_ends_what_should_not() {
    let fleet = TestFleet::new().await;
    let file =
        fleet.shell(&[("same", "steady"), ("removed", "steady"), ("changed", "steady"), ("dead", "steady")]);
    fleet.workers(&file);
    let mut first = fleet.start("first").await;
    let mut pids = Vec::new();
    for id in ["same", "removed", "changed", "dead"] {
        pids.push(first.runs(id).await.pid);
    }
    first.kill();
    signal(pids[3], Signal::SIGKILL);
    wait_for("the fourth to die", PATIENCE, || async { !alive(pids[3]) }).await;
    // A record that was never written must not hide a process.
    let client = fleet.client().await;
    let _: i64 = client.del(fleet.keys.process(&"same".parse().unwrap())).await.unwrap();
    fleet.workers(&fleet.shell(&[("same", "steady"), ("changed", "forks"), ("dead", "steady")]));
    let began = Instant::now();
    let second = fleet.start("second").await;
    println!("takeover from a dead orchestrator on this machine: {:?}", began.elapsed());
    assert!(second.said().contains("is dead; taking its lock"), "without waiting for its lock to expire");
    assert_eq!(second.runs("same").await.pid, pids[0], "adopted");
    let changed = second.has_other_pid("changed", pids[2]).await;
    assert_ne!(changed.pid, pids[2]);
    wait_for("the removed one to end", PATIENCE, || async { !alive(pids[1]) }).await;
    second.runs("changed").await;
    // Its lock had 15 minutes left; the successor knew that its owner was dead.
    second.runs("dead").await;
    for (id, starts) in [("same", 1), ("removed", 1), ("changed", 2), ("dead", 2)] {
        assert_eq!(fleet.starts(id).len(), starts, "{id}");
    }
    // What was adopted is watched like any other, though it is nobody's child here.
    signal(pids[0], Signal::SIGKILL);
    second.has_other_pid("same", pids[0]).await;
}

#[tokio::test]
async fn a_recycled_pid_in_a_record_is_nobodys_worker() {
    let fleet = TestFleet::new().await;
    let mut bystander = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let client = fleet.client().await;
    let id = "a".parse().unwrap();
    // As a predecessor on this machine would have left it, had its worker died and the pid been given to another.
    let mut first = fleet.start("first").await;
    let owner: std::collections::BTreeMap<String, String> =
        client.hgetall(fleet.keys.orchestrator_owner()).await.unwrap();
    first.kill();
    let fields = [
        ("incarnation", "i-old".to_owned()),
        ("host", owner["host"].clone()),
        ("spec", "f".to_owned()),
        ("pid", bystander.id().to_string()),
        ("started", "1".to_owned()),
    ];
    for (field, value) in fields {
        let _: i64 = client.hset(fleet.keys.process(&id), (field, value)).await.unwrap();
    }
    let _: () =
        client.set(fleet.keys.lock(&id), "i-old", Some(Expiration::EX(900)), None, false).await.unwrap();
    fleet.workers(&fleet.shell(&[("a", "steady")]));
    let second = fleet.start("second").await;
    second.runs("a").await;
    assert!(alive(bystander.id()), "a bystander was hit");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test]
async fn an_outage_of_redis_starts_nothing_twice_kills_nothing_and_heals() {
    let mut server = testkit::redis_server().await;
    let fleet = TestFleet::on(server.url(), "btr:").await;
    fleet.workers(&fleet.shell(&[("kept", "steady"), ("killed", "steady")]));
    let first = fleet.start("first").await;
    let (kept, killed) = (first.runs("kept").await.pid, first.runs("killed").await.pid);
    server.stop().await;
    first.says("Redis is away").await;
    let gone = Instant::now();
    signal(killed, Signal::SIGKILL);
    // Longer than every time to live and every timeout of these intervals.
    wait_for("a long outage", PATIENCE, || async { gone.elapsed() > Duration::from_secs(6) }).await;
    assert!(alive(kept));
    assert_eq!(fleet.starts("killed").len(), 1, "nothing starts without the lock");
    server.start().await;
    let back = Instant::now();
    first.worker_is("killed", "started again", |worker| worker.pid != 0).await;
    println!("back to work after an outage: {:?}", back.elapsed());
    first.runs("killed").await;
    assert_eq!(first.runs("kept").await.pid, kept);
    // Heartbeats that were missing during the outage do not count afterwards either.
    let later = Instant::now();
    wait_for("the timeout to pass again", PATIENCE, || async { later.elapsed() > Duration::from_secs(5) })
        .await;
    assert_eq!(first.runs("kept").await.pid, kept);
    assert_eq!((fleet.starts("kept").len(), fleet.starts("killed").len()), (1, 2));
}

#[tokio::test]
async fn a_standby_takes_over_when_the_leader_is_gone() {
    let mut fleet = TestFleet::new().await;
    fleet.orchestrator.insert("standby", "true".to_owned());
    fleet.workers(&fleet.shell(&[("a", "steady")]));
    let mut first = fleet.start("first").await;
    let pid = first.runs("a").await.pid;
    let second = fleet.begin("second");
    second.says("standing by").await;
    first.kill();
    let worker = second.runs("a").await;
    assert_eq!(worker.pid, pid, "adopted");
    assert_eq!(fleet.starts("a").len(), 1);
}
