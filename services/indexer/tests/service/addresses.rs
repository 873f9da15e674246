//! Deposits: a source that keeps only what concerns a large set of our own addresses.

use proto::indexer::v1 as pb;
use serde_json::json;
use testkit::FaultProxy;

use crate::kit::{Settings, TRANSFER, World, selector, source};

const DEPOSITS: &str = "deposits";

fn address(of: u64) -> String {
    format!("0x{:040x}", of + 0x1_0000_0000)
}

async fn mint(world: &World, token: &str, to: u64, amount: u64) {
    let word = format!("{:0>64}", &address(to)[2..]);
    let data = format!("0x{}{word}{amount:064x}", selector("mint(address,uint256)"));
    world.mined(json!({ "to": token, "data": data, "gas": "0x186a0" })).await;
}

#[tokio::test]
async fn deposits_to_a_hundred_thousand_addresses_are_found_without_a_query_for_each() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let token = world.token().await;
    for step in 0..30 {
        // Every third is to one of ours.
        let to = if step % 3 == 0 { step * 3_000 } else { 10_000_000 + step };
        mint(&world, &token, to, step + 1).await;
    }
    let node = FaultProxy::http(world.chain.address()).await;
    let settings = Settings { sources: false, ..world.settings(&database) };
    let indexing = settings.launch().await;
    let mut client = indexing.client();
    let source = pb::Source {
        event_signature: TRANSFER.to_owned(),
        address_parameters: vec!["to".to_owned()],
        paused: true,
        ..source(DEPOSITS, &token, vec![node.url()])
    };
    client.add_source(pb::AddSourceRequest { source: Some(source.clone()) }).await.unwrap();
    for part in 0..10u64 {
        let addresses = (part * 10_000..(part + 1) * 10_000).map(address).collect();
        let request = pb::AddSourceAddressesRequest { source: DEPOSITS.to_owned(), addresses };
        let answer = client.add_source_addresses(request).await.unwrap().into_inner();
        assert_eq!((answer.added, answer.addresses, answer.from_block), (10_000, (part + 1) * 10_000, 0));
    }
    let running = pb::Source { paused: false, ..source };
    client.add_source(pb::AddSourceRequest { source: Some(running) }).await.unwrap();
    let progress = indexing.complete_to(DEPOSITS, world.head().await).await;
    assert_eq!(progress.events, 10);
    assert!(node.calls("eth_getLogs") < 60, "{} questions", node.calls("eth_getLogs"));

    // An address that is added now counts from the block that the answer names.
    let request =
        pb::AddSourceAddressesRequest { source: DEPOSITS.to_owned(), addresses: vec![address(77_000_000)] };
    let answer = client.add_source_addresses(request.clone()).await.unwrap().into_inner();
    assert_eq!((answer.added, answer.addresses), (1, 100_001));
    assert!(answer.from_block <= world.head().await + 1);
    mint(&world, &token, 77_000_000, 5).await;
    mint(&world, &token, 88_000_000, 5).await;
    let progress = indexing.complete_to(DEPOSITS, world.head().await).await;
    assert_eq!(progress.events, 11);
    let again = client.add_source_addresses(request).await.unwrap().into_inner();
    assert_eq!((again.added, again.addresses), (0, 100_001));

    let list = pb::ListEventsRequest {
        source: DEPOSITS.to_owned(),
        parameters: [("to".to_owned(), address(77_000_000))].into(),
        ..Default::default()
    };
    assert_eq!(client.list_events(list).await.unwrap().into_inner().events.len(), 1);
    let wrong =
        pb::AddSourceAddressesRequest { source: DEPOSITS.to_owned(), addresses: vec!["0x12".to_owned()] };
    let refused = client.add_source_addresses(wrong).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    indexing.stop().await;
}

#[tokio::test]
async fn addresses_that_come_while_ranges_are_read_miss_nothing() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let token = world.token().await;
    let settings = Settings { sources: false, batch: 2, concurrency: 3, ..world.settings(&database) };
    let indexing = settings.launch().await;
    let mut client = indexing.client();
    let source = pb::Source {
        event_signature: TRANSFER.to_owned(),
        address_parameters: vec!["from".to_owned(), "to".to_owned()],
        ..source(DEPOSITS, &token, vec![world.chain.url()])
    };
    client.add_source(pb::AddSourceRequest { source: Some(source) }).await.unwrap();
    // Each address is added, and paid as soon as the answer is there, while workers run after the head.
    for wallet in 0..25 {
        let addresses = vec![address(wallet)];
        let request = pb::AddSourceAddressesRequest { source: DEPOSITS.to_owned(), addresses };
        client.add_source_addresses(request).await.unwrap();
        mint(&world, &token, wallet, 1).await;
    }
    let progress = indexing.complete_to(DEPOSITS, world.head().await).await;
    assert_eq!(progress.events, 25);
    indexing.stop().await;
}
