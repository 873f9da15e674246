//! Reading: every event once, by many workers, from several sources and chains.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use proto::indexer::v1 as pb;
use serde_json::json;
use testkit::wait_for;

use crate::kit::{CHAIN_ID, FEES, LONG, TRANSFER, World, selector};

#[tokio::test]
async fn every_event_is_stored_once_and_the_ledger_says_so() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(60).await;
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
    indexing.complete_to(FEES, world.head().await).await;
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
        name: "transfers".to_owned(),
        chain_id: CHAIN_ID,
        contract_address: token,
        event_signature: TRANSFER.to_owned(),
        nodes: vec![one.chain.url()],
        ..Default::default()
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

#[tokio::test]
async fn a_source_can_be_paused_changed_and_not_bent() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(20).await;
    let indexing = crate::kit::Settings { sources: false, ..world.settings(&database) }.launch().await;
    let mut client = indexing.client();
    let source = pb::Source {
        name: FEES.to_owned(),
        chain_id: CHAIN_ID,
        contract_address: world.contract.clone(),
        nodes: vec![world.chain.url()],
        paused: true,
        ..Default::default()
    };
    let add = |source: pb::Source| {
        let mut client = indexing.client();
        async move { client.add_source(pb::AddSourceRequest { source: Some(source) }).await }
    };
    add(source.clone()).await.unwrap();
    assert_eq!(indexing.progress(FEES).await.unwrap().events, 0);
    add(pb::Source { paused: false, batch_size: 5, ..source.clone() }).await.unwrap();
    indexing.complete_to(FEES, world.head().await).await;
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
    assert_eq!(known.len(), 1);
    indexing.stop().await;
}
