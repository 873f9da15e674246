//! The supervisor with loops that write down what happens to them. No test relies on time: each waits for what it expects,
//! and "nothing more happens" means that the wanted keys were read several times since.

use std::sync::{Arc, Mutex};

use testkit::wait_for;
use tokio::sync::Semaphore;

use super::*;

/// Settings with which a loop panics at once,
const PANICS: u32 = 13;
/// and with which it ends only after the test opens the gate.
const SLOW_TO_END: u32 = 99;
const INTERVAL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
struct Fake(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    script: Mutex<Script>,
    log: Mutex<Vec<String>>,
    gate: Semaphore,
}

/// What the next reading of the wanted keys returns.
#[derive(Debug, Default)]
struct Script {
    wanted: BTreeMap<&'static str, u32>,
    unreadable: bool,
    readings: u32,
}

impl Fake {
    fn new(wanted: &[(&'static str, u32)]) -> Self {
        let fake = Self(Arc::new(Shared {
            script: Mutex::default(),
            log: Mutex::default(),
            gate: Semaphore::new(0),
        }));
        fake.set(wanted);
        fake
    }

    fn set(&self, wanted: &[(&'static str, u32)]) {
        self.0.script.lock().unwrap().wanted = wanted.iter().copied().collect();
    }

    fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    async fn expect(&self, log: &[&str]) {
        wait_for("the expected log", PATIENCE, || async { self.log() == log }).await;
    }

    /// Waits until the wanted keys were read three more times: what was to happen has begun.
    async fn settle(&self) {
        let readings = || self.0.script.lock().unwrap().readings;
        let before = readings();
        wait_for("three readings", PATIENCE, || async { readings() >= before + 3 }).await;
    }
}

impl KeyedLoops for Fake {
    type Key = &'static str;
    type Settings = u32;
    type Error = std::io::Error;

    async fn wanted(&mut self) -> Result<BTreeMap<&'static str, u32>, std::io::Error> {
        let mut script = self.0.script.lock().unwrap();
        script.readings += 1;
        if script.unreadable { Err(std::io::Error::other("away")) } else { Ok(script.wanted.clone()) }
    }

    fn start(&mut self, key: &&'static str, mut settings: watch::Receiver<u32>, loops: &mut Loops) {
        let (key, shared, stop) = (*key, Arc::clone(&self.0), loops.stop());
        let first = *settings.borrow_and_update();
        let say = move |what: String| shared.log.lock().unwrap().push(format!("{key} {what}"));
        say(format!("starts {first}"));
        let shared = Arc::clone(&self.0);
        loops.spawn(key, async move {
            assert_ne!(first, PANICS, "as the test wants it");
            while stop.run_until_cancelled(settings.changed()).await.is_some() {
                say(format!("sees {}", *settings.borrow_and_update()));
            }
            if first == SLOW_TO_END {
                shared.gate.acquire().await?.forget();
            }
            say("ends".to_owned());
            Ok(())
        });
    }
}

type Run = tokio::task::JoinHandle<Result<(), LoopEnded>>;

fn start(fake: &Fake, with: impl FnOnce(Supervisor<Fake>) -> Supervisor<Fake>) -> (CancellationToken, Run) {
    let stop = CancellationToken::new();
    let mut supervisor = with(Supervisor::new(fake.clone(), INTERVAL));
    supervisor.restart_pause = INTERVAL;
    (stop.clone(), tokio::spawn(supervisor.run(stop)))
}

async fn end(stop: &CancellationToken, run: Run) {
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn keys_come_and_go_with_what_is_wanted() {
    let fake = Fake::new(&[("a", 1)]);
    let (stop, run) = start(&fake, |supervisor| supervisor);
    fake.expect(&["a starts 1"]).await;
    fake.set(&[]);
    fake.expect(&["a starts 1", "a ends"]).await;
    fake.set(&[("b", 2)]);
    fake.expect(&["a starts 1", "a ends", "b starts 2"]).await;
    end(&stop, run).await;
    assert_eq!(fake.log(), ["a starts 1", "a ends", "b starts 2", "b ends"]);
}

#[tokio::test]
async fn changed_settings_reach_the_running_loop_and_no_other() {
    let fake = Fake::new(&[("a", 1), ("b", 1)]);
    let (stop, run) = start(&fake, |supervisor| supervisor);
    fake.expect(&["a starts 1", "b starts 1"]).await;
    fake.set(&[("a", 2), ("b", 1)]);
    fake.expect(&["a starts 1", "b starts 1", "a sees 2"]).await;
    fake.settle().await;
    assert_eq!(fake.log().len(), 3, "told once");
    end(&stop, run).await;
}

#[tokio::test]
async fn changed_settings_restart_the_loop_where_that_is_asked_for() {
    let fake = Fake::new(&[("a", 1)]);
    let (stop, run) = start(&fake, Supervisor::restarting_on_change);
    fake.expect(&["a starts 1"]).await;
    fake.set(&[("a", 2)]);
    fake.expect(&["a starts 1", "a ends", "a starts 2"]).await;
    end(&stop, run).await;
}

#[tokio::test]
async fn a_key_that_is_slow_to_end_never_runs_twice_and_delays_no_other() {
    let fake = Fake::new(&[("slow", SLOW_TO_END)]);
    let (stop, run) = start(&fake, |supervisor| supervisor);
    fake.expect(&["slow starts 99"]).await;
    fake.set(&[("b", 1)]);
    fake.expect(&["slow starts 99", "b starts 1"]).await;
    fake.settle().await;
    fake.set(&[("b", 1), ("slow", SLOW_TO_END)]);
    fake.settle().await;
    assert_eq!(fake.log(), ["slow starts 99", "b starts 1"]);
    fake.0.gate.add_permits(2);
    fake.expect(&["slow starts 99", "b starts 1", "slow ends", "slow starts 99"]).await;
    end(&stop, run).await;
}

#[tokio::test]
async fn a_stop_waits_for_loops_that_are_slow_to_end() {
    let fake = Fake::new(&[("slow", SLOW_TO_END)]);
    let (stop, run) = start(&fake, |supervisor| supervisor);
    fake.expect(&["slow starts 99"]).await;
    stop.cancel();
    tokio::task::yield_now().await;
    assert!(!run.is_finished());
    fake.0.gate.add_permits(1);
    run.await.unwrap().unwrap();
    assert_eq!(fake.log(), ["slow starts 99", "slow ends"]);
}

#[tokio::test]
async fn a_loop_that_ends_by_itself_is_started_again() {
    let fake = Fake::new(&[("a", PANICS), ("b", 1)]);
    let (stop, run) = start(&fake, |supervisor| supervisor);
    wait_for("a second start", PATIENCE, || async {
        fake.log().iter().filter(|line| *line == "a starts 13").count() >= 2
    })
    .await;
    fake.set(&[("a", 1), ("b", 1)]);
    wait_for("a good start", PATIENCE, || async { fake.log().contains(&"a starts 1".to_owned()) }).await;
    end(&stop, run).await;
    assert_eq!(fake.log().iter().filter(|line| *line == "b starts 1").count(), 1, "b was left alone");
}

#[tokio::test]
async fn a_loop_that_ends_by_itself_ends_the_supervisor_where_that_is_asked_for() {
    let fake = Fake::new(&[("a", PANICS), ("b", 1)]);
    let (_stop, run) = start(&fake, Supervisor::failing_with_loops);
    let ended = run.await.unwrap().unwrap_err();
    assert_eq!(ended.name, "a");
    assert!(ended.cause.unwrap().to_string().contains("panicked"));
    assert_eq!(fake.log(), ["a starts 13", "b starts 1", "b ends"], "the others end in order");
}

#[tokio::test]
async fn keys_that_cannot_be_read_change_nothing() {
    let fake = Fake::new(&[("a", 1)]);
    let (stop, run) = start(&fake, |supervisor| supervisor);
    fake.expect(&["a starts 1"]).await;
    fake.0.script.lock().unwrap().unreadable = true;
    fake.set(&[]);
    fake.settle().await;
    assert_eq!(fake.log(), ["a starts 1"]);
    end(&stop, run).await;
    assert_eq!(fake.log(), ["a starts 1", "a ends"]);
}

#[tokio::test]
async fn a_write_to_the_topic_makes_the_supervisor_read_at_once() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    let fake = Fake::new(&[("a", 1)]);
    let subscription = db::Waker::start(&pool).subscribe("chains");
    let stop = CancellationToken::new();
    let hour = Duration::from_secs(3_600);
    let supervisor = Supervisor::new(fake.clone(), hour).woken_by(subscription);
    let run = tokio::spawn(supervisor.run(stop.clone()));
    fake.expect(&["a starts 1"]).await;
    // After the first look and the two short sleeps it sleeps for the whole interval, and writers can see that.
    let visible = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_for("the long sleep", PATIENCE, || async {
        let readings = fake.0.script.lock().unwrap().readings;
        readings >= 4 && sqlx::query_scalar(visible).fetch_one(&pool).await.unwrap()
    })
    .await;
    fake.set(&[("a", 2)]);
    db::wake_in(&mut pool.acquire().await.unwrap(), "chains").await.unwrap();
    fake.expect(&["a starts 1", "a sees 2"]).await;
    end(&stop, run).await;
}
