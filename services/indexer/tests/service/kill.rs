//! `kill -9` of workers at every stage, with many of them; a worker that was paused beyond its lease.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use nix::sys::signal::Signal;
use rand::Rng as _;
use testkit::wait_for;

use crate::kit::{FEES, LONG, Settings, World};
use crate::process::Process;

/// Every place in a worker's round, in order.
const STAGES: [&str; 8] = [
    "indexer.after_job",
    "indexer.after_claim",
    "indexer.after_load",
    "indexer.after_parse",
    "indexer.after_store_part",
    "indexer.after_store",
    "indexer.after_complete",
    "indexer.after_claim:3",
];

/// Worker processes over one configuration.
pub(crate) struct Fleet {
    dir: tempfile::TempDir,
    settings: Settings,
}

impl Fleet {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), settings }
    }

    fn file(&self) -> PathBuf {
        let file = self.dir.path().join("indexer.toml");
        std::fs::write(&file, self.settings.text()).unwrap();
        file
    }

    pub(crate) fn worker(&self, crash: Option<&str>) -> Process {
        let mut env = BTreeMap::new();
        if let Some(point) = crash {
            env.insert("BURSAR_CRASH_POINT".to_owned(), point.to_owned());
        }
        let file = self.file().display().to_string();
        Process::quiet(&["work", "--config", &file], &env)
    }
}

async fn complete(database: &Database, head: u64) {
    let cursors = database.collection::<Document>("lastBlock");
    wait_for("the source to be complete", LONG, || async {
        let cursor = cursors.find_one(doc! { "_id": FEES }).await.unwrap();
        cursor.is_some_and(|cursor| cursor.get_i64("doneBefore").unwrap() > i64::try_from(head).unwrap())
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_dies_at_any_stage_loses_and_doubles_nothing() {
    let (world, database) = World::with_history(60).await;
    let fleet = Fleet::new(Settings {
        lease_ms: 1_000,
        batch: 8,
        concurrency: 1,
        finality: 10,
        ..world.settings(&database)
    });
    for stage in STAGES {
        let mut worker = fleet.worker(Some(stage));
        let status = worker.end().await;
        assert!(!status.success(), "{stage} was never reached");
        world.history(2).await;
    }
    let mut last = fleet.worker(None);
    complete(&database.database().await, world.head().await).await;
    last.signal(Signal::SIGTERM);
    assert_eq!(last.end().await.code(), Some(0));
    world.assert_stored(&database).await;
}

#[tokio::test]
async fn a_worker_that_dies_while_it_undoes_a_reorganisation_leaves_it_to_the_next() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    // A server of its own, because the limit below applies to all databases of a server: it aborts the transaction of a dead
    // process after 4 s instead of a minute.
    let dir = testkit::scratch_dir();
    let mut server = crate::store::server(dir.path(), None).await;
    let client = mongodb::Client::with_uri_str(server.url()).await.unwrap();
    let sooner = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 4 };
    client.database("admin").run_command(sooner).await.unwrap();
    let rows = client.database(database.name());
    world.history(30).await;
    let (url, settings) = (server.url(), world.settings(&database));
    let fleet = Fleet::new(Settings { url, lease_ms: 1_000, concurrency: 1, ..settings });
    let mut first = fleet.worker(None);
    complete(&rows, world.head().await).await;
    first.signal(Signal::SIGKILL);
    first.end().await;
    for (depth, stage) in [(6, "indexer.after_undo_decided"), (9, "indexer.after_undo_half")] {
        world.reorganise(depth, &[(3, 1)]).await;
        let mut dying = fleet.worker(Some(stage));
        assert!(!dying.end().await.success(), "{stage} was never reached");
    }
    let mut last = fleet.worker(None);
    world.stored_in_full(&rows).await;
    complete(&rows, world.head().await).await;
    world.assert_stored_in(&rows).await;
    last.signal(Signal::SIGTERM);
    last.end().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_storm_of_kills_over_many_workers_leaves_the_chains_own_set() {
    let (world, database) = World::with_history(80).await;
    let settings =
        Settings { lease_ms: 800, batch: 3, concurrency: 2, finality: 20, ..world.settings(&database) };
    let fleet = Fleet::new(settings);
    let mut workers: Vec<Process> = (0..4).map(|_| fleet.worker(None)).collect();
    for round in 0..14u64 {
        world.history(3).await;
        if round % 4 == 3 {
            let depth = rand::rng().random_range(1..=10);
            world.reorganise(depth, &[(2, 0)]).await;
        }
        let victim = rand::rng().random_range(0..workers.len());
        workers[victim].signal(Signal::SIGKILL);
        workers[victim].end().await;
        workers[victim] = fleet.worker(None);
    }
    world.stored_in_full(&database.database().await).await;
    complete(&database.database().await, world.head().await).await;
    world.assert_stored(&database).await;
}

#[tokio::test]
async fn a_worker_that_was_paused_beyond_its_lease_changes_nothing_when_it_wakes() {
    let (world, database) = World::with_history(25).await;
    let slow = testkit::FaultProxy::http(world.chain.address()).await;
    let hold = testkit::Hold::new();
    slow.rule(testkit::Rule::on("eth_getLogs", testkit::Upset::ReplyHeld(hold.clone())));
    let settings = Settings { lease_ms: 600, concurrency: 1, ..world.settings(&database) };
    let paused = Fleet::new(Settings { nodes: vec![slow.url()], ..settings.clone() });
    let mut paused = paused.worker(None);
    // It has received the true response of the old branch, and is paused then.
    hold.caught(1).await;
    paused.signal(Signal::SIGSTOP);
    hold.release();
    world.reorganise(20, &[(4, 2)]).await;
    let indexing = Settings { sources: false, ..settings.clone() };
    // The source's nodes are those of the paused worker; they answer at once now.
    let indexing = indexing.launch().await;
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;
    paused.signal(Signal::SIGCONT);
    // It finds that its lease expired and goes on with new blocks.
    world.emit(2).await;
    indexing.caught_up(&world).await;
    indexing.stop().await;
    world.emit(2).await;
    complete(&database.database().await, world.head().await).await;
    world.assert_stored(&database).await;
    paused.signal(Signal::SIGTERM);
    assert_eq!(paused.end().await.code(), Some(0));
}
