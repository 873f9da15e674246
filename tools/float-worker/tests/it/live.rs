//! Carrying out, with a client that can: each order once, nothing after the lock is gone, nothing twice.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::DateTime;
use float_worker::book::Book;
use float_worker::client::{Client, ClientError, Execution, Order};
use float_worker::float::FloatBounds;
use float_worker::strategy::{End, Kind, Move};
use float_worker::{Parts, RunError};
use serde_json::{Value, json};
use testkit::wait_for;
use tokio_util::sync::CancellationToken;
use types::RawAmount;
use worker::{History, Settings};

use crate::{PATIENCE, execution, load, market, parts, toml};

/// What happens to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Taken,
    Refused,
    /// Taken, and the answer is lost.
    Silent,
    /// Taken, but not before this much time has passed.
    Slow(Duration),
}

/// An order that was taken.
#[derive(Debug)]
struct Taken {
    fencing_token: Option<u64>,
    a_move: Move,
}

/// A client that takes orders and shows what it took, as it must.
#[derive(Debug, Clone)]
struct Ledger {
    execution: Execution,
    taken: Arc<Mutex<Vec<Taken>>>,
    fates: Arc<Mutex<Vec<Fate>>>,
}

impl Client for Ledger {
    fn offers(&self) -> &'static [Kind] {
        FloatBounds::KINDS
    }

    async fn book(&self) -> Result<Book, ClientError> {
        let mut book = self.execution.book().await?;
        let add = |to: &mut RawAmount, amount| *to = to.checked_add(amount).unwrap();
        for Taken { a_move: taken, .. } in self.taken.lock().unwrap().iter() {
            if let End::Wallet(from) = taken.from {
                let held = book.wallets.get_mut(&from).unwrap().holdings.get_mut(&taken.asset).unwrap();
                add(&mut held.reserved, taken.amount);
            }
            if let End::Wallet(to) = taken.to {
                let held = book.wallets.get_mut(&to).unwrap().holdings.get_mut(&taken.asset).unwrap();
                add(&mut held.incoming, taken.amount);
            }
        }
        Ok(book)
    }

    async fn execute(&self, order: Order<'_>) -> Result<String, ClientError> {
        let fate = self.fates.lock().unwrap().pop().unwrap_or(Fate::Taken);
        if fate == Fate::Refused {
            return Err(ClientError::Refused("not today".to_owned()));
        }
        if let Fate::Slow(span) = fate {
            let until = Instant::now() + span;
            wait_for("time to pass", PATIENCE, || async { Instant::now() > until }).await;
        }
        let taken = Taken { fencing_token: order.fencing_token, a_move: order.a_move.clone() };
        self.taken.lock().unwrap().push(taken);
        if fate == Fate::Silent {
            return Err(ClientError::Call { what: "handing in", source: "the answer is lost".into() });
        }
        Ok(format!("job of {}", order.key))
    }
}

struct Stage {
    _market: market::Server,
    _execution: execution::Server,
    dir: tempfile::TempDir,
    ledger: Ledger,
    settings: Settings,
    text: String,
}

impl Stage {
    async fn new(fates: &[Fate]) -> Self {
        let (market, execution) = (market::Server::start().await, execution::Server::start().await);
        let (dir, text) = (testkit::scratch_dir(), toml(&market, &execution));
        let data = dir.path().to_str().unwrap();
        let config = load(&text, &[("INTERVAL_SEC", "0.05"), ("WORKER_DATA_DIR", data)]).unwrap();
        let fates = Arc::new(Mutex::new(fates.iter().rev().copied().collect()));
        let client = Execution::new(rpc::connect_lazy(&config.execution).unwrap());
        let ledger = Ledger { execution: client, taken: Arc::default(), fates };
        Self { _market: market, _execution: execution, dir, ledger, settings: config.settings, text }
    }

    fn parts(&self) -> Parts<FloatBounds, Ledger> {
        let dry = parts(load(&self.text, &[]).unwrap());
        Parts {
            client: self.ledger.clone(),
            sources: dry.sources,
            strategy: dry.strategy,
            max_balance_age: dry.max_balance_age,
            dry_run: false,
        }
    }

    async fn once(&self) -> Result<Value, RunError> {
        float_worker::run_once(self.parts(), self.settings.clone(), CancellationToken::new()).await
    }

    fn taken(&self) -> usize {
        self.ledger.taken.lock().unwrap().len()
    }

    /// Outcomes of all stored moves, in the order of their keys, which is that of their making.
    async fn outcomes(&self) -> Vec<Value> {
        let history =
            History::open(self.dir.path(), &self.settings.id, self.settings.retention).await.unwrap();
        let decisions = history.since("decision", "float-bounds", DateTime::default()).await.unwrap();
        let mut outcomes = Vec::new();
        for (_, decision) in decisions {
            for a_move in decision["moves"].as_array().unwrap() {
                let rows = history
                    .since("move", a_move["key"].as_str().unwrap(), DateTime::default())
                    .await
                    .unwrap();
                assert_eq!(rows.len(), 1);
                assert_eq!(rows[0].1, *a_move, "the decision and its move say the same");
                outcomes.push(a_move["outcome"].clone());
            }
        }
        outcomes
    }
}

#[tokio::test]
async fn what_was_carried_out_is_not_decided_again_while_it_is_on_its_way() {
    let stage = Stage::new(&[]).await;
    let report = stage.once().await.unwrap();
    assert_eq!(report["outcomes"], json!(["accepted", "accepted"]));
    assert_eq!(stage.taken(), 2);
    let report = stage.once().await.unwrap();
    assert_eq!((&report["moves"], stage.taken()), (&json!({}), 2));
    assert_eq!(stage.outcomes().await, ["accepted", "accepted"]);
}

#[tokio::test]
async fn a_refusal_or_a_lost_answer_ends_the_cycle_and_the_history_says_which() {
    // After the first move both wallets are within bounds, so that nothing is left to do where it was taken.
    for (fate, outcome, taken, in_the_end) in
        [(Fate::Refused, "refused", 0, 2), (Fate::Silent, "unknown", 1, 1)]
    {
        let stage = Stage::new(&[fate]).await;
        let error = stage.once().await.unwrap_err();
        assert!(matches!(&error, RunError::Cycle(float_worker::CycleError::Order { .. })), "{error:?}");
        assert_eq!(stage.outcomes().await, [outcome, "unsent"]);
        assert_eq!(stage.taken(), taken);
        // The next cycle goes on from what the client shows, and hands in what is still missing, once.
        stage.once().await.unwrap();
        assert_eq!(stage.taken(), in_the_end);
    }
}

#[tokio::test]
async fn after_its_lock_has_ended_nothing_more_is_handed_in() {
    let mut stage = Stage::new(&[Fate::Slow(Duration::from_secs(4))]).await;
    let redis = testkit::redis().await;
    let variables = [
        ("WORKER_REDIS_URL", redis.url()),
        ("WORKER_NAMESPACE", redis.prefix()),
        ("WORKER_LOCK_TTL_MS", "3000"),
        // No renewal in time, as when the process was paused.
        ("WORKER_HEARTBEAT_INTERVAL_MS", "60000"),
        ("CYCLE_DEADLINE_SEC", "20"),
        ("WORKER_DATA_DIR", stage.dir.path().to_str().unwrap()),
    ];
    stage.settings = load(&stage.text, &variables).unwrap().settings;
    let error = stage.once().await.unwrap_err();
    assert!(matches!(&error, RunError::Cycle(float_worker::CycleError::Overtaken)), "{error:?}");
    assert_eq!(stage.taken(), 1);
    assert!(stage.ledger.taken.lock().unwrap()[0].fencing_token.is_some(), "orders carry the fencing token");
    assert_eq!(stage.outcomes().await, ["accepted", "unsent"]);
}

#[tokio::test]
async fn a_client_that_cannot_do_it_is_refused_at_start() {
    let stage = Stage::new(&[]).await;
    let real = Parts { dry_run: false, ..parts(load(&stage.text, &[]).unwrap()) };
    let error = float_worker::run(real, stage.settings.clone(), CancellationToken::new()).await.unwrap_err();
    assert!(matches!(&error, RunError::NotOffered(kinds) if kinds == FloatBounds::KINDS));
    assert!(error.to_string().contains("no call that moves funds between operation wallets"), "{error}");
    assert!(!stage.dir.path().join("float.db").exists(), "nothing was begun");
}
