//! Whole cycles on a real Redis: what is stored, what is published, and what happens when a part is away.

use std::time::Duration;

use chrono::DateTime;
use fred::prelude::{Client, KeysInterface as _, PubsubInterface as _};
use serde_json::{Value, json};
use testkit::{RedisNamespace, wait_for, wait_for_value};
use tokio_util::sync::CancellationToken;
use worker::redis::{Redis, RedisConfig, Subscription};
use worker::{Ended, History, Settings};

use crate::execution::{self, COLD, HOT};
use crate::market::{self, Act};
use crate::{PATIENCE, load, parts, toml};

/// Everything a worker needs around it.
struct World {
    market: market::Server,
    execution: execution::Server,
    redis: RedisNamespace,
    client: Client,
    messages: Subscription,
    dir: tempfile::TempDir,
    settings: Settings,
    text: String,
}

impl World {
    async fn new() -> Self {
        let (market, execution, redis) =
            (market::Server::start().await, execution::Server::start().await, testkit::redis().await);
        let dir = testkit::scratch_dir();
        let text = toml(&market, &execution);
        let variables = [
            ("WORKER_PAIR_ID", "BNB-USDT"),
            ("INTERVAL_SEC", "0.05"),
            ("WORKER_REDIS_URL", redis.url()),
            ("WORKER_NAMESPACE", redis.prefix()),
            ("WORKER_HEARTBEAT_INTERVAL_MS", "50"),
            ("WORKER_DATA_DIR", dir.path().to_str().unwrap()),
        ];
        let settings = load(&text, &variables).unwrap().settings;
        let config = RedisConfig { url: redis.url().to_owned(), timeout: Duration::from_secs(2) };
        let connection = Redis::connect(&config).await.unwrap();
        let channel = format!("{}worker:BNB-USDT:state", redis.prefix());
        let mut messages = connection.subscribe(channel.clone()).unwrap();
        let client = connection.client().clone();
        wait_for("the subscription", PATIENCE, || async {
            client.publish::<i64, _, _>(channel.as_str(), "listening").await.unwrap() == 1
        })
        .await;
        assert_eq!(messages.next().await, "listening");
        Self { market, execution, redis, client, messages, dir, settings, text }
    }

    fn run(&self) -> (tokio::task::JoinHandle<Result<Ended, float_worker::RunError>>, CancellationToken) {
        let stop = CancellationToken::new();
        let parts = parts(load(&self.text, &[]).unwrap());
        (tokio::spawn(float_worker::run(parts, self.settings.clone(), stop.clone())), stop)
    }

    async fn next(&mut self) -> Value {
        let message = tokio::time::timeout(PATIENCE, self.messages.next()).await.expect("a message");
        serde_json::from_str(&message).unwrap()
    }

    /// The first message that fits.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                let message = self.next().await;
                if fits(&message) {
                    return message;
                }
            }
        };
        tokio::time::timeout(PATIENCE, search).await.expect("a message that fits")
    }

    async fn state(&self) -> Value {
        let key = format!("{}worker:BNB-USDT:state", self.redis.prefix());
        let text: Option<String> = self.client.get(key).await.unwrap();
        text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    async fn history(&self) -> History {
        History::open(self.dir.path(), &self.settings.id, self.settings.retention).await.unwrap()
    }
}

fn moves(message: &Value) -> Vec<[String; 5]> {
    let shown = |m: &Value| {
        ["kind", "from", "to", "amount", "value"].map(|f| m[f].as_str().unwrap_or("-").to_owned())
    };
    message["decision"]["moves"].as_array().unwrap().iter().map(shown).collect()
}

/// Hot wallet 2 has 45.12.. BNB and a target of 20, wallet 1 has 0.5: 19.5 go over, the rest into cold storage.
fn expected() -> Vec<[String; 5]> {
    let rows = [
        ["rebalance", HOT[1], HOT[0], "19.5", "11700"],
        ["sweep", HOT[1], COLD, "5.623456789012345678", "3374.0740734"],
    ];
    rows.map(|row| row.map(str::to_owned)).to_vec()
}

#[tokio::test]
async fn a_cycle_fetches_scores_decides_stores_and_publishes() {
    let mut world = World::new().await;
    let (life, stop) = world.run();
    let message = world.next().await;
    assert_eq!(message["pairId"], "BNB-USDT");
    assert_eq!(
        (&message["status"], &message["error"], &message["epoch"]),
        (&json!("done"), &Value::Null, &json!(1))
    );
    assert_eq!((&message["dryRun"], &message["strategy"]), (&json!(true), &json!("float-bounds")));
    assert_eq!(message["regime"], "calm");
    assert_eq!(message["scores"]["BNB"]["price"], "600");
    assert_eq!(message["scores"]["BNB"]["witnesses"], 2);
    assert_eq!(moves(&message), expected());
    let outcomes = message["decision"]["moves"].as_array().unwrap();
    assert!(outcomes.iter().all(|m| m["outcome"] == "proposed"), "{outcomes:?}");

    let state = wait_for_value("the state key", PATIENCE, || async {
        Some(world.state().await).filter(|state| state["status"] == "idle" && !state["decision"].is_null())
    })
    .await;
    assert_eq!(moves(&state), expected());
    assert_eq!((&state["pairId"], &state["regime"]), (&json!("BNB-USDT"), &json!("calm")));
    stop.cancel();
    assert_eq!(life.await.unwrap().unwrap(), Ended::Stopped);

    let history = world.history().await;
    let first = history.cycles(1_000).await.unwrap().pop().unwrap();
    let report = first.report.unwrap();
    assert_eq!(report["moves"], json!({"rebalance": 1, "sweep": 1}));
    assert_eq!((&report["outcomes"], &report["holds"]), (&json!(["proposed", "proposed"]), &json!(0)));
    let at = DateTime::from_timestamp_millis(message["at"].as_i64().unwrap()).unwrap();
    let ever = DateTime::default();
    for (kind, name, since) in [("scores", "float-bounds", at), ("decision", "float-bounds", at)] {
        assert_eq!(history.since(kind, name, since).await.unwrap()[0].0, at, "{kind}");
    }
    let stored = &history.since("decision", "float-bounds", at).await.unwrap()[0].1;
    assert_eq!(*stored, message["decision"]);
    for a_move in outcomes {
        let rows = history.since("move", a_move["key"].as_str().unwrap(), ever).await.unwrap();
        assert_eq!(rows, [(at, a_move.clone())]);
    }
    let candles = history.since("candle", "BNB/exchange", ever).await.unwrap();
    assert!(candles.len() >= 2, "{candles:?}");
    assert_eq!(candles[0].1["close"], "600");
    assert_eq!(history.since("pool", "BNB/pool", ever).await.unwrap()[0].1["reserve"], "63988541.3812");
}

#[tokio::test]
async fn with_a_source_down_the_cycle_fails_nothing_is_proposed_and_the_next_one_goes_on() {
    let mut world = World::new().await;
    world.market.candles.then([Act::Price("600"), Act::Status(503), Act::Price("600")]);
    let (life, stop) = world.run();
    let (first, second, third) = (world.next().await, world.next().await, world.next().await);
    assert_eq!(
        [&first, &second, &third].map(|message| message["status"].as_str().unwrap()),
        ["done", "failed", "done"]
    );
    assert_eq!(second["error"], "source exchange: answered HTTP 503 (after 1 of 1 tries)");
    assert_eq!((&second["decision"], &second["scores"]), (&Value::Null, &Value::Null));
    assert_eq!(moves(&third), expected());
    stop.cancel();
    life.await.unwrap().unwrap();

    let history = world.history().await;
    let cycles = history.cycles(1_000).await.unwrap();
    let failed: Vec<_> = cycles.iter().filter(|cycle| cycle.error.is_some()).collect();
    let [failed] = failed.as_slice() else { panic!("{cycles:?}") };
    assert_eq!((failed.epoch, &failed.report), (2, &None));
    assert_eq!(failed.error.as_deref(), second["error"].as_str());
    let decisions = history.since("decision", "float-bounds", DateTime::default()).await.unwrap();
    assert_eq!(decisions.len(), cycles.len() - 1, "a failed cycle decides nothing");
}

#[tokio::test]
async fn without_execution_the_cycle_fails_and_says_what_is_away() {
    let mut world = World::new().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let text = world.text.replace(&world.execution.url(), &format!("http://{closed}"));
    let right = std::mem::replace(&mut world.text, text);
    let (life, stop) = world.run();
    let message = world.next().await;
    assert_eq!((&message["status"], &message["decision"]), (&json!("failed"), &Value::Null));
    let error = message["error"].as_str().unwrap();
    assert!(error.starts_with("the wallets could not be read: listing wallets did not work"), "{error}");
    stop.cancel();
    life.await.unwrap().unwrap();
    // A key that may not read is told so, too.
    world.text = right.replace(world.execution.key(), "wrong");
    let (life, stop) = world.run();
    let told = |message: &Value| message["error"].as_str().unwrap().to_owned();
    let refused = told(&world.until(|message| !told(message).contains("cannot reach")).await);
    assert!(refused.contains("the wallets could not be read"), "{refused}");
    stop.cancel();
    life.await.unwrap().unwrap();
}

#[tokio::test]
async fn proposals_follow_the_wallets_and_a_balance_nobody_reads_decides_nothing() {
    let mut world = World::new().await;
    world.text = format!("max_balance_age_ms = 300\n{}", world.text);
    let (life, stop) = world.run();
    assert_eq!(moves(&world.next().await), expected());
    // Both within bounds now, and read from a later block.
    world.execution.hold(0, &[("BNB", "20", "0", 8), ("USDT", "999", "0", 8)]);
    world.execution.hold(1, &[("BNB", "25.6", "0", 8), ("USDT", "2000", "0", 8)]);
    let row = ["refill", "outside", HOT[0], "1001", "1001"].map(str::to_owned);
    // USDT is the quote: its price is 1.
    world.until(|message| moves(message) == [row.clone()]).await;
    // Nobody reads the chain any more.
    let held = world.until(|message| moves(message).is_empty()).await;
    let holds = held["decision"]["holds"].as_array().unwrap();
    assert!(
        holds.iter().all(|hold| hold["reason"] == "its balance has not been read for too long"),
        "{holds:?}"
    );
    stop.cancel();
    life.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_control_channel_stops_it() {
    let mut world = World::new().await;
    let (life, _stop) = world.run();
    world.next().await;
    let channel = format!("{}control", world.redis.prefix());
    let order = r#"{"type":"SHUTDOWN","pairId":"BNB-USDT"}"#;
    wait_for("the worker to hear it", PATIENCE, || async {
        world.client.publish::<i64, _, _>(channel.as_str(), order).await.unwrap() == 1 || life.is_finished()
    })
    .await;
    assert_eq!(life.await.unwrap().unwrap(), Ended::Stopped);
}
