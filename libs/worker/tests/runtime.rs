//! A worker's life on a real Redis: lock, heartbeat, control, outage, end.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fred::prelude::{Client, ClientLike, Expiration, HashesInterface, KeysInterface, PubsubInterface};
use serde_json::{Value, json};
use testkit::{RedisServer, wait_for, wait_for_value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use worker::redis::{Redis, RedisConfig};
use worker::{
    Cycle, CycleContext, Ended, Keys, RuntimeError, Settings, Timing, WithoutRedis, Worker, WorkerState,
    runtime,
};

const PATIENCE: Duration = Duration::from_secs(20);
const TIMING: Timing = Timing {
    heartbeat_interval: Duration::from_millis(50),
    heartbeat_ttl: Duration::from_millis(400),
    lock_ttl: Duration::from_secs(900),
    state_ttl: Duration::from_secs(60),
    restarting_ttl: Duration::from_secs(60),
};

struct Place {
    client: Client,
    keys: Keys,
    settings: Settings,
}

async fn place(url: &str, namespace: &str) -> Place {
    let config = RedisConfig { url: url.to_owned(), timeout: Duration::from_millis(300) };
    let client = Redis::connect(&config).await.unwrap().client().clone();
    let settings = Settings {
        redis: Some(config),
        keys: Keys::new(namespace),
        timing: TIMING,
        interval: Duration::from_millis(20),
        ..Settings::alone("USDC-USDT".parse().unwrap())
    };
    Place { client, keys: Keys::new(namespace), settings }
}

async fn shared_place() -> Place {
    let redis = testkit::redis().await;
    place(redis.url(), redis.prefix()).await
}

impl Place {
    async fn text(&self, key: String) -> Option<String> {
        self.client.get(key).await.unwrap()
    }

    async fn held_by(&self) -> Option<String> {
        self.text(self.keys.lock(&self.settings.id)).await
    }

    async fn beats(&self) {
        wait_for("a heartbeat", PATIENCE, || async {
            self.text(self.keys.heartbeat(&self.settings.id)).await.is_some()
        })
        .await;
    }

    fn incarnation(&self, name: &str) -> Settings {
        Settings { incarnation: name.to_owned(), supervised: true, ..self.settings.clone() }
    }
}

/// Counts, and notices two cycles at once.
#[derive(Clone, Default)]
struct Counting {
    cycles: Arc<AtomicU64>,
    inside: Arc<AtomicBool>,
    /// A cycle waits while this says so.
    held: Option<watch::Receiver<bool>>,
}

impl Cycle for Counting {
    type Error = std::io::Error;

    async fn cycle(&mut self, context: &CycleContext) -> Result<Value, std::io::Error> {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two cycles at once");
        self.cycles.fetch_add(1, Ordering::SeqCst);
        if let Some(held) = &mut self.held {
            held.wait_for(|held| !held).await.unwrap();
        }
        self.inside.store(false, Ordering::SeqCst);
        match context.epoch() {
            2 => Err(std::io::Error::other("the second fails")),
            epoch => Ok(json!({"epoch": epoch})),
        }
    }
}

type Life = JoinHandle<Result<Ended, RuntimeError>>;

fn start(settings: Settings, cycle: Counting) -> (Life, CancellationToken) {
    let stop = CancellationToken::new();
    let run =
        runtime::run(settings, stop.clone(), |worker: Worker| async move { worker.cycles(cycle).await });
    (tokio::spawn(run), stop)
}

#[tokio::test]
async fn alone_it_works_at_its_interval_keeps_its_history_and_stops_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        interval: Duration::from_millis(5),
        data_dir: Some(dir.path().join(".data")),
        ..Settings::alone("alone".parse().unwrap())
    };
    let id = settings.id.clone();
    let counting = Counting::default();
    let (life, stop) = start(settings, counting.clone());
    wait_for("cycles", PATIENCE, || async { counting.cycles.load(Ordering::SeqCst) > 3 }).await;
    stop.cancel();
    assert_eq!(life.await.unwrap().unwrap(), Ended::Stopped);
    let history =
        worker::History::open(&dir.path().join(".data"), &id, Duration::from_secs(9)).await.unwrap();
    let cycles = history.cycles(1_000).await.unwrap();
    assert_eq!(cycles.len() as u64, counting.cycles.load(Ordering::SeqCst));
    let second = cycles.iter().find(|cycle| cycle.epoch == 2).unwrap();
    assert_eq!(second.error.as_deref(), Some("the second fails"));
}

#[tokio::test]
async fn its_keys_are_those_of_the_table_with_their_times_to_live() {
    let place = shared_place().await;
    let timing = Timing { heartbeat_interval: Duration::from_millis(50), ..Timing::default() };
    let (life, stop) = start(Settings { timing, ..place.incarnation("i-1") }, Counting::default());
    place.beats().await;
    let (keys, id) = (&place.keys, &place.settings.id);
    assert_eq!(place.held_by().await.as_deref(), Some("i-1"));
    for (key, seconds) in [(keys.lock(id), 900), (keys.heartbeat(id), 45), (keys.state(id), 60)] {
        let ttl: i64 = place.client.pttl(key.as_str()).await.unwrap();
        assert!((seconds * 1000 - 5000..=seconds * 1000).contains(&ttl), "{key} lives {ttl} ms");
    }
    let beat: i64 = place.text(keys.heartbeat(id)).await.unwrap().parse().unwrap();
    assert!((chrono::Utc::now().timestamp_millis() - beat).abs() < 5_000);
    let state: WorkerState = serde_json::from_str(&place.text(keys.state(id)).await.unwrap()).unwrap();
    assert_eq!((state.pair_id.as_str(), state.incarnation.as_str()), ("USDC-USDT", "i-1"));
    assert!(state.fencing_token.is_some());
    stop.cancel();
    life.await.unwrap().unwrap();
    assert_eq!(place.held_by().await, None, "a clean stop gives the lock back");
}

#[tokio::test]
async fn one_incarnation_works_at_a_time_and_tokens_grow() {
    let place = shared_place().await;
    let (first, stop) = start(place.incarnation("i-1"), Counting::default());
    place.beats().await;
    let token = || async {
        let state = place.text(place.keys.state(&place.settings.id)).await.unwrap();
        serde_json::from_str::<WorkerState>(&state).unwrap().fencing_token.unwrap()
    };
    let before = token().await;
    let (second, _stop) = start(place.incarnation("i-2"), Counting::default());
    assert!(matches!(second.await.unwrap(), Err(RuntimeError::Busy { by, .. }) if by == "i-1"));
    // Without an orchestrator it waits for its turn instead.
    let waiting = Settings { supervised: false, ..place.incarnation("i-3") };
    let (third, third_stop) = start(waiting, Counting::default());
    stop.cancel();
    first.await.unwrap().unwrap();
    wait_for("the third to take over", PATIENCE, || async {
        place.held_by().await.as_deref() == Some("i-3")
    })
    .await;
    place.beats().await;
    assert!(token().await > before);
    third_stop.cancel();
    third.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_incarnation_that_the_orchestrator_does_not_admit_stays_outside() {
    let place = shared_place().await;
    let _: () =
        place.client.hset(place.keys.process(&place.settings.id), ("incarnation", "i-9")).await.unwrap();
    let (life, _stop) = start(place.incarnation("i-1"), Counting::default());
    assert!(matches!(life.await.unwrap(), Err(RuntimeError::Refused { by, .. }) if by == "i-9"));
    assert_eq!(place.held_by().await, None);
}

#[tokio::test]
async fn the_control_channel_reaches_those_it_names() {
    let place = shared_place().await;
    let (life, _stop) = start(place.incarnation("i-1"), Counting::default());
    place.beats().await;
    let tell = |message: &'static str| {
        let (client, channel) = (place.client.clone(), place.keys.control());
        async move { client.publish::<i64, _, _>(channel, message).await.unwrap() }
    };
    wait_for("the subscription", PATIENCE, || async {
        tell(r#"{"type":"SHUTDOWN","pairId":"someone-else"}"#).await == 1
    })
    .await;
    tell("nonsense").await;
    assert!(!life.is_finished());
    tell(r#"{"type":"RESTART","pairId":"USDC-USDT"}"#).await;
    assert_eq!(life.await.unwrap().unwrap(), Ended::Restart);
    let key = place.keys.restarting(&place.settings.id);
    let ttl: i64 = place.client.pttl(key).await.unwrap();
    assert!((55_000..=60_000).contains(&ttl), "{ttl}");

    let (life, _stop) = start(place.incarnation("i-2"), Counting::default());
    wait_for("the subscription", PATIENCE, || async { tell("SHUTDOWN").await == 1 }).await;
    assert_eq!(life.await.unwrap().unwrap(), Ended::Stopped);
}

#[tokio::test]
async fn a_lock_that_went_to_another_ends_the_worker_and_what_it_does() {
    let place = shared_place().await;
    let (_hold, held) = watch::channel(true);
    let counting = Counting { held: Some(held), ..Counting::default() };
    let (life, _stop) = start(place.incarnation("i-1"), counting);
    place.beats().await;
    let key = place.keys.lock(&place.settings.id);
    let _: () = place.client.set(key, "i-2", Some(Expiration::EX(60)), None, false).await.unwrap();
    assert!(matches!(life.await.unwrap(), Err(RuntimeError::Lost { by, .. }) if by == "i-2"));
    assert_eq!(place.held_by().await.as_deref(), Some("i-2"), "the new owner's lock is left alone");
}

async fn server() -> (RedisServer, Place) {
    let server = testkit::redis_server().await;
    let place = place(server.url(), "btr:").await;
    (server, place)
}

#[tokio::test]
async fn without_redis_it_finishes_what_it_holds_starts_nothing_new_and_recovers() {
    let (mut server, place) = server().await;
    let (hold, held) = watch::channel(true);
    let counting = Counting { held: Some(held), ..Counting::default() };
    let (life, stop) = start(place.incarnation("i-1"), counting.clone());
    place.beats().await;
    wait_for("the first cycle", PATIENCE, || async { counting.cycles.load(Ordering::SeqCst) == 1 }).await;
    server.stop().await;
    // Long enough for the worker to have noticed: its calls time out after 300 ms.
    let noticed = Instant::now() + Duration::from_secs(1);
    wait_for("time to notice", PATIENCE, || async { Instant::now() > noticed }).await;
    hold.send_replace(false);
    wait_for("the held cycle to finish", PATIENCE, || async { !counting.inside.load(Ordering::SeqCst) })
        .await;
    let several_intervals = Instant::now() + place.settings.interval * 20;
    wait_for("several intervals", PATIENCE, || async { Instant::now() > several_intervals }).await;
    assert_eq!(counting.cycles.load(Ordering::SeqCst), 1, "nothing new was started");
    assert!(!life.is_finished());
    server.start().await;
    wait_for("work to go on", PATIENCE, || async { counting.cycles.load(Ordering::SeqCst) > 3 }).await;
    assert_eq!(place.held_by().await.as_deref(), Some("i-1"));
    stop.cancel();
    life.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_redis_that_lost_its_data_gives_the_lock_again_with_a_later_token() {
    let (mut server, place) = server().await;
    let counting = Counting::default();
    let (life, stop) = start(place.incarnation("i-1"), counting.clone());
    place.beats().await;
    let token = || async {
        let state = place.text(place.keys.state(&place.settings.id)).await?;
        serde_json::from_str::<WorkerState>(&state).unwrap().fencing_token
    };
    let before = token().await.unwrap();
    let () = place.client.flushall(false).await.unwrap();
    server.stop().await;
    server.start().await;
    wait_for("the lock", PATIENCE, || async {
        place.client.get(place.keys.lock(&place.settings.id)).await.unwrap_or(None::<String>).as_deref()
            == Some("i-1")
    })
    .await;
    wait_for("a later token", PATIENCE, || async { token().await.is_some_and(|token| token > before) }).await;
    let cycles = counting.cycles.load(Ordering::SeqCst);
    wait_for("work to go on", PATIENCE, || async { counting.cycles.load(Ordering::SeqCst) > cycles }).await;
    stop.cancel();
    life.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_open_its_history_gives_its_lock_back() {
    let place = shared_place().await;
    let dir = tempfile::tempdir().unwrap();
    let no_folder = dir.path().join("taken");
    std::fs::write(&no_folder, "a file").unwrap();
    let settings = Settings { data_dir: Some(no_folder), ..place.incarnation("i-1") };
    let (life, _stop) = start(settings, Counting::default());
    assert!(matches!(life.await.unwrap(), Err(RuntimeError::History(_))));
    assert_eq!(place.held_by().await, None, "nobody else waits for a quarter of an hour");
}

#[tokio::test]
async fn work_that_is_leased_elsewhere_goes_on_without_redis_even_from_the_start() {
    let (mut server, place) = server().await;
    server.stop().await;
    let counting = Counting::default();
    let settings = Settings { without_redis: WithoutRedis::GoOn, ..place.incarnation("i-1") };
    let (life, stop) = start(settings, counting.clone());
    wait_for("cycles", PATIENCE, || async { counting.cycles.load(Ordering::SeqCst) > 3 }).await;
    server.start().await;
    wait_for_value("the lock", PATIENCE, || async {
        place.client.get(place.keys.lock(&place.settings.id)).await.unwrap_or(None::<String>)
    })
    .await;
    stop.cancel();
    life.await.unwrap().unwrap();
}

/// Never comes back, and cannot be cancelled either.
struct Hanging(std::sync::mpsc::Receiver<()>);

impl Cycle for Hanging {
    type Error = std::io::Error;

    async fn cycle(&mut self, _: &CycleContext) -> Result<Value, std::io::Error> {
        let _ = tokio::task::block_in_place(|| self.0.recv());
        Ok(Value::Null)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cycle_that_hangs_past_its_deadline_sends_no_more_heartbeats() {
    let place = shared_place().await;
    let (end, ended) = std::sync::mpsc::channel();
    let settings = Settings { deadline: Duration::from_millis(100), ..place.incarnation("i-1") };
    let stop = CancellationToken::new();
    let life = tokio::spawn(runtime::run(settings, stop.clone(), |worker: Worker| async move {
        worker.cycles(Hanging(ended)).await
    }));
    place.beats().await;
    wait_for("silence", PATIENCE, || async {
        place.text(place.keys.heartbeat(&place.settings.id)).await.is_none()
    })
    .await;
    stop.cancel();
    drop(end);
    life.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cycle_is_given_up_at_its_deadline_and_the_next_one_runs() {
    let (_hold, held) = watch::channel(true);
    let counting = Counting { held: Some(held), ..Counting::default() };
    struct Forgetful(Counting);
    impl Cycle for Forgetful {
        type Error = std::io::Error;
        async fn cycle(&mut self, context: &CycleContext) -> Result<Value, std::io::Error> {
            self.0.inside.store(false, Ordering::SeqCst);
            self.0.cycle(context).await
        }
    }
    let settings = Settings {
        interval: Duration::from_millis(10),
        deadline: Duration::from_millis(30),
        ..Settings::alone("slow".parse().unwrap())
    };
    let stop = CancellationToken::new();
    let cycle = Forgetful(counting.clone());
    let life = tokio::spawn(runtime::run(settings, stop.clone(), |worker: Worker| async move {
        worker.cycles(cycle).await
    }));
    wait_for("a second cycle", PATIENCE, || async { counting.cycles.load(Ordering::SeqCst) >= 2 }).await;
    stop.cancel();
    life.await.unwrap().unwrap();
}
