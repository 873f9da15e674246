//! Reading: every event once, by many workers, from several sources and chains.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use proto::indexer::v1 as pb;
use serde_json::json;
use testkit::wait_for;

use crate::kit::{FEES, LONG, Settings, TRANSFER, World, counted, profile, selector, source, statements};
use crate::lying_node::{LyingNode, asked, error};

#[tokio::test]
async fn every_event_is_stored_once_and_the_ledger_says_so() {
    let (world, database) = World::with_history(60).await;
    let indexing = world.settings(&database).launch().await;
    let head = world.head().await;
    let progress = indexing.complete_to(FEES, head).await;
    world.assert_stored(&database).await;
    assert_eq!(progress.events, world.facts().await.len() as u64);
    assert_eq!((progress.head_block, progress.lag_blocks), (head, 0));
    wait_for("the source to be at the head", LONG, || async {
        indexing.progress(FEES).await.is_some_and(|p| p.mode() == pb::Mode::Realtime)
    })
    .await;

    // Finished ranges cover the chain without gap or overlap, linked by hash.
    let jobs = database.database().await.collection::<Document>("blockJobs");
    let mut next = 0;
    let mut hash = String::new();
    for from in 0.. {
        let Some(job) = jobs.find_one(doc! { "fromBlock": next }).await.unwrap() else { break };
        assert_eq!(job.get_str("status"), Ok("completed"));
        assert!(from == 0 || job.get_str("parentHash") == Ok(&hash));
        hash = job.get_str("toHash").unwrap().to_owned();
        next = job.get_i64("toBlock").unwrap() + 1;
    }
    assert_eq!(next, i64::try_from(head).unwrap() + 1);
    assert_eq!(jobs.count_documents(doc! { "open": true }).await.unwrap(), 0);
    indexing.stop().await;
}

#[tokio::test]
async fn a_new_block_is_served_within_a_second() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.emit(1).await;
    let indexing = world.settings(&database).launch().await;
    indexing.caught_up(&world).await;
    // The fastest of a few: the machine may be busy with other tests at any one of them.
    let mut fastest = Duration::MAX;
    for round in 1..=5 {
        world.emit(3).await;
        let began = Instant::now();
        wait_for("the new events", LONG, || async {
            indexing.fees("").await["data"].as_array().unwrap().len() == 1 + 3 * round
        })
        .await;
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < Duration::from_secs(1), "took {fastest:?}");
    indexing.stop().await;
}

#[tokio::test]
async fn several_chains_sources_and_processes_leave_no_hole_and_no_double() {
    let (one, two) = tokio::join!(World::new(), World::of(10));
    let database = testkit::mongo().await;
    let token = one.token().await;
    tokio::join!(one.history(40), two.history(30));
    for _ in 0..5 {
        let data = format!("0x{}{:064x}{:064x}", selector("mint(address,uint256)"), 0xcafe, 7);
        one.mined(json!({ "to": token, "data": data, "gas": "0x186a0" })).await;
    }
    let settings = one.settings(&database);
    let (first, second) = tokio::join!(settings.launch(), settings.launch());
    let mut client = first.client();
    let other = pb::Source {
        name: "fees-10".to_owned(),
        chain_id: 10,
        contract_address: two.contract.clone(),
        batch_size: 7,
        concurrency: 3,
        nodes: vec![two.chain.url()],
        ..Default::default()
    };
    client.add_source(pb::AddSourceRequest { source: Some(other) }).await.unwrap();
    let transfers = pb::Source {
        event_signature: TRANSFER.to_owned(),
        ..source("transfers", &token, vec![one.chain.url()])
    };
    client.add_source(pb::AddSourceRequest { source: Some(transfers) }).await.unwrap();
    let (head, other_head) = (one.head().await, two.head().await);
    second.complete_to(FEES, head).await;
    assert_eq!(second.complete_to("transfers", head).await.events, 5);
    second.complete_to("fees-10", other_head).await;
    let (mut all, other) = (one.facts().await, two.facts().await);
    all.extend(other.clone());
    assert_eq!(crate::kit::stored(&database).await, all);
    let listed = first.fees("?integrator=10&limit=100").await;
    assert_eq!(listed["pagination"]["total"], other.len());
    first.stop().await;
    second.stop().await;
}

/// Makes every range with events be read again, as after a failed attempt.
async fn read_again(jobs: &mongodb::Collection<Document>) {
    let again = doc! {
        "$set": { "status": "pending", "open": true, "attempts": 0_i64, "reopened": true },
        "$inc": { "fence": 1_i64 },
    };
    jobs.update_many(doc! { "status": "completed", "count": { "$gt": 0 } }, again).await.unwrap();
    wait_for("every range to be read again", LONG, || async {
        jobs.count_documents(doc! { "open": true }).await.unwrap() == 0
    })
    .await;
}

#[tokio::test]
async fn what_an_earlier_attempt_stored_of_a_dead_branch_goes_even_below_finality() {
    let (world, database) = World::with_history(20).await;
    world.chain.mine(20).await;
    let indexing = Settings { finality: 5, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;
    let rows = database.database().await;
    let events = rows.collection::<Document>("feeEvents");
    // The same event in a block of the same number and another hash.
    let mut dead = events.find_one(doc! {}).sort(doc! { "_id": 1 }).await.unwrap().unwrap();
    let Some(mongodb::bson::Bson::Binary(id)) = dead.get_mut("_id") else { panic!("{dead}") };
    id.bytes[20] ^= 1;
    events.insert_one(&dead).await.unwrap();
    read_again(&rows.collection("blockJobs")).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_finished_range_that_is_read_again_mends_what_differs_and_leaves_the_rest() {
    let (world, database) = World::with_history(40).await;
    world.chain.mine(20).await;
    // All events are final, so they are stored as they are read and not replaced as a whole.
    let indexing = Settings { finality: 5, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;
    let database_ = database.database().await;
    let (events, jobs) =
        (database_.collection::<Document>("feeEvents"), database_.collection::<Document>("blockJobs"));
    let newest = events.find_one(doc! {}).sort(doc! { "_id": -1 }).await.unwrap().unwrap();
    let oldest = events.find_one(doc! {}).sort(doc! { "_id": 1 }).await.unwrap().unwrap();
    let id = |row: &Document| doc! { "_id": row.get("_id").unwrap() };
    events.delete_one(id(&newest)).await.unwrap();
    events.update_one(id(&oldest), doc! { "$set": { "integratorFee": "31337" } }).await.unwrap();
    profile(&database_, "feeEvents").await;
    read_again(&jobs).await;
    let written = statements(&database_).await;
    world.assert_stored(&database).await;
    assert_eq!(counted(&written, "ninserted"), 1, "{written:?}");
    assert_eq!((counted(&written, "nModified"), counted(&written, "ndeleted")), (1, 0), "{written:?}");
    indexing.stop().await;
}

#[tokio::test]
async fn a_source_whose_cursor_was_never_placed_is_read_all_the_same() {
    let (world, database) = World::with_history(10).await;
    let settings = world.settings(&database);
    let indexing = settings.launch().await;
    indexing.caught_up(&world).await;
    indexing.stop().await;
    // As after a kill between storing the source and creating its cursor.
    let rows = database.database().await;
    for collection in ["lastBlock", "blockJobs", "feeEvents"] {
        rows.collection::<Document>(collection).delete_many(doc! {}).await.unwrap();
    }
    let indexing = Settings { sources: false, ..settings }.launch().await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn a_dense_range_that_is_not_final_is_cut_instead_of_held_in_memory() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    for _ in 0..6 {
        world.emit(6_000).await;
    }
    let node = LyingNode::before(world.chain.url()).await;
    node.lie(|method, params, truth| match (method, asked(params)) {
        ("eth_getLogs", Some((from, to))) if to > from => error(&truth["id"], -32005, "too many results"),
        _ => truth,
    });
    let settings =
        Settings { nodes: vec![node.url()], batch: 50, concurrency: 1, ..world.settings(&database) };
    let indexing = settings.launch().await;
    let progress = indexing.caught_up(&world).await;
    assert_eq!(progress.events, 36_000);
    let jobs = database.database().await.collection::<Document>("blockJobs");
    let most = jobs.find_one(doc! {}).sort(doc! { "count": -1 }).await.unwrap().unwrap();
    assert!(most.get_i64("count").unwrap() < 30_000, "{most}");
    assert_eq!(jobs.count_documents(doc! { "open": true }).await.unwrap(), 0);
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_source_can_be_paused_changed_and_not_bent() {
    let (world, database) = World::with_history(20).await;
    let indexing = Settings { sources: false, ..world.settings(&database) }.launch().await;
    let mut client = indexing.client();
    let source = pb::Source { paused: true, ..source(FEES, &world.contract, vec![world.chain.url()]) };
    let add = |source: pb::Source| {
        let mut client = indexing.client();
        async move { client.add_source(pb::AddSourceRequest { source: Some(source) }).await }
    };
    add(source.clone()).await.unwrap();
    // A source that is not paused, and was added later, is read to its end meanwhile.
    let other = pb::Source {
        name: "transfers".to_owned(),
        contract_address: String::new(),
        event_signature: TRANSFER.to_owned(),
        paused: false,
        ..source.clone()
    };
    add(other).await.unwrap();
    indexing.complete_to("transfers", world.head().await).await;
    let jobs = database.database().await.collection::<Document>("blockJobs");
    assert_eq!(jobs.count_documents(doc! { "source": FEES }).await.unwrap(), 0);
    add(pb::Source { paused: false, batch_size: 5, ..source.clone() }).await.unwrap();
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;

    let refused = add(pb::Source { start_block: 9, ..source.clone() }).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    assert!(refused.message().contains("start_block"), "{refused}");
    let refused = add(pb::Source { name: "again".to_owned(), ..source.clone() }).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists, "{refused}");
    let nowhere = format!("0x{:040x}", 0xdead);
    let refused =
        add(pb::Source { name: "other".to_owned(), contract_address: nowhere, ..source.clone() }).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("no contract deployed"), "{refused}");
    let refused = add(pb::Source { name: "x".to_owned(), chain_id: 1, ..source.clone() }).await.unwrap_err();
    assert!(refused.message().contains("wrong RPC chain id"), "{refused}");
    let refused = add(pb::Source { name: "BAD".to_owned(), nodes: Vec::new(), ..source }).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(
        refused.message().contains("source.name") && refused.message().contains("source.nodes"),
        "{refused}"
    );
    let known = client.list_sources(pb::ListSourcesRequest {}).await.unwrap().into_inner().sources;
    assert_eq!(known.len(), 2);
    indexing.stop().await;
}
