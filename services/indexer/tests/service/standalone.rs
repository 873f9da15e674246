//! A MongoDB that is no replica set, as the smallest installations run it: the same promises without transactions.

use std::path::Path;
use std::time::Duration;

use devstack::{Launch, Lifetime, Process, StopPlan, Tool, Tools};
use mongodb::bson::{Document, doc};
use nix::sys::signal::Signal;
use proto::indexer::v1 as pb;
use serde_json::json;
use testkit::wait_for;

use crate::kill::Fleet;
use crate::kit::{LONG, Settings, TRANSFER, World, selector, source};

/// Ends when dropped.
struct Standalone {
    url: String,
    _process: Process,
}

impl Standalone {
    async fn start(dir: &Path) -> Self {
        let port = devstack::free_port().unwrap();
        let program = Tools::locate().find(Tool::Mongod).unwrap().display().to_string();
        let (number, path) = (port.to_string(), dir.display().to_string());
        let words = [
            program.as_str(),
            "--bind_ip",
            "127.0.0.1",
            "--port",
            &number,
            "--dbpath",
            &path,
            "--nounixsocket",
            "--wiredTigerCacheSizeGB",
            "0.25",
        ];
        let launch = Launch {
            name: "mongodb".to_owned(),
            command: words.map(str::to_owned).to_vec(),
            env: [].into(),
            dir: dir.to_owned(),
            log: dir.join("mongodb.log"),
            lifetime: Lifetime::Owned,
            run_as: None,
            stop: StopPlan::new(Signal::SIGTERM, Duration::from_secs(20)),
        };
        let process = Process::spawn(&launch).unwrap();
        let server = Self { url: format!("mongodb://127.0.0.1:{port}/"), _process: process };
        let admin = server.database("admin").await;
        wait_for("the server to answer", LONG, || async {
            admin.run_command(doc! { "ping": 1 }).await.is_ok()
        })
        .await;
        let hello = admin.run_command(doc! { "hello": 1 }).await.unwrap();
        assert!(!hello.contains_key("setName"), "{hello}");
        server
    }

    async fn database(&self, name: &str) -> mongodb::Database {
        let url = format!("{}?serverSelectionTimeoutMS=1000", self.url);
        mongodb::Client::with_uri_str(url).await.unwrap().database(name)
    }
}

#[tokio::test]
async fn without_transactions_the_stored_set_is_the_chains_through_reorganisations_and_kills() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let dir = testkit::scratch_dir();
    let server = Standalone::start(dir.path()).await;
    let events = server.database(database.name()).await;
    world.history(40).await;
    let settings = Settings {
        url: server.url.clone(),
        lease_ms: 1_000,
        concurrency: 1,
        finality: 15,
        ..world.settings(&database)
    };
    let fleet = Fleet::new(settings.clone());
    for stage in ["indexer.after_job", "indexer.after_store_part", "indexer.after_store"] {
        let mut dying = fleet.worker(Some(stage));
        assert!(!dying.end().await.success(), "{stage} was never reached");
    }
    let indexing = Settings { concurrency: 2, ..settings.clone() }.launch().await;
    indexing.caught_up(&world).await;
    world.assert_stored_in(&events).await;
    for depth in [1, 4, 9] {
        world.reorganise(depth, &[(3, 0)]).await;
        world.history(2).await;
        world.stored_in_full(&events).await;
        indexing.caught_up(&world).await;
    }
    indexing.stop().await;

    // Half of what a reorganisation undoes is done when the worker dies; the next one does all of it again.
    world.reorganise(7, &[(5, 1)]).await;
    let mut dying = fleet.worker(Some("indexer.after_undo_half"));
    assert!(!dying.end().await.success(), "the undo was never reached");
    let indexing = settings.launch().await;
    world.stored_in_full(&events).await;
    let progress = indexing.caught_up(&world).await;
    assert_eq!(progress.events, world.facts().await.len() as u64);
    world.assert_stored_in(&events).await;
    indexing.stop().await;
}

#[tokio::test]
async fn without_transactions_addresses_are_kept_and_a_range_is_cut_at_a_false_head() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let dir = testkit::scratch_dir();
    let server = Standalone::start(dir.path()).await;
    let token = world.token().await;
    let liar = crate::lying_node::LyingNode::before(world.chain.url()).await;
    // A head twenty blocks ahead, with a block to show for it: ranges are claimed that nobody can read to their end.
    liar.lie(|method, params, mut truth| {
        if method == "eth_getBlockByNumber" && (params[0] == "latest" || truth["result"].is_null()) {
            let number = match params[0].as_str().unwrap() {
                "latest" => crate::kit::number(&truth["result"]["number"]) + 20,
                _ => crate::kit::number(&params[0]),
            };
            if params[0] == "latest" || number.is_multiple_of(2) {
                let hash = |of: u64| json!(format!("0x{:064x}", of + (1 << 40)));
                let block = json!({
                    "number": format!("{number:#x}"), "timestamp": "0x1", "hash": hash(number),
                    "parentHash": hash(number - 1),
                });
                truth = json!({ "jsonrpc": "2.0", "id": truth["id"], "result": block });
            }
        }
        truth
    });
    let url = server.url.clone();
    let indexing = Settings { url, sources: false, ..world.settings(&database) }.launch().await;
    let mut client = indexing.client();
    let source = pb::Source {
        event_signature: TRANSFER.to_owned(),
        address_parameters: vec!["to".to_owned()],
        ..source("deposits", &token, vec![liar.url(), world.chain.url()])
    };
    client.add_source(pb::AddSourceRequest { source: Some(source) }).await.unwrap();
    for wallet in 1..=8u64 {
        let addresses = vec![format!("0x{wallet:040x}")];
        let request = pb::AddSourceAddressesRequest { source: "deposits".to_owned(), addresses };
        client.add_source_addresses(request).await.unwrap();
        let data = format!("0x{}{wallet:064x}{:064x}", selector("mint(address,uint256)"), 1);
        world.mined(json!({ "to": token, "data": data, "gas": "0x186a0" })).await;
    }
    liar.tell_the_truth();
    world.chain.mine(30).await;
    let progress = indexing.complete_to("deposits", world.head().await).await;
    assert_eq!(progress.events, 8);
    let rows = server.database(database.name()).await.collection::<Document>("events");
    assert_eq!(rows.count_documents(doc! {}).await.unwrap(), 8);
    indexing.stop().await;
}
